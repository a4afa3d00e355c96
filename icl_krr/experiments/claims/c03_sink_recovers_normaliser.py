"""C3: a sink token recovers the normaliser of the softmax."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from ... import constructions, theory
from ...constructions import Softmax
from ...kernels import Exponential
from ...linalg import solve
from ...numerics import matmul
from ...tasks import GaussianProcess, Task, sample
from ...transformer import predict
from ..shared.draws import draws
from ..shared.rows import Plot, Rows, tidy
from .claim import HOLDS, TASK, Claim, Verdict, at_least, compare, judge

DTYPES = ("float32", "float64")


@dataclass(frozen=True)
class Config:
    draws: int = 50
    num_supports: int = 64
    num_features: int = 3
    temperatures: tuple[float, ...] = (0.5, 1.0, 10.0)
    shifts: tuple[float, ...] = (-20.0, 0.0, 20.0)


def run(config: Config, key: jax.Array) -> tuple[Rows, Verdict]:
    grid = jnp.asarray(config.temperatures), jnp.asarray(config.shifts)
    errors, bounds, top, shifted, by_row = measure(draws(key, config.draws), *grid, config)
    axes = {
        "draw": range(config.draws),
        "temperature": config.temperatures,
        "log c - chosen": config.shifts,
        "dtype": DTYPES,
    }
    rows = tidy(axes, error=errors, bound=bounds, **{"largest logit": np.asarray(top)[..., None]})
    return rows, judge(
        compare(
            "|recovered K v - K v| / (|K| |v|) <= rounding bound, float32",
            errors[..., 0],
            bounds[..., 0],
            stated=True,
        ),
        compare(
            "|recovered K v - K v| / (|K| |v|) <= rounding bound, float64",
            errors[..., 1],
            bounds[..., 1],
            stated=True,
        ),
        compare(
            "|recovered K v - K v| / (|K| |v|) <= 1e-12, float64",
            errors[..., 1],
            1e-12,
            stated=True,
        ),
        compare(
            "K, k and ridge divided by c: relative change of f* <= 1e-8",
            shifted,
            1e-8,
            stated=True,
        ),
        at_least(
            "every row of K and k divided by its maximum: median relative change of f* >= 0.1",
            np.median(by_row),
            0.1,
        ),
    )


@partial(jax.jit, static_argnames="config")
def measure(
    keys: jax.Array, temperatures: jax.Array, shifts: jax.Array, config: Config
) -> tuple[jax.Array, ...]:
    """Return errors and bounds [draw, temperature, shift, dtype], and the effect of shifts on f*.

    The last two arrays are the relative changes of f* if all logits get the same shift and if
    each row of logits is shifted by its maximum.
    """
    p = config.num_features
    process = GaussianProcess(
        Exponential(), num_features=p, num_supports=config.num_supports, num_queries=8
    )

    def recover(task: Task, temperature: jax.Array, shift: jax.Array, dtype: str) -> tuple:
        task = Task(*(part.astype(dtype) for part in (task.x, task.y, task.x_query)))
        kernel = Exponential(temperature.astype(dtype))
        log_c = theory.log_sink(kernel, task) + shift.astype(dtype)
        # one step of size 1 from alpha = 0 predicts k y
        model = constructions.gradient_descent(
            kernel,
            num_features=p,
            ridge=1.0,
            steps=1,
            step_size=1.0,
            attention=Softmax(log_sink=log_c),
            dtype=dtype,
        )
        found = predict(model, task).astype(float)
        x, y, queries = (part.astype(float) for part in (task.x, task.y, task.x_query))
        logits = matmul(queries, x.T) / temperature
        entries = jnp.exp(logits)
        error = jnp.abs(found - matmul(entries, y)) / matmul(entries, jnp.abs(y))
        top = jnp.max(jnp.abs(logits))
        return jnp.max(error), theory.recovery_error(top, log_c.astype(float), p, dtype), top

    def once(key: jax.Array, temperature: jax.Array) -> tuple[jax.Array, ...]:
        task = sample(key, process)

        def at(shift: jax.Array) -> tuple[jax.Array, ...]:
            low, high = (recover(task, temperature, shift, dtype) for dtype in DTYPES)
            return jnp.stack([low[0], high[0]]), jnp.stack([low[1], high[1]]), high[2]

        errors, bounds, top = jax.lax.map(at, shifts)
        kernel = Exponential(temperature)
        log_c = theory.log_sink(kernel, task)
        K, k = kernel(task.x, task.x), kernel(task.x_query, task.x)
        ridge = 0.1 * jnp.trace(K) / len(K)

        def predicted(of_rows: jax.Array, of_queries: jax.Array, ridge: jax.Array) -> jax.Array:
            # with D = diag(of_rows): (D K + ridge I)^-1 = (K + ridge D^-1)^-1 D^-1
            alpha = solve(K + jnp.diag(ridge / of_rows), task.y / of_rows)
            return matmul(of_queries[:, None] * k, alpha)

        best = predicted(jnp.ones(len(K)), jnp.ones(len(k)), ridge)
        c = jnp.exp(log_c)
        shifted = predicted(jnp.full(len(K), 1 / c), jnp.full(len(k), 1 / c), ridge / c)
        by_row = predicted(1 / jnp.max(K, axis=1), 1 / jnp.max(k, axis=1), ridge / jnp.max(K))
        size = jnp.linalg.norm(best)
        gaps = (jnp.linalg.norm(f - best) / size for f in (shifted, by_row))
        return errors, bounds, top, *gaps

    return jax.lax.map(
        lambda key: jax.lax.map(lambda temperature: once(key, temperature), temperatures), keys
    )


CLAIM = Claim(
    title="a sink token recovers the unnormalised product K v",
    statement="A sink token with the logit log c gets the attention weight w = c / (Z + c), "
    "where Z is the softmax normaliser of the other tokens. So c / w times the output of the head "
    "is K v, the product of the unnormalised kernel matrix K and the values v. Adding a constant "
    "to all logits multiplies K and k(x) by a factor. f*, exact kernel ridge regression, does not "
    "change if the ridge is multiplied by the same factor.",
    source="Cawley 2025, TODO",
    quote="TODO",
    expected=HOLDS,
    told=TASK,
    run=run,
    config=Config(),
    quick=Config(draws=5),
    plot=Plot(x="temperature", y="error", by=("dtype",), bound="bound", logx=True),
)
