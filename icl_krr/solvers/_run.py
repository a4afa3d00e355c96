"""Solvers: functions of the language, and their iterates on a task."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from inspect import Parameter
from types import FunctionType
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float

from .. import Status
from .._core import checks
from .._core.messages import unknown_name
from .._core.numerics import matmul
from .._core.rescaling import power_of_two_scale, rescaled
from .._core.status_warning import warn_unless_ok
from ..kernels import Kernel
from ..kernels._log_bilinear import check_positive
from ..tasks import Task, system
from ..tasks._linear_system import check_matrices
from ..tasks._task import support_mask
from . import _accuracy
from ._algebra import check_system, like, masked_arrays
from ._language.analysis import SUPPORTS, homogeneity, in_range_of_kernel
from ._language.arrays import iterates
from ._language.trace import trace
from ._language.values import ENTRIES, FEATURES, SCALAR, VECTOR, Op, Program
from ._results import Trajectory
from ._smoother import average

NORMALISED = frozenset({"smooth", "sink", "normaliser"})
"""Kinds of values that need row sums of the kernel matrix."""
OF_KERNEL = NORMALISED | {"kernel", "diagonal"}
"""Kinds of values that need the kernel matrix."""


class Solver:
    """A function of the kernel matrix, the outputs and parameters, which `solver` wraps.

    Calling it with a kernel and a task calls `run`.

    Args:
        function: the function.
        status: function (arrays, ridge, states, stuck, spectrum) -> `icl_krr.Status` of the last
            iterate; None to derive it from the residual.
        iterates: whether it has steps.

    >>> Solver(lambda K, y: {"prediction": K.average @ y}, iterates=False).parameters
    {}
    """

    def __init__(self, function: Callable, status: Callable | None = None, iterates: bool = True):
        checks.instance("function", function, FunctionType, "a function, by def or lambda")
        self.function, self.status, self.__wrapped__ = function, status, function
        self.__name__, self.__doc__ = function.__name__, function.__doc__
        self.__module__, self.__qualname__ = function.__module__, function.__qualname__
        keywords = [k for k in _keyword_parameters(function) if k.name != "steps"]
        self.parameters = {k.name: k for k in keywords}
        self.defaults = {k.name: k.default for k in keywords if k.default is not k.empty}
        if iterates:
            self.parameters["steps"] = Parameter("steps", Parameter.KEYWORD_ONLY, annotation="int")
        _, kernel, task, _ = inspect.signature(run).parameters.values()
        every = [kernel, task, *self.parameters.values()]
        self.__signature__ = inspect.Signature(every, return_annotation="Trajectory")

    def __call__(self, kernel: Kernel, task: Task, **keywords: Any) -> Trajectory:
        return run(self, kernel, task, **keywords)

    def __repr__(self) -> str:
        return f"<solver {self.__name__}>"


def _keyword_parameters(function: FunctionType) -> list[Parameter]:
    """Return the parameters of a solver after K and y, as keyword-only parameters."""
    signature = inspect.signature(function)
    positional, keyword_only = Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY
    kinds = [one.kind for one in signature.parameters.values()]
    keywords = [*signature.parameters.values()][2:]
    reserved = {"kernel", "task", "num_features"} & {one.name for one in keywords}
    if kinds[:2] != [positional] * 2 or not {*kinds} <= {positional, keyword_only} or reserved:
        raise TypeError(
            "function must take K, y and keywords, of which none is kernel, task or num_features, "
            f"got {function.__name__}{signature}"
        )
    return [one.replace(kind=keyword_only) for one in keywords]


def check_keywords(
    name: str, parameters: Mapping[str, Parameter], keywords: Iterable[str], others: Iterable[str]
) -> None:
    """Raise an error if a keyword is neither a parameter nor one of the others, or is missing."""
    for keyword in keywords:
        if keyword not in (names := (*parameters, *others)):
            raise TypeError(unknown_name(f"keyword of {name}", keyword, names))
    for needed, one in parameters.items():
        if one.default is one.empty and needed not in keywords:
            raise TypeError(f"{name}() missing 1 required keyword-only argument: {needed!r}")


def check_numbers(constants: Iterable[Any]) -> None:
    """Raise an error if a number that a solver uses is an array."""
    for c in constants:
        if shape := getattr(c, "shape", ()):
            raise ValueError(
                f"numbers of a solver must be scalars, got shape {list(shape)}; per_step has "
                "one for each step"
            )


def solver(function: Callable) -> Solver:
    r"""Mark a function of the language as a solver, which runs on arrays and compiles to weights.

    The function takes the kernel matrix `K`, the outputs `y` and keywords, and returns
    `(start, step)`: the first values of the states, {name: value}, and a function of all states
    that returns their next values. The state `prediction`, a vector, is the readout. A state that
    starts at a number, such as 0, has the shape of its next value.

    - A *vector* has one number for each support, query and output: `y`, 0 at queries; `K @ v`,
      $k(x)^T v$ at all of them. `v @ w` is a *scalar*, the sum over the supports, for each output.
    - `+` and `-` take two vectors or two scalars, `*` and `/` also a vector and a scalar; `v * w`
      and `v / w` are those of each token. A quotient whose divisor is 0 is 0. A number in a sum is
      this number at each token.
    - Numbers can be traced by JAX, and differ from step to step (`per_step`). A keyword `steps` is
      the number of steps.
    - `K.average @ v` is $D^{-1} K v$ with the row sums $D$ of $K$. `K.features` are the features of
      each token, and `K.inner(a, b) @ v` is $\sum_j \langle a_i, b_j \rangle v_j$ for such
      features.
    - At supports, but not in the prediction: `K.diagonal`, all k(x, x), and `K.normalised(c)`,
      $(D + cI)^{-1} K$, a softmax head with a sink; its `sink` $c / (D + c)$ and `normaliser`
      $(D + c) / c$, as `K.diagonal`, multiply and divide vectors. `K.nystrom(preconditioner) @ v`
      is $F C F^T v$ for an `icl_krr.Nystrom`.
    - A Python `if` on a value, a comparison or another function raises an error with the line.

    Args:
        function: the function (K, y, keywords) -> (start, step).

    >>> import icl_krr as ik, numpy as np
    >>> @ik.solver
    ... def descent(K, y, *, ridge, step_size):
    ...     def step(alpha, r, prediction):
    ...         Kr = K @ r
    ...         return dict(
    ...             alpha=alpha + step_size * r,
    ...             r=r - step_size * (Kr + ridge * r),
    ...             prediction=prediction + step_size * Kr,
    ...         )
    ...     return dict(alpha=0, r=y, prediction=0), step
    >>> task = ik.Task(x=np.ones((1, 1)), y=np.array([3.0]), x_query=np.ones((1, 1)))
    >>> numbers = {"ridge": 1.0, "step_size": 0.25, "steps": 2}
    >>> ik.run(descent, ik.Linear(), task, **numbers).prediction[:, 0].tolist()
    [0.0, 0.75, 1.125]
    >>> model = ik.compile(descent, ik.Linear(), num_features=1, **numbers)
    >>> ik.predict(model, task).tolist(), model.blocks_per_step
    ([1.125], 1)
    """
    return Solver(function)


@struct.dataclass
class KernelArrays:
    """The arrays of a task, on which `icl_krr.solvers._language.arrays.iterates` runs a program.

    Attributes:
        mask: 1 at supports that are not masked [n, 1].
        system: kernel matrices of supports and queries, if the program needs them.
        features: those of supports and queries; 0 at masked supports.
        weights: those of `average` at supports and queries.
    """

    y: Float[Array, "n r"]
    mask: Float[Array, "n 1"]
    x_query: Float[Array, "q p"]
    system: Any = None
    features: tuple[Any, Any] = (None, None)
    weights: tuple[Any, Any] = (None, None)

    def times_gram(self, v):
        if self.system is not None:
            return matmul(self.system.gram, v)
        return matmul(self.features[0], matmul(self.features[0].T, v))

    def number(self, value, part):
        return jnp.asarray(value, self.y.dtype)

    def zeros(self, shape, part):
        width = 1 if shape == ENTRIES else self.y.shape[1]
        width = self.features[0].shape[1] if shape == FEATURES else width
        rows = 1 if shape == SCALAR else len(self.y if part == SUPPORTS else self.x_query)
        return jnp.zeros((rows, width), self.y.dtype)

    def scaling(self, scalar, part):
        return scalar

    def dot(self, a, b):
        return jnp.sum(a * b, axis=0, keepdims=True)

    def compute(self, op: Op, part, args, constants):
        where = 0 if part == SUPPORTS else 1
        if op.kind == "y":
            return self.zeros(VECTOR, part) if where else self.y
        if op.kind == "one":
            return self.zeros(op.shape, part) + (1 if op.shape == SCALAR or where else self.mask)
        if op.kind == "features":
            return self.features[where]
        if op.kind == "average":
            return matmul(self.weights[where], args[0][SUPPORTS])
        if op.kind == "inner":
            a, b, v = args[0][part], args[1][SUPPORTS], args[2][SUPPORTS]
            return matmul(a, matmul(b.T, v))
        if op.kind == "nystrom":
            F, core = constants[0]
            return matmul(F, matmul(core, matmul(F.T, args[0][SUPPORTS])))
        rows = self.system[where]  # the kernel matrix of the supports, or of queries and supports
        if op.kind == "kernel":
            return matmul(rows, args[0][SUPPORTS])
        if op.kind == "diagonal":
            return jnp.diagonal(rows)[:, None]
        c = self.number(constants[0], part)
        sums = jnp.sum(rows, axis=1, keepdims=True) + c
        if op.kind == "smooth":
            return matmul(rows, args[0][SUPPORTS]) / sums
        return c / sums if op.kind == "sink" else sums / c


def _trajectory_status(arrays: KernelArrays, ridge: Any, states: Any, *flags: bool) -> Status:
    return _accuracy.trajectory_status(arrays.system, ridge, states["alpha"], states["r"], *flags)


def run(solver: Solver, kernel: Kernel, task: Task, **keywords: Any) -> Trajectory:
    """Run a solver on a task, and return all its iterates.

    One compiled program serves all numbers. The status is that of the last alpha, judged by its
    residual; it is None for a solver without a ridge or without a state `alpha`.

    Args:
        solver: function with the mark `icl_krr.solver`, such as one of `icl_krr.solvers`.
        keywords: those of the solver, and `steps`.

    >>> import icl_krr as ik
    >>> task = ik.Task(x=[[1.0]], y=[3.0], x_query=[[1.0]])
    >>> path = ik.run(ik.solvers.conjugate_gradient, ik.Linear(), task, steps=1, ridge=2.0)
    >>> path.prediction[:, 0].tolist(), bool(path.status.ok)
    ([0.0, 1.0], True)
    """
    checks.instance("solver", solver, Solver, "a function with the mark icl_krr.solver")
    check_keywords(solver.__name__, solver.parameters, keywords, ())
    parameters = solver.defaults | keywords
    steps = parameters.pop("steps", 1)
    ridge = parameters.get("ridge")
    check_system(kernel, task, 1.0 if ridge is None else ridge, steps, matrices=0)
    program, constants = trace(solver.function, kernel, steps, parameters)
    check_numbers(constants)
    judge = solver.status or _trajectory_status
    by_bounds = "spectrum" in solver.parameters
    if _needs_system(program, ridge, judge):
        check_system(kernel, task, 1.0, steps)
        check_matrices(kernel, task)
    if any(op.kind in NORMALISED for op in program.ops):
        check_positive(kernel)
    constants = tuple(c.values if i in program.per_step else c for i, c in enumerate(constants))
    return warn_unless_ok(iterate(kernel, task, program, steps, constants, ridge, judge, by_bounds))


def _needs_system(program: Program, ridge: Any, judge: Callable) -> bool:
    """Whether the kernel matrix is needed, by a value or by the status."""
    judged = ridge is not None and "alpha" in program.states and judge is _trajectory_status
    return judged or any(op.kind in OF_KERNEL for op in program.ops)


@partial(jax.jit, static_argnames=("program", "steps", "judge", "by_bounds"))
def iterate(kernel, task, program: Program, steps, constants, ridge, judge, by_bounds):
    kinds = {op.kind for op in program.ops}
    x, y = masked_arrays(task)
    mask = support_mask(task)[:, None]
    arrays: Any = KernelArrays(y, jnp.asarray(mask, y.dtype), task.x_query)
    if _needs_system(program, ridge, judge):
        arrays = arrays.replace(system=system(kernel, task))
    if kinds & {"features", "inner"}:
        phi = kernel.feature_map
        arrays = arrays.replace(features=(jnp.where(mask, phi(x), 0), phi(task.x_query)))
    if "average" in kinds:
        at_supports, at_queries = (average(kernel, task, at) for at in (task.x, task.x_query))
        arrays = arrays.replace(weights=(jnp.where(mask, at_supports, 0), at_queries))
    constants = list(constants)
    for k in {k for op in program.ops if op.kind == "nystrom" for k in op.constants}:
        constants[k] = jnp.where(mask, constants[k].features(x), 0), constants[k].core

    def run_program(y, arrays, constants):
        return iterates(program, constants, arrays.replace(y=y), steps)

    degrees = homogeneity(program)
    if degrees is None:
        paths = run_program(y, arrays, constants)
    else:
        paths = rescaled(power_of_two_scale(y, axis=0), run_program, degrees, y, arrays, constants)
    states = dict(zip(program.states, paths, strict=True))
    status = None
    if ridge is not None and "alpha" in states:
        ridge, alpha = jnp.asarray(ridge, y.dtype), states["alpha"]
        if "r" not in states:
            states["r"] = y[None] - arrays.times_gram(alpha) - ridge * alpha
        status = judge(arrays, ridge, states, in_range_of_kernel(program, "alpha"), by_bounds)
    states = jax.tree.map(partial(like, task.y), states)
    fields = {name: states.pop(name, None) for name in ("alpha", "r", "p", "prediction")}
    return Trajectory(**fields, others=states, status=status)
