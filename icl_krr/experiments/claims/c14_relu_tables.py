"""C14: a ReLU MLP computes products and quotients by piecewise linear tables."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ... import constructions, theory
from ...constructions import ReLU, Softmax
from ...kernels import Gaussian
from ...tasks import GaussianProcess, Task
from ...transformer import Transformer, operand_bounds, predict, run_with_cache
from ..shared.draws import draw_tasks
from ..shared.rows import Plot, Rows, tidy
from .claim import HOLDS, TASK, Claim, Verdict, at_least, compare, judge, within

KERNEL = Gaussian(0.7)


@dataclass(frozen=True)
class Config:
    draws: int = 4
    sizes: tuple[int, ...] = (16, 64, 256)
    widths: tuple[int, ...] = (64, 128, 256, 512)
    steps: int = 50


def run(config: Config, key: jax.Array) -> tuple[Rows, Verdict]:
    process = GaussianProcess(
        KERNEL, num_supports=max(config.sizes), num_queries=32, inputs="sphere"
    )
    tasks, sizes = draw_tasks(key, config.draws, process), jnp.asarray(config.sizes)
    parts = [measure(tasks, sizes, width, config.steps) for width in config.widths]
    errors, overruns, clipped = (np.stack(part, axis=-1) for part in zip(*parts, strict=True))
    rows = tidy(
        {"draw": range(config.draws), "n": config.sizes, "width": config.widths}, error=errors
    )
    mean = np.exp(np.mean(np.log(errors), axis=0))
    slopes, offsets = np.polyfit(np.log(config.widths), np.log(mean).T, 1)
    needed = (np.log(1e-3) - offsets) / slopes
    growth = np.polyfit(np.log(config.sizes), needed, 1)[0]
    product, chord = table_errors()
    return rows, judge(
        compare("error of 1e-3: needed width ~ n^a with a <= 1/2", growth, 0.5, stated=True),
        within("error of f ~ width^a with a in [-2.5, -1.5]", slopes, -2.5, -1.5, stated=True),
        compare(
            "one product: |1 - error / theory.product_table_error| <= 0.05",
            abs(1 - product),
            0.05,
            stated=True,
        ),
        compare(
            "one reciprocal: |1 - error / theory.reciprocal_table_error| <= 0.05",
            abs(1 - chord),
            0.05,
            stated=True,
        ),
        compare(
            "tables from operand_bounds of the task: number of operands outside their tables = 0",
            overruns,
            0,
        ),
        at_least(
            "outputs 100 y: number of operands outside their tables, as the model reports it, >= 1",
            clipped,
            1,
        ),
    )


@partial(jax.jit, static_argnames=("width", "steps"))
def measure(tasks: Task, sizes: jax.Array, width: int, steps: int) -> tuple[jax.Array, ...]:
    """Return the error that the tables cause and two counts of operands outside them [draw, n].

    The two counts are for y and for 100 y.
    """

    def once(task: Task, n: jax.Array) -> tuple[jax.Array, ...]:
        # mask supports, so that one compiled program serves every n
        task = task.replace(mask=jnp.arange(task.num_supports) < n)

        def build(**options: Any) -> Transformer:
            return constructions.richardson(
                KERNEL,
                num_features=2,
                ridge=1.0,
                steps=steps,
                step_size=1.9,
                attention=Softmax(log_sink=theory.log_sink(KERNEL, task)),
                **options,
            )

        twin = build()
        model = build(arithmetic=ReLU(width, operand_bounds(twin, task)))
        target = predict(twin, task)

        def seen(size: jax.Array) -> tuple[jax.Array, jax.Array]:
            own = task.replace(y=size * task.y)
            prediction, cache = run_with_cache(model, own, names=("overrun",))
            return prediction, jnp.sum(cache["overrun"])

        found, overruns = jax.lax.map(seen, jnp.array([1.0, 100.0]))
        error = jnp.max(jnp.abs(found[0] - target)) / jnp.max(jnp.abs(target))
        return error, *overruns

    return jax.lax.map(lambda task: jax.lax.map(lambda n: once(task, n), sizes), tasks)


@partial(jax.jit, static_argnums=0)
def table_errors(width: int = 64) -> tuple[jax.Array, jax.Array]:
    """Return the largest errors of the interpolated a b and 1 / x, divided by their bounds."""
    grid = jnp.linspace(-1, 1, 801)
    a, b = grid[:, None], grid[None]
    knots = jnp.linspace(-2, 2, width + 1)
    square = partial(jnp.interp, xp=knots, fp=knots**2)
    product = jnp.max(jnp.abs(square(a + b) / 4 - square(a - b) / 4 - a * b))
    x = jnp.exp(jnp.linspace(jnp.log(0.01), jnp.log(100.0), 100_001))
    knots = 0.01 * 1e4 ** jnp.linspace(0, 1, width + 1)
    chord = jnp.max(jnp.abs(jnp.interp(x, knots, 1 / knots) * x - 1))
    return (
        product / theory.product_table_error(1.0, 1.0, width),
        chord / theory.reciprocal_table_error(0.01, 100.0, width),
    )


CLAIM = Claim(
    title="ReLU MLPs of width O(sqrt(n / e)) are enough for an error e",
    statement="A ReLU MLP multiplies numbers of size up to B by piecewise linear "
    "approximations of the square. With w segments, the error of a product is O(B^2 / w^2). So a "
    "construction with MLPs of width O(sqrt(n / e)) computes f*, exact kernel ridge regression on "
    "n supports, up to an error e.",
    source="Cawley 2025, TODO",
    quote="TODO",
    expected=HOLDS,
    told=TASK,
    run=run,
    config=Config(),
    quick=Config(draws=3, sizes=(16, 48), widths=(64, 256), steps=20),
    plot=Plot(x="width", y="error", by=("n",), logx=True),
)
