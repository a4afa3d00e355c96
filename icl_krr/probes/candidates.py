"""The solvers that a model may be running, with the parameters that would have to be known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .. import solvers
from ..kernels import Exponential, Gaussian, Kernel, Linear
from ..tasks import Task, map_tasks, system

Values = dict[str, Any]
ANY = ("linear", "exponential", "gaussian")
POSITIVE, LINEAR = ANY[1:], ANY[:1]


class Box(NamedTuple):
    """Where a parameter is first looked for: 10^low to 10^high times |K|_F^power.

    If `closed` it is never larger than that.
    """

    low: float
    high: float
    power: int = 0
    closed: bool = False


class Candidate(NamedTuple):
    """A solver: `path(kernel, task, values, steps)` gives its predictions [steps + 1, q].

    `parameters` {name: Box} are fitted, beside the kernel's bandwidth. `contains` names solvers
    that it is for certain values of its parameters.
    """

    path: Callable[[Kernel, Task, Values, int], jax.Array]
    parameters: dict[str, Box]
    kernels: tuple[str, ...] = ANY
    contains: tuple[str, ...] = ()


RIDGE, STEP = Box(-5, 0.5, 1), Box(-1.5, 0.7, -1)


def iterative(name: str, parameters: dict[str, Box], *rest: Any, **more: Any) -> Candidate:
    """A solver whose arguments are its parameters."""
    solver = getattr(solvers, name)

    def path(kernel: Kernel, task: Task, v: Values, steps: int) -> jax.Array:
        own = {parameter: v[parameter] for parameter in parameters}
        return solver(kernel, task, **own, steps=steps).prediction

    return Candidate(path, parameters, *rest, **more)


def chebyshev(kernel: Kernel, task: Task, v: Values, steps: int) -> jax.Array:
    spectrum = (v["low_over_high"] * v["high"], v["high"])
    return solvers.chebyshev(
        kernel, task, ridge=v["ridge"], spectrum=spectrum, steps=steps
    ).prediction


def newton_schulz(kernel: Kernel, task: Task, v: Values, steps: int) -> jax.Array:
    spectrum = (1 / v["scale"], 1 / v["scale"])
    return solvers.newton_schulz(
        kernel, task, ridge=v["ridge"], spectrum=spectrum, steps=steps
    ).prediction


def nadaraya_watson(kernel: Kernel, task: Task, v: Values, steps: int) -> jax.Array:
    smooth = solvers.nadaraya_watson(kernel, task).prediction
    return jnp.stack([0 * smooth, *[smooth] * steps])


CANDIDATES = {
    "nadaraya-watson": Candidate(nadaraya_watson, {}, POSITIVE),
    "gradient-descent": iterative("gradient_descent", {"ridge": RIDGE, "step_size": STEP}),
    "gradient-descent-in-alpha": iterative(
        "gradient_descent_in_alpha", {"ridge": RIDGE, "step_size": Box(-1.5, 1.3, -2)}
    ),
    "richardson": iterative(
        "richardson", {"ridge": RIDGE, "step_size": Box(-1, 0.3, closed=True)}, POSITIVE
    ),
    "heavy-ball": iterative(
        "heavy_ball",
        {"ridge": RIDGE, "step_size": STEP, "momentum": Box(-2, 0, closed=True)},
        contains=("gradient-descent",),
    ),
    "chebyshev": Candidate(
        chebyshev,
        {"ridge": RIDGE, "high": Box(-1, 0.5, 1), "low_over_high": Box(-5, 0, closed=True)},
        contains=("gradient-descent",),
    ),
    "conjugate-gradient": iterative("conjugate_gradient", {"ridge": RIDGE}),
    "preconditioned-conjugate-gradient": iterative(
        "preconditioned_conjugate_gradient", {"ridge": RIDGE}
    ),
    "newton-schulz": Candidate(
        newton_schulz, {"ridge": RIDGE, "scale": Box(-1.5, 0.5, -1)}, LINEAR
    ),
}


BANDWIDTHS = {"exponential": "temperature", "gaussian": "lengthscale"}


def parameters(candidate: Candidate, kernel: str) -> dict[str, Box]:
    """All that is fitted, the bandwidth first: relative to the size of logits or distances."""
    own = {BANDWIDTHS[kernel]: Box(-1.2, 1.2)} if kernel in BANDWIDTHS else {}
    return own | candidate.parameters


def limits(candidate: Candidate, kernel: str) -> np.ndarray:
    """The largest logarithm of each parameter."""
    boxes = parameters(candidate, kernel).values()
    return np.array([np.log(10) * box.high if box.closed else np.inf for box in boxes])


def make(kernel: str, values: Values) -> Kernel:
    if kernel == "exponential":
        return Exponential(values["temperature"])
    if kernel == "gaussian":
        return Gaussian(values["lengthscale"])
    return Linear()


def absolute(
    candidate: Candidate, kernel: str, relative: Float[Array, " k"], tasks: Task
) -> Float[Array, " k"]:
    """Logarithms of the parameters, from a point of the unit cube and the size of the tasks."""
    boxes = parameters(candidate, kernel)
    logs = {
        name: jnp.log(10.0) * (box.low + (box.high - box.low) * at)
        for (name, box), at in zip(boxes.items(), relative, strict=True)
    }
    if kernel in BANDWIDTHS:
        logs[BANDWIDTHS[kernel]] += jnp.log(spread(kernel, tasks))
    of_kernel = make(kernel, {name: jnp.exp(value) for name, value in logs.items()})
    norms = map_tasks(lambda t: jnp.sqrt(jnp.mean(system(of_kernel, t).gram ** 2)), tasks)
    size = jnp.log(jnp.mean(norms) * tasks.num_supports)
    return jnp.stack([logs[name] + box.power * size for name, box in boxes.items()])


def spread(kernel: str, tasks: Task) -> jax.Array:
    """Root mean square of <x, z> over pairs of supports, or of |x - z| / sqrt(2)."""

    def of_task(task: Task) -> jax.Array:
        products = system(Linear(), task).gram
        squares = jnp.diagonal(products)
        distances = (squares[:, None] + squares[None, :]) / 2 - products
        return jnp.mean(products**2 if kernel == "exponential" else distances)

    return jnp.sqrt(jnp.mean(map_tasks(of_task, tasks)))


def solve(
    candidate: Candidate, kernel: str, logs: Float[Array, " k"], task: Task, steps: int
) -> Float[Array, "steps q"]:
    """The candidate's predictions of one task for the logarithms of its parameters."""
    values = dict(zip(parameters(candidate, kernel), jnp.exp(logs), strict=True))
    return candidate.path(make(kernel, values), task, values, steps)
