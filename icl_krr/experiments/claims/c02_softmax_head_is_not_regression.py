"""C2: one softmax head is not kernel ridge regression."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np

from ... import constructions, solvers, theory
from ...kernels import Exponential
from ...tasks import GaussianProcess, sample
from ...transformer import predict
from ..shared.draws import draws
from ..shared.rows import Plot, Rows, tidy
from .claim import FALSE, NOTHING, Claim, Verdict, at_least, compare, judge

NOISE = 0.1


@dataclass(frozen=True)
class Config:
    draws: int = 8
    num_supports: tuple[int, ...] = (16, 64, 256)
    num_features: tuple[int, ...] = (2, 8)
    temperatures: tuple[float, ...] = (0.3, 1.0, 3.0)
    heads: tuple[float, ...] = tuple(10.0 ** (k / 4) for k in range(-8, 5))


def run(config: Config, key: jax.Array) -> tuple[Rows, Verdict]:
    rows, found = [], []
    for n, p in product(config.num_supports, config.num_features):
        keys = draws(key, config.draws)
        measured = measure(keys, jnp.asarray(config.temperatures), (n, p), config)
        found.append(measured)
        axes = {"n": [n], "p": [p], "draw": range(config.draws), "temperature": config.temperatures}
        rows += tidy(axes, **{name: np.asarray(v)[None, None] for name, v in measured.items()})
    gap, tuned, rank, error, exact = (
        np.stack([each[name] for each in found], axis=1)
        for name in ("gap", "gap, tuned", "rank correlation", "rmse, tuned", "exact rmse")
    )
    return rows, judge(
        compare("|head - f*| / |f*| <= 0.01 at the same temperature", gap, 0.01, stated=True),
        at_least("gap to f* >= 0.003 at the best temperature of the head", tuned, 0.003),
        compare("smallest rank correlation between head and f* <= 0.9", rank.min(), 0.9),
        compare(
            "median of (RMSE of f*) / (RMSE of the head at its best temperature) <= 0.95",
            np.median(exact / error),
            0.95,
        ),
    )


@partial(jax.jit, static_argnames=("sizes", "config"))
def measure(
    keys: jax.Array, temperatures: jax.Array, sizes: tuple[int, int], config: Config
) -> dict[str, jax.Array]:
    n, p = sizes

    def once(key: jax.Array, temperature: jax.Array) -> dict[str, jax.Array]:
        kernel = Exponential(temperature)
        process = GaussianProcess(
            kernel, num_features=p, num_supports=n, num_queries=64, inputs="sphere"
        )
        task, ridge = sample(key, process), NOISE * jnp.exp(1 / temperature)
        best = solvers.exact(kernel, task, ridge=ridge).prediction

        def head(temperature: jax.Array) -> jax.Array:
            model = constructions.nadaraya_watson(Exponential(temperature), num_features=p)
            return predict(model, task)

        def gap(f: jax.Array) -> jax.Array:
            return jnp.linalg.norm(f - best) / jnp.linalg.norm(best)

        def rmse(f: jax.Array) -> jax.Array:
            return jnp.sqrt(jnp.mean((f - task.y_query) ** 2))

        own = head(temperature)
        heads = jax.lax.map(head, jnp.asarray(config.heads))
        sigma = theory.eigenvalues(kernel, task)
        return {
            "condition number": (sigma[-1] + ridge) / (sigma[0] + ridge),
            "gap": gap(own),
            "gap, tuned": jnp.min(jax.vmap(gap)(heads)),
            "rank correlation": theory.rank_correlation(own, best),
            "rmse, tuned": jnp.min(jax.vmap(rmse)(heads)),
            "exact rmse": rmse(best),
        }

    each = jax.vmap(once, in_axes=(None, 0))
    return jax.lax.map(lambda key: each(key, temperatures), keys)


CLAIM = Claim(
    title="one softmax head computes exact KRR",
    statement="One softmax head computes f*, the prediction of exact kernel ridge regression.",
    truth="The head computes the Nadaraya-Watson estimator. At the same temperature its "
    "distance to f* can be as large as |f*|. At the best temperature for the head, the distance "
    "is still more than 0.3 % of |f*|. The head can also rank the queries differently from f*.",
    corrected="ours",
    source="Cawley 2025, TODO",
    quote="TODO",
    expected=FALSE,
    told=NOTHING,
    run=run,
    config=Config(),
    quick=Config(
        draws=4,
        num_supports=(64,),
        num_features=(2,),
        heads=tuple(10.0 ** (k / 4) for k in range(-6, 3)),
    ),
    plot=Plot(x="n", y="gap", by=("temperature",), logx=True),
)
