"""The solvers as plain code, ten lines of jnp each, which is the floor of the benchmark.

The code has no checks, scales no inputs and stores no iterates. Conjugate gradient divides by at
least `TINY`, because it reaches 0 / 0 some steps after convergence. This takes no measurable time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..catalogue import name_of
from ..kernels import Kernel
from ..tasks import Task
from .peers import Programs

TINY = float(jnp.finfo(jnp.float32).tiny)
CHUNKS = (4096, 16384)
"""Numbers of supports in a chunk: those of 64 and of 256 tasks with n = 64."""


class System(NamedTuple):
    """One task with its kernel: `K` maps v [n] to K v [n], `k` maps v to its prediction [q]."""

    task: Task
    K: Callable[[jax.Array], jax.Array]
    k: Callable[[jax.Array], jax.Array]
    diagonal: jax.Array


def exponential(kernel: Any, x: jax.Array, z: jax.Array) -> jax.Array:
    return jnp.exp(x @ z.T / kernel.temperature)


def gaussian(kernel: Any, x: jax.Array, z: jax.Array) -> jax.Array:
    squares = jnp.sum(x * x, axis=1)[:, None] + jnp.sum(z * z, axis=1)[None] - 2 * x @ z.T
    return jnp.exp(-squares / (2 * kernel.lengthscale**2))


GRAMS = {"linear": lambda _, x, z: x @ z.T, "exponential": exponential, "gaussian": gaussian}
"""{row of the catalogue: plain code for the kernel matrix}."""


def formed(kernel: Kernel, task: Task) -> System:
    """Form the Gram matrix."""
    gram = GRAMS[name_of(kernel)]
    K, k = gram(kernel, task.x, task.x), gram(kernel, task.x_query, task.x)
    return System(task, lambda v: K @ v, lambda v: k @ v, jnp.diagonal(K))


def factored(_: Kernel, task: Task) -> System:
    """Multiply by the Gram matrix of the linear kernel as K v = X (X^T v)."""
    X = task.x
    return System(
        task, lambda v: X @ (X.T @ v), lambda v: task.x_query @ (X.T @ v), jnp.sum(X * X, axis=1)
    )


def conjugate_gradient(system: System, ridge: Any, steps: int) -> jax.Array:
    def step(state: Any, _: None) -> Any:
        alpha, r, p, rr = state
        Ap = system.K(p) + ridge * p
        gamma = rr / jnp.maximum(p @ Ap, TINY)
        alpha, r = alpha + gamma * p, r - gamma * Ap
        rr, last = r @ r, rr
        return (alpha, r, r + rr / jnp.maximum(last, TINY) * p, rr), None

    y = system.task.y
    (alpha, *_), _ = jax.lax.scan(step, (jnp.zeros_like(y), y, y, y @ y), length=steps)
    return system.k(alpha)


def preconditioned_conjugate_gradient(system: System, ridge: Any, steps: int) -> jax.Array:
    M = system.diagonal + ridge

    def step(state: Any, _: None) -> Any:
        alpha, r, p, rz = state
        Ap = system.K(p) + ridge * p
        gamma = rz / jnp.maximum(p @ Ap, TINY)
        alpha, r = alpha + gamma * p, r - gamma * Ap
        z = r / M
        rz, last = r @ z, rz
        return (alpha, r, z + rz / jnp.maximum(last, TINY) * p, rz), None

    y = system.task.y
    z = y / M
    (alpha, *_), _ = jax.lax.scan(step, (jnp.zeros_like(y), y, z, y @ z), length=steps)
    return system.k(alpha)


def chebyshev(system: System, ridge: Any, steps: int, spectrum: Any) -> jax.Array:
    theta, delta = sum(spectrum) / 2, (spectrum[1] - spectrum[0]) / 2
    rho = [delta / theta]
    for _ in range(steps):
        rho.append(1 / (2 * theta / delta - rho[-1]))
    rho = jnp.array(rho)

    def step(state: Any, coefficients: Any) -> Any:
        (alpha, r, p), (mu, eta) = state, coefficients
        alpha, r = alpha + p, r - system.K(p) - ridge * p
        return (alpha, r, mu * p + eta * r), None

    y = system.task.y
    start = jnp.zeros_like(y), y, y / theta
    (alpha, *_), _ = jax.lax.scan(step, start, (rho[1:] * rho[:-1], 2 * rho[1:] / delta))
    return system.k(alpha)


def heavy_ball(system: System, ridge: Any, steps: int, spectrum: Any) -> jax.Array:
    low, high = (bound**0.5 for bound in spectrum)
    eta, mu = 4 / (low + high) ** 2, ((high - low) / (high + low)) ** 2

    def step(state: Any, _: None) -> Any:
        alpha, r, p = state
        alpha, r = alpha + p, r - system.K(p) - ridge * p
        return (alpha, r, mu * p + eta * r), None

    y = system.task.y
    (alpha, *_), _ = jax.lax.scan(step, (jnp.zeros_like(y), y, eta * y), length=steps)
    return system.k(alpha)


def gradient_descent(system: System, ridge: Any, steps: int, spectrum: Any) -> jax.Array:
    y, eta = system.task.y, 2 / sum(spectrum)

    def step(alpha: jax.Array, _: None) -> Any:
        return alpha + eta * (y - system.K(alpha) - ridge * alpha), None

    return system.k(jax.lax.scan(step, jnp.zeros_like(y), length=steps)[0])


def richardson(system: System, ridge: Any, steps: int) -> jax.Array:
    y = system.task.y
    scale = 1 / (system.K(jnp.ones_like(y)) + ridge)

    def step(alpha: jax.Array, _: None) -> Any:
        return alpha + scale * (y - system.K(alpha) - ridge * alpha), None

    return system.k(jax.lax.scan(step, jnp.zeros_like(y), length=steps)[0])


def newton_schulz(system: System, ridge: Any, steps: int, spectrum: Any) -> jax.Array:
    x, y, at = system.task.x, system.task.y, system.task.x_query
    eye = jnp.eye(x.shape[1], dtype=x.dtype)
    C = x.T @ x + ridge * eye
    V, _ = jax.lax.scan(
        lambda V, _: (2 * V - V @ C @ V, None), 2 / sum(spectrum) * eye, length=steps
    )
    return at @ (V @ (x.T @ y))


SOLVERS: dict[str, Callable[..., jax.Array]] = {
    "conjugate_gradient": conjugate_gradient,
    "fused_conjugate_gradient": conjugate_gradient,
    "pipelined_conjugate_gradient": conjugate_gradient,
    "jacobi_conjugate_gradient": preconditioned_conjugate_gradient,
    "chebyshev": chebyshev,
    "heavy_ball": heavy_ball,
    "gradient_descent": gradient_descent,
    "richardson": richardson,
    "newton_schulz": newton_schulz,
}
"""{row of the catalogue: plain code for the same predictions}."""


def over_tasks(one: Callable[[Task], Any], tasks: Task) -> dict[str, Callable[[Task], Any]]:
    """Ways to apply a function to a batch of tasks, by name."""
    chunks = {
        f"chunks of {size}": lambda tasks, size=size: jax.lax.map(one, tasks, batch_size=size)
        for size in (supports // tasks.num_supports for supports in CHUNKS)
        if 0 < size < len(tasks.x)
    }
    return {"vmap": jax.vmap(one), **chunks}


def plain_predictions(
    kernel: Kernel, tasks: Task, solver: str, options: dict[str, Any]
) -> Programs:
    """Programs for the predictions of a batch of tasks [b, q], by name."""
    forms = {"plain": formed}
    if kernel.featured:
        forms = {"plain, K v = X (X^T v)": factored, "plain, K formed": formed}
    if solver == "newton_schulz":
        forms = {"plain": factored}
    programs: Programs = {}
    for form, system in forms.items():

        def solve(task: Task, system: Callable[..., System] = system) -> jax.Array:
            return SOLVERS[solver](system(kernel, task), **options)

        for way, run in over_tasks(solve, tasks).items():
            programs[f"{form}, {way}"] = partial(jax.jit(run), tasks)
    return programs
