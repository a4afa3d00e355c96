"""C27: a Mesa layer is exact ridge regression on each prefix."""

import jax
import jax.numpy as jnp
import numpy as np

from ... import Linear, Transformer, constructions, run_with_cache
from ...tasks import LinearRegression, Task, sample
from .claim import HOLDS, TASK_FAMILY, Checks, Claim, Config, stated
from .measuring import Plot, Rows, every, tidy

RIDGE = 0.1


def run(config: Config, key: jax.Array) -> tuple[Rows, Checks]:
    rows, results = [], {p: measure(key, p, config) for p in config.features}
    for p, gaps in results.items():
        axes = {"p": [p], "draw": range(config.draws), "step": range(gaps.shape[1])}
        rows += tidy(axes, gap=gaps.max(axis=2)[None])
    before, after = (
        np.stack([gaps[:, p - left].max(axis=1) for p, gaps in results.items()], axis=1)
        for left in (1, 0)
    )
    early = [[gaps[:, i, i] for i in range(1, p)] for p, gaps in results.items()]
    short = np.stack([np.max(each, axis=0) for each in early], axis=1)
    blocks = [mesa(p).blocks_per_step for p in config.features]
    return rows, {
        "after p steps: |w - w*| / |w*| <= 1e-8 at every support, "
        "w* is ridge regression on the prefix": stated(after),
        "after p - 1 steps: |w - w*| / |w*| >= 1e-6 at some support": before,
        "support i + 1 <= p: |w - w*| / |w*| <= 1e-8 after i steps": short,
        "blocks in one step <= 7, for every p": blocks,
    }


def mesa(p: int) -> Transformer:
    options = {"num_features": p, "ridge": RIDGE, "steps": 2 * p}
    return constructions.prefix_conjugate_gradient(Linear(), **options)


@every(static=("p", "config"))
def measure(key: jax.Array, p: int, config: Config) -> jax.Array:
    """Return |w - w*| / |w*| [draw, step, support]."""
    n = config.num_supports
    task = sample(key, LinearRegression(num_features=p, num_supports=n))
    w = run_with_cache(mesa(p), task, names=("w",))[1]["w"][:, 1 : n + 1]
    best = regression_on_prefixes(task, RIDGE)[:n]
    size = jnp.linalg.norm(best, axis=1)
    return jnp.linalg.norm(w - best[None], axis=2) / jnp.where(size > 0, size, 1)[None]


def regression_on_prefixes(task: Task, ridge: jax.Array | float) -> jax.Array:
    """The weights w* [n + 1, p] of ridge regression on the first 0, ..., n supports."""

    def on(i: jax.Array) -> jax.Array:
        prefix = jnp.arange(task.num_supports) < i
        x, y = jnp.where(prefix[:, None], task.x, 0), jnp.where(prefix, task.y, 0)
        return jnp.linalg.solve(x.T @ x + ridge * jnp.eye(x.shape[1]), x.T @ y)

    return jax.vmap(on)(jnp.arange(task.num_supports + 1))


CLAIM = Claim(
    statement="A causal transformer solves (C_i + ridge I) w_i = b_i at every support i by "
    "conjugate gradient, where C_i and b_i sum phi_j phi_j^T and phi_j y_j over the supports "
    "before it. After p steps for p features, each token has the optimal regression of its prefix.",
    truth="In addition: one head and 7 blocks a step are enough for every p, and no aggregator is "
    "needed. Support i + 1 needs i steps only, because C has rank i there. In general, fewer than "
    "p steps are not enough.",
    source="von Oswald et al. 2025, abstract",
    quote="This layer again stems from an in-context loss, but which is now minimized to "
    "optimality at every time point using a fast conjugate gradient solver.",
    expected=HOLDS,
    required_inputs=TASK_FAMILY,
    run=run,
    config=Config(draws=5, num_supports=32),
    axes=Config(features=(2, 4, 8)),
    quick=Config(draws=2, features=(2, 4), num_supports=12),
    plot=Plot(x="step", y="gap", by=("p",)),
)
