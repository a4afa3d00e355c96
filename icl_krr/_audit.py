r"""How far rounding changes the numbers that a function returns.

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

_SMALL = 100.0
"""Arrays of numbers below so many times the smallest normal number count as 0."""


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
    r"""Call a function and estimate the rounding errors of the numbers that it returns.

    The function is called in the dtype of its arguments, once more in float64, and four times in
    float64 with arguments that differ by a few units of rounding. The error of the status is the
    largest difference between a number and its value in float64, relative to the largest magnitude
    in its array. A result of a task with y [n, r] has a largest magnitude for each output: the last
    axis of arrays whose last axis has the length r. Numbers below 1e-36 (1e-306 in float64) count
    as 0. If the arguments are float64, the error is ten times the largest change by the small
    differences; in float32, the error may be too small by this. So a number in float32 that
    agrees with a wrong one in float64 is not `ok`.

    The audit detects rounding, overflow and underflow, but not that a solver has taken too few
    steps, which `icl_krr.check` and the statuses of solvers report. Inside of JAX transformations,
    it uses the widest dtype that JAX allows; if this is float32, only the small differences count.

    Args:
        function: function of arrays, such as `icl_krr.solvers.leave_one_out` or `jax.grad(loss)`.
            All arrays must be arguments: those that it closes over stay in their dtype.
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
    numbers = _floating_arrays(value)
    if not numbers:
        raise TypeError(
            "function must return floating-point numbers to be audited, got a value without any"
        )
    measure = partial(_measure, function, _output_counts(args, kwargs))
    return Audited(value, in_float64(measure, numbers, args, kwargs))


def _floating_arrays(value: Any) -> list[jax.Array]:
    """The floating-point arrays of a value, without those of statuses."""
    leaves = jax.tree.leaves(value, is_leaf=lambda part: isinstance(part, Status))
    return [as_jax(leaf) for leaf in leaves if isinstance(leaf, float) or is_floating(leaf)]


def _output_counts(*args: Any) -> frozenset[int]:
    """The numbers r of outputs of the tasks with y [n, r]."""
    tasks = jax.tree.leaves(args, is_leaf=lambda part: isinstance(part, Task))
    tasks = [task for task in tasks if isinstance(task, Task)]
    return frozenset(task.num_outputs for task in tasks if task.y.ndim == task.x.ndim)


def _measure(function: Callable, outputs: frozenset[int], numbers: list, args, kwargs) -> Status:
    dtype = jnp.result_type(*(leaf.dtype for leaf in numbers))
    wide = np.promote_types(dtype, jnp.result_type(float))

    def compute_wide(args: Any, kwargs: Any) -> list[jax.Array]:
        return _floating_arrays(function(*args, **kwargs))

    exact, changes = with_rounding_error(compute_wide, *cast((args, kwargs), wide))
    if any(leaf.dtype != wide for leaf in exact):
        raise ValueError(
            "function must get all arrays as arguments to be audited, but its value is "
            f"{dtype} for arguments in {wide}; pass the arrays that it closes over"
        )
    return _judge(outputs, numbers, exact, changes)


@partial(jax.jit, static_argnums=0)
def _judge(outputs: frozenset[int], numbers: list, exact: list, changes: list) -> Status:
    each = [_array_errors(*arrays, outputs) for arrays in zip(numbers, exact, changes, strict=True)]
    error, change, overflow = (jnp.max(jnp.stack(parts)) for parts in zip(*each, strict=True))
    dtype, wide = (jnp.result_type(*arrays) for arrays in (numbers, exact))
    widest = wide == dtype
    return assess(
        jnp.inf,
        MARGIN * change if widest else error,
        change / UNITS * float(jnp.finfo(dtype).eps / jnp.finfo(wide).eps),
        dtype,
        uncertain=0.0 if widest else MARGIN * change,
        range=overflow & ~(error <= TOLERANCE),
    )


def _array_errors(result: Any, exact: Any, changes: Any, outputs: frozenset[int]) -> tuple:
    """The largest error and the largest change of an array, and whether it leaves the range."""
    has_outputs = exact.ndim > 1 and exact.shape[-1] in outputs
    axes = tuple(range(exact.ndim - has_outputs))
    size = jnp.max(jnp.abs(exact), axis=axes, keepdims=True, initial=0)
    info = jnp.finfo(result.dtype)
    overflow = jnp.isinf(result) | (size > float(info.max))
    errors = jnp.abs(result.astype(exact.dtype) - exact)
    size = jnp.maximum(size, _SMALL * float(info.tiny))
    error, change = (max_error(part / size) for part in (errors, changes))
    return error, change, jnp.any(overflow)
