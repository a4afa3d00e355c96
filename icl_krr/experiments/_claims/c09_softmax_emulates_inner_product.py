"""C9: softmax heads emulate the product with inner products."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np

from ... import Linear, Softmax, constructions, run_with_cache, solvers, theory
from ..._core.numerics import matmul
from ...tasks import LinearRegression, Task
from .claim import HOLDS, THIS_TASK, Checks, Claim, Config, at_most, stated
from .measuring import Plot, Rows, draw_tasks, every, exponent, gap, sizes, stacked, tidy

HEADS = ("one-sided", "pair")
DTYPES = ("float32", "float64")


def run(config: Config, key: jax.Array) -> tuple[Rows, Checks]:
    regression = LinearRegression(**sizes(config), num_queries=8)
    tasks, scales = draw_tasks(key, config.draws, regression), jnp.asarray(config.scales)
    centred, uncentred = np.moveaxis(product_errors(tasks), 1, 0)  # [draw, e, heads]
    slopes = np.log10(centred[:, 0] / centred[:, 1])
    results = stacked(  # [dtype, heads, draw, ...]
        stacked(measure(tasks, scales, heads == "pair", dtype, config) for heads in config.heads)
        for dtype in DTYPES
    )
    floors = np.moveaxis(results.path[..., -1], 2, 0)  # [draw, dtype, heads, scale]
    axes = {"draw": range(config.draws), "dtype": DTYPES, "heads": config.heads}
    rows = tidy(axes | {"e L": config.scales}, floor=floors)
    at_best, chosen = np.median(floors, axis=0), np.median(results.best[..., -1], axis=2)
    wide = np.log10(config.scales)
    exact_path, slow = results.exact[1, -1], results.path[1, -1][:, np.argmin(abs(wide + 1))]
    large = (wide > -2.6) & (wide < -0.9)
    grown = [exponent(np.array(config.scales)[large], floor[large]) for floor in at_best[1]]
    lowest = at_most(at_best[0].min(axis=-1), 0.1 * at_best[0, :, 0])
    tuned = at_most(chosen, 5 * at_best.min(-1))
    return rows, {
        "one-sided, v of mean 0: error ~ e^a with a in [0.9, 1.1]": stated(slopes[:, 0]),
        "pair, v of mean 0: error ~ e^a with a in [1.9, 2.1]": slopes[:, 1],
        "one-sided and pair, mean of v not 0: error >= 0.01": uncentred[:, 1],
        **{
            f"{heads}: floor of CG ~ e^a with a in [{power - 0.3:.1f}, {power + 0.3:.1f}]": slope
            for heads, slope in zip(config.heads, grown, strict=True)
            for power in [1 + (heads == "pair")]
        },
        "float32: floor of CG at the best e <= 0.1 x floor of CG at the smallest e": lowest,
        "floor of CG at the e of theory.best_epsilon <= 5 x floor of CG at the best e": tuned,
        "e = 0.1 / largest inner product, every step: gap to f* "
        "<= 1.5 x gap of exact CG + 3 x floor": at_most(slow, 1.5 * exact_path + 3 * slow[:, -1:]),
    }


@every(static=())
def product_errors(task: Task) -> jax.Array:
    """Return the errors of the emulated S v [draw, v, e, heads]; only the first v has mean 0."""
    v, S = 1 + task.y[:, None], matmul(task.x, task.x.T)

    def error(v: jax.Array, e: float, symmetric: bool) -> jax.Array:
        product = theory.emulated_product(S, v, e, symmetric=symmetric)
        return jnp.linalg.norm(product - matmul(S, v)) / jnp.linalg.norm(matmul(S, v))

    grid = product((v - jnp.mean(v), v), (1e-2, 1e-3), (False, True))
    return jnp.array([error(*point) for point in grid]).reshape(2, 2, 2)


@every(static=("symmetric", "dtype", "config"))
def measure(task: Task, scales: jax.Array, symmetric: bool, dtype: str, config: Config) -> dict:
    """Gaps to f* of emulated CG [draw, scale, step], and at the best e and of exact CG."""
    options = {"ridge": config.ridge, "steps": config.steps}
    exact = solvers.exact(Linear(), task, ridge=config.ridge).prediction
    points, p = jnp.concatenate([task.x, task.x_query]), config.num_features
    top = jnp.max(jnp.abs(matmul(points, task.x.T)))

    def emulated(epsilon: jax.Array) -> jax.Array:
        softmax = Softmax(epsilon=epsilon.astype(dtype), symmetric=symmetric)
        form = {"form": "fused", "attention": softmax, "dtype": dtype}
        model = constructions.conjugate_gradient(Linear(), num_features=p, **options, **form)
        path = run_with_cache(model, task.astype(dtype), names=("prediction",))[1]["prediction"]
        return gap(path.astype(float), exact[None])

    best = theory.best_epsilon(top, symmetric=symmetric, dtype=dtype)
    gaps = jax.lax.map(emulated, jnp.append(scales / top, best))
    plain = solvers.conjugate_gradient(Linear(), task, **options).prediction
    return {"path": gaps[:-1], "best": gaps[-1], "exact": gap(plain, exact[None])}


CLAIM = Claim(
    statement="Softmax heads emulate the unnormalised product S v with S_ij = <x_i, x_j>. Let n "
    "be the number of supports and e a small scale. If v has mean 0, the form (n / e) (softmax(e "
    "S) v - mean of v) has error O(e).",
    truth="In addition, a pair of heads with scales e and -e has error O(e^2). Rounding adds an "
    "error of order u / e, where u is the unit roundoff. So in float32 the total error is "
    "smallest at one particular e. Inside conjugate gradient (CG), the gap to f* (exact kernel "
    "ridge regression) stops decreasing at a floor, which this error sets. The error does not "
    "slow the convergence down.",
    source="Cawley 2025, docs/route_b_bound.md, proposition (per-iter e-bound)",
    quote="For centered inputs (1^T v = 0 and Phi column-centered), the two-head construction "
    "satisfies: ||(Kv)^ - Kv||_2 / ||Kv||_2 <= C e ||Phi||_F^2 / n where C depends on the "
    "spectral properties of Phi.",
    expected=HOLDS,
    required_inputs=THIS_TASK,
    run=run,
    # `scales` are values of e L, where L is the largest inner product.
    config=Config(draws=20, num_supports=32, num_features=4, ridge=1.0, steps=12),
    axes=Config(scales=tuple(10.0 ** (k / 2) for k in range(-12, 1)), heads=HEADS),
    quick=Config(
        draws=5, heads=("pair",), scales=tuple(10.0**k for k in (-6, -4, -3, -2.5, -2, -1.5, -1))
    ),
    plot=Plot(x="e L", y="floor", by=("heads", "dtype"), logx=True),
)
