r"""How far rounding moved the numbers that a function returns.

Solvers and `icl_krr.posterior` return a `Status` with their results, and `icl_krr.check` says
whether a model has converged. `audit` does the same for functions that return plain numbers, such
as evidences, leave-one-out errors, bounds, derivatives and gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ._core import checks
from ._core.constants import as_jax
from ._core.readable import readable
from ._core.rounding import MARGIN, UNITS, cast, in_float64, is_floating, with_rounding_error
from ._core.status import TOLERANCE, Status, assess
from .solvers._accuracy import max_error
from .tasks import Task

SMALL = 100.0
"""Arrays of numbers below so many times the smallest normal number are as good as 0."""


@readable
class Audited(NamedTuple):
    """What a function returned, and whether it is right.

    Attributes:
        value: the value of the function.
        status: a `Status` of all numbers in the value.
    """

    value: Any
    status: Status


def audit(function: Callable, *args: Any, **kwargs: Any) -> Audited:
    r"""Call a function, and estimate how far rounding errors moved the numbers that it returns.

    The function is called in the dtype of its arguments, once more in float64, and four times in
    float64 with arguments that differ by a few units of rounding. The gap of the status is the
    largest difference between a number and its value in float64, relative to the largest magnitude
    in its array. A result of a task with y [n, r] has a largest magnitude for each output: the last
    axis of arrays whose last axis has the length r. Numbers below 1e-36 (1e-306 in float64) count
    as 0. If the arguments are float64, the gap is ten times the largest change by the small
    differences; in float32, this is what the gap may lack. So a number in float32 that agrees with
    a wrong one in float64 is not `ok`.

    The audit sees rounding, overflow and underflow. It does not see that a solver has taken too few
    steps, which `icl_krr.check` and the statuses of solvers say. Inside of JAX transformations, it
    uses the widest dtype that JAX allows; if this is float32, only the small differences count.

    Args:
        function: function of arrays, such as `icl_krr.solvers.leave_one_out` or `jax.grad(loss)`.
            It gets all arrays as arguments: those that it holds otherwise stay in their dtype.
        args, kwargs: its arguments: pytrees of arrays and other objects.

    Returns:
        An `Audited` with the value, as the function returns it, and the `Status` of its
        floating-point numbers. The `residual` is infinite: it is not known.

    >>> import icl_krr as ik
    >>> x = np.array([[0.0], [1.0], [1.001]])
    >>> task = ik.Task(x=x, y=[1.0, 2.0, 3.0], x_query=x)
    >>> value, status = audit(ik.solvers.log_marginal_likelihood, ik.Gaussian(), task, ridge=0.1)
    >>> round(float(value), 3), bool(status.ok)
    (-7.438, True)
    >>> bool(audit(ik.solvers.leave_one_out, ik.Gaussian(), task, ridge=1e-9).status.ok)
    False
    """
    checks.function("function", function)
    value = function(*args, **kwargs)
    numbers = numbers_of(value)
    if not numbers:
        raise TypeError(
            "function must return floating-point numbers to be audited, got a value without any"
        )
    measure = partial(compare, function, outputs_of(args, kwargs))
    return Audited(value, in_float64(measure, numbers, args, kwargs))


def numbers_of(value: Any) -> list[jax.Array]:
    """The floating-point arrays of a value, without those of statuses."""
    leaves = jax.tree.leaves(value, is_leaf=lambda part: isinstance(part, Status))
    return [as_jax(leaf) for leaf in leaves if isinstance(leaf, float) or is_floating(leaf)]


def outputs_of(*given: Any) -> frozenset[int]:
    """The numbers r of outputs of the tasks with y [n, r]."""
    tasks = jax.tree.leaves(given, is_leaf=lambda part: isinstance(part, Task))
    tasks = [task for task in tasks if isinstance(task, Task)]
    return frozenset(task.num_outputs for task in tasks if task.y.ndim == task.x.ndim)


def compare(
    function: Callable, outputs: frozenset[int], numbers: list, args: Any, kwargs: Any
) -> Status:
    dtype = jnp.result_type(*(leaf.dtype for leaf in numbers))
    wide = np.promote_types(dtype, jnp.result_type(float))

    def widely(args: Any, kwargs: Any) -> list[jax.Array]:
        return numbers_of(function(*args, **kwargs))

    best, moved = with_rounding_error(widely, *cast((args, kwargs), wide))
    if any(leaf.dtype != wide for leaf in best):
        raise ValueError(
            "function must get all arrays as arguments to be audited, but its value is "
            f"{dtype} for arguments in {wide}; pass the arrays that it holds"
        )
    return judge(outputs, numbers, best, moved)


@partial(jax.jit, static_argnums=0)
def judge(outputs: frozenset[int], numbers: list, best: list, moved: list) -> Status:
    each = [of_array(*arrays, outputs) for arrays in zip(numbers, best, moved, strict=True)]
    gap, change, left = (jnp.max(jnp.stack(parts)) for parts in zip(*each, strict=True))
    dtype, wide = (jnp.result_type(*arrays) for arrays in (numbers, best))
    widest = wide == dtype
    return assess(
        jnp.inf,
        MARGIN * change if widest else gap,
        change / UNITS * float(jnp.finfo(dtype).eps / jnp.finfo(wide).eps),
        dtype,
        uncertain=0.0 if widest else MARGIN * change,
        range=left & ~(gap <= TOLERANCE),
    )


def of_array(found: Any, best: Any, moved: Any, outputs: frozenset[int]) -> tuple[Any, Any, Any]:
    """The largest error and the largest change of an array, and whether it leaves the range."""
    own = best.ndim > 1 and best.shape[-1] in outputs
    size = jnp.max(jnp.abs(best), axis=tuple(range(best.ndim - own)), keepdims=True, initial=0)
    info = jnp.finfo(found.dtype)
    left = jnp.isinf(found) | (size > float(info.max))
    errors = (jnp.abs(found.astype(best.dtype) - best), moved)
    gap, change = (
        max_error(error / jnp.maximum(size, SMALL * float(info.tiny))) for error in errors
    )
    return gap, change, jnp.any(left)
