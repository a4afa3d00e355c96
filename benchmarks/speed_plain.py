"""The solvers as plain code, ten lines of jnp each, which is the floor of the benchmark.

The code has no checks, scales no inputs and stores no iterates. Conjugate gradient divides by at
least `TINY`, because it reaches 0 / 0 some steps after convergence. This takes no measurable time.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from benchmarks.contests import Programs
from icl_krr import solvers
from icl_krr.catalogue import SOLVERS as ROWS
from icl_krr.kernels import Kernel, name_of
from icl_krr.tasks import Task

TINY = float(jnp.finfo(jnp.float32).tiny)
CHUNKS = (4096, 16384)
"""Numbers of supports in a chunk: those of 64 and of 256 tasks with n = 64."""


class System(NamedTuple):
    """One task with its kernel: `K` maps v [n] to K v [n], `k` maps v to its prediction [q]."""

    task: Task
    K: Callable[[jax.Array], jax.Array]
    k: Callable[[jax.Array], jax.Array]
    diagonal: jax.Array

    def run(self, step: Callable, *start: Any, steps: int | None = None, each: Any = None) -> Any:
        """The predictions from alpha, the first part of the state, after all steps."""
        take = lambda state, coefficients: (step(coefficients, *state), None)  # noqa: E731
        state, _ = jax.lax.scan(take, (jnp.zeros_like(self.task.y), *start), each, length=steps)
        return self.k(state[0])


def gram(kernel: Any, x: jax.Array, z: jax.Array) -> jax.Array:
    name = name_of(kernel)
    if name == "linear":
        return x @ z.T
    if name == "exponential":
        return jnp.exp(x @ z.T / kernel.temperature)
    squares = jnp.sum(x * x, axis=1)[:, None] + jnp.sum(z * z, axis=1)[None] - 2 * x @ z.T
    return jnp.exp(-squares / (2 * kernel.lengthscale**2))


def formed(kernel: Kernel, task: Task) -> System:
    """Form the Gram matrix."""
    K, k = gram(kernel, task.x, task.x), gram(kernel, task.x_query, task.x)
    return System(task, lambda v: K @ v, lambda v: k @ v, jnp.diagonal(K))


def factored(_: Kernel, task: Task) -> System:
    """Multiply by the Gram matrix of the linear kernel as K v = X (X^T v)."""
    X, at = task.x, task.x_query
    return System(task, lambda v: X @ (X.T @ v), lambda v: at @ (X.T @ v), jnp.sum(X * X, axis=1))


def conjugate_gradient(system: System, ridge: Any, steps: int, jacobi: bool = False) -> jax.Array:
    precondition = (lambda r: r / (system.diagonal + ridge)) if jacobi else lambda r: r

    def step(_: None, alpha: Any, r: Any, p: Any, rz: Any) -> Any:
        Ap = system.K(p) + ridge * p
        gamma = rz / jnp.maximum(p @ Ap, TINY)
        alpha, r = alpha + gamma * p, r - gamma * Ap
        z = precondition(r)
        rz, last = r @ z, rz
        return alpha, r, z + rz / jnp.maximum(last, TINY) * p, rz

    y, z = system.task.y, precondition(system.task.y)
    return system.run(step, y, z, y @ z, steps=steps)


def chebyshev(system: System, ridge: Any, steps: int, spectrum: Any) -> jax.Array:
    theta, delta = sum(spectrum) / 2, (spectrum[1] - spectrum[0]) / 2
    rho = [delta / theta]
    for _ in range(steps):
        rho.append(1 / (2 * theta / delta - rho[-1]))
    rho, y = jnp.array(rho), system.task.y
    each = rho[1:] * rho[:-1], 2 * rho[1:] / delta
    return system.run(partial(momentum, system, ridge), y, y / theta, each=each)


def heavy_ball(system: System, ridge: Any, steps: int, spectrum: Any) -> jax.Array:
    low, high = (bound**0.5 for bound in spectrum)
    eta, mu = 4 / (low + high) ** 2, ((high - low) / (high + low)) ** 2
    step = lambda _, *state: momentum(system, ridge, (mu, eta), *state)  # noqa: E731
    return system.run(step, system.task.y, eta * system.task.y, steps=steps)


def momentum(system: System, ridge: Any, coefficients: Any, alpha: Any, r: Any, p: Any) -> Any:
    (mu, eta), alpha, r = coefficients, alpha + p, r - system.K(p) - ridge * p
    return alpha, r, mu * p + eta * r


def gradient_descent(system: System, ridge: Any, steps: int, spectrum: Any) -> jax.Array:
    return descent(system, ridge, steps, 2 / sum(spectrum))


def richardson(system: System, ridge: Any, steps: int) -> jax.Array:
    return descent(system, ridge, steps, 1 / (system.K(jnp.ones_like(system.task.y)) + ridge))


def descent(system: System, ridge: Any, steps: int, size: Any) -> jax.Array:
    y, K = system.task.y, system.K
    step = lambda _, alpha: (alpha + size * (y - K(alpha) - ridge * alpha),)  # noqa: E731
    return system.run(step, steps=steps)


def newton_schulz(system: System, ridge: Any, steps: int, spectrum: Any) -> jax.Array:
    x, y, at = system.task.x, system.task.y, system.task.x_query
    eye = jnp.eye(x.shape[1], dtype=x.dtype)
    C = x.T @ x + ridge * eye
    step = lambda V, _: (2 * V - V @ C @ V, None)  # noqa: E731
    return at @ (jax.lax.scan(step, 2 / sum(spectrum) * eye, length=steps)[0] @ (x.T @ y))


SOLVERS: dict[str, Callable[..., jax.Array]] = {
    "conjugate_gradient": conjugate_gradient,
    "fused_conjugate_gradient": conjugate_gradient,
    "pipelined_conjugate_gradient": conjugate_gradient,
    "jacobi_conjugate_gradient": partial(conjugate_gradient, jacobi=True),
    "chebyshev": chebyshev,
    "heavy_ball": heavy_ball,
    "gradient_descent": gradient_descent,
    "richardson": richardson,
    "newton_schulz": newton_schulz,
}
"""{row of the catalogue: plain code for the same predictions}; other rows have their oracle."""


def over_tasks(one: Callable[[Task], Any], tasks: Task) -> dict[str, Callable[[Task], Any]]:
    """Ways to apply a function to a batch of tasks, by name."""
    chunks = {
        f"chunks of {size}": lambda tasks, size=size: jax.lax.map(one, tasks, batch_size=size)
        for size in (supports // tasks.num_supports for supports in CHUNKS)
        if 0 < size < len(tasks.x)
    }
    return {"vmap": jax.vmap(one), **chunks}


def plain_predictions(kernel: Kernel, tasks: Task, solver: str, kwargs: dict[str, Any]) -> Programs:
    """Programs for the predictions of a batch of tasks [b, q], by name."""
    forms, row = {"plain": formed}, ROWS[solver]
    if kernel.featured:
        forms = {"plain, K v = X (X^T v)": factored, "plain, K formed": formed}
    if solver == "newton_schulz":
        forms = {"plain": factored}
    if solver not in SOLVERS:
        forms = {"oracle": formed}
    programs: Programs = {}
    for form, system in forms.items():

        def solve(task: Task, system: Callable[..., System] = system) -> jax.Array:
            if solver not in SOLVERS:
                return solvers.lookup(row)(kernel, task, **row.options, **kwargs).prediction[-1]

            def of_output(y: jax.Array) -> jax.Array:
                output = task.replace(y=y, y_query=None)
                return SOLVERS[solver](system(kernel, output), **kwargs)

            return jax.vmap(of_output, -1, -1)(task.y) if task.y.ndim > 1 else of_output(task.y)

        for way, run in over_tasks(solve, tasks).items():
            programs[f"{form}, {way}"] = partial(jax.jit(run), tasks)
    return programs
