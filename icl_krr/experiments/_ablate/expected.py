"""What an algorithm computes when a part is missing: each solver again, as plain linear algebra.

`head` wraps the value that a head adds to a slot, and `slot` wraps the value of a slot.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ... import Exponential, Kernel
from ..._core import step_sizes
from ..._core.numerics import matmul
from ...residual._tokens import centre
from ...tasks import Task, map_tasks, system

State = tuple[jax.Array, ...]


class Without(NamedTuple):
    """The part `names[index]` that is replaced by zero; one program, as the index is traced."""

    names: tuple[str, ...]
    index: Any

    def head(self, slot: str, added: jax.Array) -> jax.Array:
        return jnp.where(self.lacks(f"head {slot}"), 0, added)

    def slot(self, name: str, value: jax.Array) -> jax.Array:
        return jnp.where(self.lacks(f"slot {name}"), 0, value)

    def lacks(self, name: str) -> Any:
        return self.index == self.names.index(name) if name in self.names else False


def products(kernel: Kernel, task: Task, w: Without) -> tuple[Any, Any, jax.Array]:
    """The functions v -> K v and v -> k(x)^T v, and y. If slot x is missing, all inputs are 0."""
    task = task.replace(x=w.slot("x", task.x), x_query=w.slot("x", task.x_query))
    gram, cross, y = system(kernel, task)
    if "slot half_square" in w.names:
        # without |x|^2 / 2 the attention weights of the head are exp(<x, z> c) of the centred x
        c, _ = kernel.coefficients(task.x.dtype)  # pyright: ignore[reportAttributeAccessIssue]
        other = system(Exponential(1 / c, kernel.projection), centre(task))  # pyright: ignore[reportAttributeAccessIssue]
        missing = w.lacks("slot half_square")
        gram, cross = jnp.where(missing, other.gram, gram), jnp.where(missing, other.cross, cross)
    return lambda v: matmul(gram, v), lambda v: matmul(cross, v), y


def over(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.where(b == 0, 0, a / jnp.where(b == 0, 1, b))


def conjugate_gradient(kernel: Kernel, task: Task, w: Without, ridge: Any, steps: int) -> jax.Array:
    K, k, y = products(kernel, task, w)
    r, p = w.slot("r", y), w.slot("p", y)
    rr = w.slot("rr", w.head("rr", jnp.sum(r * r)))

    def step(state: State, _: None) -> tuple[State, None]:
        r, p, rr, prediction = state
        Kp, kp = (w.slot("K_p", w.head("K_p", product(p))) for product in (K, k))
        Ap = w.slot("Ap", Kp + ridge * p)
        pAp = w.slot("pAp", w.head("pAp", jnp.sum(p * Ap)))
        gamma = w.slot("gamma", over(rr, pAp))
        r = w.slot("r", r + w.head("r", -gamma * Ap))
        prediction = w.slot("prediction", prediction + w.head("prediction", gamma * kp))
        rr_next = w.slot("rr_next", w.head("rr_next", jnp.sum(r * r)))
        beta = w.slot("beta", over(rr_next, rr))
        p_last = w.slot("p_last", p)
        p = w.slot("p", r + w.head("p", beta * p_last))
        return (r, p, w.slot("rr", rr_next), prediction), None

    (*_, prediction), _ = jax.lax.scan(step, (r, p, rr, 0 * k(y)), length=steps)
    return prediction


def chebyshev(
    kernel: Kernel, task: Task, w: Without, ridge: Any, steps: int, spectrum: Any
) -> jax.Array:
    K, k, y = products(kernel, task, w)
    first, a, b = step_sizes.chebyshev(steps, spectrum)
    r, p = w.slot("r", y), w.slot("p", first * y)

    def step(state: State, coefficients: State) -> tuple[State, None]:
        (r, p, prediction), (a, b) = state, coefficients
        Kp, kp = (w.slot("mean_p", w.head("mean_p", product(p))) for product in (K, k))
        Ap = w.slot("normaliser_support", Kp) + ridge * p
        prediction = w.slot("prediction", prediction + w.slot("normaliser_query", kp))
        p = w.slot("p", a * p + b * (r - Ap))
        return (w.slot("r", r - Ap), p, prediction), None

    (*_, prediction), _ = jax.lax.scan(step, (r, p, 0 * k(y)), (a, b))
    return prediction / w.slot("sink", w.head("sink", jnp.ones(())))


def richardson(kernel: Kernel, task: Task, w: Without, ridge: Any, steps: int) -> jax.Array:
    K, k, y = products(kernel, task, w)
    y, normaliser = w.slot("y", y), K(jnp.ones_like(y)) + ridge
    alpha = w.slot("next_alpha", y / normaliser)

    def step(state: State, _: None) -> tuple[State, None]:
        alpha = state[0]
        Kv, kv = (w.slot("smoothed", w.head("smoothed", product(alpha))) for product in (K, k))
        prediction = w.slot("prediction", w.slot("normaliser_query", kv))
        alpha = w.slot("next_alpha", alpha + (y - ridge * alpha - Kv) / normaliser)
        return (alpha, prediction), None

    (_, prediction), _ = jax.lax.scan(step, (alpha, 0 * k(y)), length=steps)
    return prediction / w.slot("sink", w.head("sink", jnp.ones(())))


class Expectation(NamedTuple):
    """The expected predictions without one part. Flags of tokens are in no algorithm."""

    compute: Callable[..., jax.Array]  # runs the algorithm without a part
    kernel: str  # the kernel for which the expectations are valid
    words: dict[str, str]  # expected effect of each missing part, such as "head p", in words

    def predictions(self, kernel: Kernel, tasks: Task, **needs: Any) -> dict[str, jax.Array]:
        """Predictions for b tasks without each part: {part: [b, q]}."""
        names = tuple(self.words)

        @jax.jit
        def every(tasks: Task) -> jax.Array:
            def run(i: jax.Array, task: Task) -> jax.Array:
                return self.compute(kernel, task, Without(names, i), **needs)[:, 0]

            return jax.lax.map(lambda i: map_tasks(partial(run, i), tasks), jnp.arange(len(names)))

        return dict(zip(names, every(tasks), strict=True))


NOTHING, ZERO = "no effect: no prediction reads it", "f = 0"
NO_NUMBER = "NaN or infinite: division by 0"
CONJUGATE = Expectation(
    conjugate_gradient,
    "linear",
    {
        **dict.fromkeys(("head p", "slot beta", "slot p_last"), "no term beta p: steepest descent"),
        "head r": "r stays equal to y",
        "slot r": "r = 0: gamma = 0, f = 0",
        **dict.fromkeys(("head rr_next", "slot rr_next"), "one step, then gamma = 0"),
        **dict.fromkeys(("head K_p", "slot K_p", "slot p"), ZERO),
        **dict.fromkeys(("head prediction", "slot prediction"), ZERO),
        "slot x": "all inputs are 0: K = 0, f = 0",
        **dict.fromkeys(("head alpha", "slot alpha", "slot y"), NOTHING),
        "head rr": "first gamma = 0: one step is lost",
        **dict.fromkeys(("slot rr", "slot Ap", "slot gamma"), "gamma = 0, f = 0"),
        **dict.fromkeys(("head pAp", "slot pAp"), "gamma = 0, f = 0"),
    },
)
CHEBYSHEV = Expectation(
    chebyshev,
    "exponential",
    {
        "slot r": "r = 0: p becomes a p - b A p",
        "slot normaliser_support": "K p = 0 at the supports: A p = ridge p",
        "slot x": "all inputs are 0: K = 1 everywhere",
        **dict.fromkeys(("slot alpha", "slot y"), NOTHING),
        **dict.fromkeys(("head mean_p", "slot mean_p", "slot p"), ZERO),
        **dict.fromkeys(("slot normaliser_query", "slot prediction"), ZERO),
        **dict.fromkeys(("head sink", "slot sink"), NO_NUMBER),
    },
)
RICHARDSON = Expectation(
    richardson,
    "gaussian",
    {
        "slot half_square": "the kernel becomes exponential: exp(<x, z> / l^2)",
        "slot x": "all inputs are 0: K = 1 everywhere",
        "slot alpha": NOTHING,
        **dict.fromkeys(("head smoothed", "slot smoothed", "slot next_alpha", "slot y"), ZERO),
        **dict.fromkeys(("slot normaliser_query", "slot prediction"), ZERO),
        **dict.fromkeys(("head sink", "slot sink"), NO_NUMBER),
    },
)

EXPECTED = {"conjugate_gradient": CONJUGATE, "chebyshev": CHEBYSHEV, "richardson": RICHARDSON}
"""{solver of the catalogue: its expected predictions}; other solvers have none."""
