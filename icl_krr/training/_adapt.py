"""Fit the parameters of a construction, or all weights of a model, with a gradient method."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from .._core import checks
from .._core.readable import readable
from ..catalogue import METHODS
from ._loop import Diverged
from ._objectives import Objective, as_pytree


@readable
class Moved(NamedTuple):
    """A parameter before and after a fit.

    Attributes:
        name: name of the parameter in its pytree, such as "ridge".
        shape: shape of the parameter; () for a number.
        start: value before the fit, or the Frobenius norm of an array.
        fitted: the same after the fit.
        change: $|fitted - start| / |start|$, or $|fitted|$ if the start is 0.
    """

    name: str
    shape: tuple[int, ...]
    start: float
    fitted: float
    change: float


@readable
class Adapted(NamedTuple):
    """Result of `adapt`.

    `str(result)` is a table of the parameters before and after the fit.

    Attributes:
        parameters: parameters of least loss.
        losses: loss at the start and after every iteration.
        moved: one `Moved` for each leaf of the parameters.
        stopped: why there are fewer iterations than requested; empty if all were done.
    """

    parameters: Any
    losses: list[float]
    moved: list[Moved]
    stopped: str = ""

    def __str__(self) -> str:
        width = max(len("parameter"), *(len(row.name) for row in self.moved))
        lines = [f"{'parameter':<{width}} {'start':>11} {'fitted':>11} {'change':>9}"]
        for name, _, start, fitted, change in self.moved:
            lines.append(f"{name:<{width}} {start:>11.5g} {fitted:>11.5g} {change:>9.2g}")
        return "\n".join(lines)


def adapt(
    objective: Objective,
    parameters: Any,
    *,
    positive: tuple[str, ...] = (),
    method: str = "adam",
    iterations: int = 200,
    learning_rate: float = 0.05,
    progress: Callable[[int, float], None] = lambda iteration, loss: None,
) -> Adapted:
    """Minimise an objective over parameters with a gradient method.

    All iterations share one compiled step. If the loss becomes NaN or infinite, the fit stops and
    returns the best parameters so far. The field `stopped` then contains the reason.

    Args:
        objective: function from parameters to a scalar loss, such as `held_out(...)`.
        parameters: pytree of floating-point numbers and arrays at which the fit starts. Examples:
            {"temperature": 0.3, "ridge": 0.1}, a projection, a sketch, a whole `Transformer`.
        positive: names of parameters that must stay > 0. Their logarithms are fitted. The names are
            those in the field `moved` of the result.
        method: "adam" or "lbfgs". L-BFGS finds its step size with a line search, and stops if this
            search no longer lowers the loss.
        iterations: largest number of iterations.
        learning_rate: learning rate of Adam. L-BFGS does not use it.
        progress: function that is called as `progress(iteration, loss)`, at the start with
            iteration 0 and after every iteration.

    Raises:
        Diverged: the loss at the start is NaN or infinite.

    Source: Kingma, Ba, Adam, ICLR 2015; Liu, Nocedal, On the limited memory BFGS method, 1989.

    >>> loss = lambda at: (jnp.log(at["ridge"] / 3.0)) ** 2
    >>> found = adapt(loss, {"ridge": 1.0}, positive=("ridge",), method="lbfgs", iterations=20)
    >>> round(float(found.parameters["ridge"]), 4)
    3.0
    >>> print(found)
    parameter       start      fitted    change
    ridge               1           3         2
    """
    checks.choice("method", method, METHODS)
    checks.count("iterations", iterations)
    checks.positive_scalar("learning_rate", learning_rate)
    checks.function("objective", objective)
    checks.names("positive", positive)
    for leaf in jax.tree.leaves(parameters):
        checks.numeric("parameters", leaf)
    start = jax.tree.map(jnp.asarray, parameters)
    if not jax.tree.leaves(start):
        raise ValueError(f"parameters must have at least one leaf, got {parameters!r}")
    free = in_logarithm(start, positive)
    optimiser = optax.lbfgs() if method == "lbfgs" else optax.adam(learning_rate)
    step = compiled_step(positive, optimiser)
    objective = as_pytree(objective)
    state, best, losses, stopped = optimiser.init(free), free, [], ""
    for iteration in range(iterations + 1):  # the last one only evaluates the loss
        moved, state, value = step(free, state, objective)
        value = float(value)
        if not math.isfinite(value):
            if not losses:
                raise Diverged(f"loss must be finite at the start, got {value}")
            stopped = (
                f"loss is {value} at iteration {iteration}; the best earlier parameters are kept"
            )
            break
        ends = method == "lbfgs" and bool(losses) and not value < losses[-1]
        if not losses or value < min(losses):
            best = free
        losses.append(value)
        progress(iteration, value)
        if ends and iteration < iterations:
            stopped = f"the line search finds no lower loss after iteration {iteration}"
            break
        free = moved
    fitted = out_of_logarithm(best, positive)
    return Adapted(fitted, losses, what_moved(start, fitted), stopped)


def compiled_step(positive: tuple[str, ...], optimiser: Any) -> Callable:
    """One compiled step. L-BFGS reuses the value and the gradient of its last line search."""
    optimiser = optax.with_extra_args_support(optimiser)

    @jax.jit
    def step(free: Any, state: Any, objective: Callable) -> tuple[Any, Any, Any]:
        def loss(free: Any) -> jax.Array:
            return objective(out_of_logarithm(free, positive))

        searched = optax.value_and_grad_from_state(loss)
        if optax.tree_utils.tree_get(state, "value") is None:
            value, slope = jax.value_and_grad(loss)(free)
        else:
            value, slope = searched(free, state=state)
        search = {"value": value, "grad": slope, "value_fn": loss}
        updates, state = optimiser.update(slope, state, free, **search)
        return optax.apply_updates(free, updates), state, value

    return step


def parameter_names(parameters: Any) -> list[str]:
    pairs = jax.tree_util.tree_leaves_with_path(parameters)
    return [jax.tree_util.keystr(at, simple=True, separator=".") or "parameters" for at, _ in pairs]


def in_logarithm(parameters: Any, positive: tuple[str, ...]) -> Any:
    """Check the parameters, and replace those in `positive` by their logarithms."""
    names = parameter_names(parameters)
    for name in positive:
        checks.choice("positive", name, tuple(names))
    for name, leaf in zip(names, jax.tree.leaves(parameters), strict=True):
        checks.floating(name, leaf)
        checks.finite(name, leaf)
        if name in positive:
            checks.positive(name, leaf)
    return on_named_leaves(jnp.log, parameters, positive)


def out_of_logarithm(free: Any, positive: tuple[str, ...]) -> Any:
    return on_named_leaves(jnp.exp, free, positive)


def on_named_leaves(function: Callable, tree: Any, positive: tuple[str, ...]) -> Any:
    leaves, structure = jax.tree.flatten(tree)
    return structure.unflatten(
        function(leaf) if name in positive else leaf
        for name, leaf in zip(parameter_names(tree), leaves, strict=True)
    )


def what_moved(start: Any, fitted: Any) -> list[Moved]:
    rows = []
    columns = map(jax.tree.leaves, (start, fitted))
    for name, old, new in zip(parameter_names(start), *columns, strict=True):
        old, new = np.asarray(old, float), np.asarray(new, float)
        size = float(np.linalg.norm(old))
        distance = float(np.linalg.norm(new - old))
        sizes = (float(old), float(new)) if old.ndim == 0 else (size, float(np.linalg.norm(new)))
        rows.append(Moved(name, old.shape, *sizes, distance / size if size > 0 else distance))
    return rows
