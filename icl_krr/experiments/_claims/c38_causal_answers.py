"""C38: which causal solver answers ridge regression on the prefix."""

import jax
import jax.numpy as jnp
import numpy as np

from ... import Linear, Transformer, constructions, predict_along, run_with_cache, theory
from ...tasks import LinearRegression, sample
from .c27_mesa_layer import regression_on_prefixes
from .claim import HOLDS, THIS_TASK, Checks, Claim, Config, Exactly
from .measuring import Plot, Rows, every, exponent, tidy

FEATURES, LIMIT = 4, 1e-3
RATES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
LINES = ("delta rule, step 1 / ridge", "normalised delta rule, best step", "Mesa", "Chebyshev")


def run(config: Config, key: jax.Array) -> tuple[Rows, Checks]:
    gaps, blocks = measure(key, jnp.asarray(config.ridges), config)
    axes = {"draw": range(config.draws), "ridge": config.ridges[1:2], "solver": LINES}
    rows = tidy(axes | {"supports before": range(config.num_supports + 1)}, gap=gaps[:, 1:2])
    late = np.median(gaps[..., config.num_supports // 2 :], axis=-1)  # [draw, ridge, line]
    slopes = [exponent(config.ridges[2:], gap[2:, 0]) for gap in late]
    small, _, large, *_ = np.moveaxis(blocks[..., 0] / blocks[..., 1], 1, 0)
    return rows, {
        "ridge = k(x, x), delta rule with step 1 / ridge: "
        "median |f - f*| / size of f* over the second half >= 0.05": late[:, 1, 0],
        "the same, normalised delta rule with its best step: >= 0.005": late[:, 1, 1],
        "ridge >= 100 k(x, x), delta rule: gap ~ ridge^a with a in [-1.2, -0.7]": slopes,
        "Mesa: |f - f*| / size of f* <= 1e-8 everywhere": gaps[:, :, 2],
        "ridge = k(x, x) / 10: blocks to a gap of 1e-3 everywhere: Mesa / Chebyshev <= 1": small,
        "ridge = 100 k(x, x): the same: Chebyshev / Mesa <= 1": 1 / large,
    }


@every(1, 1)
def measure(key: jax.Array, ridge: jax.Array, config: Config) -> tuple[jax.Array, jax.Array]:
    """Gaps [draw, line, position], and blocks of Mesa and Chebyshev to a small gap.

    A gap is relative to the root mean square of regression on the prefix. The normalised delta rule
    has the step size of smallest median gap.
    """
    n, (few, many) = config.num_supports, config.steps
    task = sample(key, LinearRegression(num_features=FEATURES, num_supports=n, noise=0.1))
    ridge = ridge * FEATURES
    points = jnp.concatenate([task.x, task.x_query])
    exact = jnp.sum(regression_on_prefixes(task, ridge) * points, axis=1)
    size = jnp.sqrt(jnp.mean(exact**2))

    def online(step_size: jax.Array | float, normalised: bool = False) -> jax.Array:
        options = {"num_features": FEATURES, "steps": n, "normalised": normalised}
        model = constructions.delta_rule(Linear(), step_size=step_size, **options)
        return jnp.abs(predict_along(model, task) - exact) / size

    def path(model: Transformer) -> jax.Array:
        """The gaps at all supports and queries after every step."""
        w = run_with_cache(model, task, names=("w",))[1]["w"][:, 1:]
        return jnp.abs(jnp.sum(w * points[None], axis=2) - exact[None]) / size

    tuned = jax.vmap(lambda rate: online(rate, normalised=True))(jnp.asarray(RATES))
    best = tuned[jnp.argmin(jnp.median(tuned[:, n // 2 :], axis=1))]
    common = {"num_features": FEATURES, "ridge": ridge}
    bounds = theory.prefix_bounds(Linear(), task, ridge=ridge)
    models = (
        constructions.prefix_conjugate_gradient(Linear(), steps=few, **common),
        constructions.prefix_chebyshev(Linear(), steps=many, spectrum=bounds, **common),
    )
    paths = [path(model) for model in models]
    blocks = [blocks_to(m, path) for m, path in zip(models, paths, strict=True)]
    return jnp.stack([online(1 / ridge), best, *(path[-1] for path in paths)]), jnp.stack(blocks)


def blocks_to(model: Transformer, path: jax.Array) -> jax.Array:
    """The blocks after which no gap exceeds the limit; infinite if there are not enough."""
    small = jnp.max(path, axis=1) <= LIMIT
    blocks = len(model.weights.prologue) + model.blocks_per_step * jnp.argmax(small)
    return jnp.where(jnp.any(small), blocks.astype(path.dtype), jnp.inf)


CLAIM = Claim(
    statement="On linear tasks, the delta rule is not ridge regression on the prefix, whatever its "
    "step size: with step 1 / ridge, its distance falls as 1 / ridge for a large ridge only, where "
    "both predict near 0. A Mesa layer is exact at every position. It takes fewer blocks than the "
    "Chebyshev iteration for a small ridge, and more for a large one.",
    expected=HOLDS,
    required_inputs=THIS_TASK,
    run=run,
    # ridges are in units of the mean of k(x, x).
    config=Config(draws=8, num_supports=64, steps=Exactly((8, 96))),
    axes=Config(ridges=(0.1, 1.0, 100.0, 1000.0, 10000.0)),
    quick=Config(draws=2, num_supports=32),
    plot=Plot(x="supports before", y="gap", by=("solver",)),
)
