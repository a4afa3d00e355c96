"""C36: trained models of small width compute a sketch."""

import dataclasses
from collections.abc import Callable
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from ... import Linear, Task, predict, solvers
from ..._core.numerics import matmul
from .._shared.retrained import RETRAINING_STUDIES, load_models
from .claim import CORRECTED, TASK_FAMILY, Checks, Claim, Config, at_least, check
from .measuring import Plot, Rows, draw_tasks, every

STUDY = RETRAINING_STUDIES["longer"]
p = STUDY.task.num_features
ENOUGH = 24
"""The width p + c of textbook conjugate gradient on the linear kernel, c = 16."""


def run(config: Config, key: jax.Array) -> tuple[Rows, Checks]:
    """Compare every trained model with the best sketch to as many features as it uses.

    The gains of a model are the matrix M of the least squares fit df/dx = M df*/dx over the tasks.
    M is the identity for exact KRR f*, and close to a projection for a sketch. A model uses as many
    features as M has singular values above 1/2. The variances of x decrease, so the best sketch to
    k features keeps the first k.
    """
    family: Any = dataclasses.replace(STUDY.family, num_queries=config.num_queries)  # pyright: ignore[reportArgumentType]
    tasks = draw_tasks(key, config.tasks, family)
    # to 0, ..., p features; the last one is exact KRR
    sketches = measure(Partial(sketch, jnp.arange(p + 1)), tasks, config.hats)
    rows = []
    for study, name in config.models:
        results = measure(Partial(predict, load_models(study, name)), tasks, config.hats)
        settings = RETRAINING_STUDIES[study]
        width, steps = settings.variants[name].width, settings.training.steps
        for seed, *each in zip(settings.seeds(name), *results, strict=True):
            about = {"steps": steps, "width": width, "training seed": seed}
            rows.append(about | of_model(*each, *sketches))
    column = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    m, k, ratio = column["width"], column["features in use"], column["risk / exact"]
    ratio = ratio / column["sketch / exact"]
    last = column["steps"] == RETRAINING_STUDIES["longest"].training.steps
    ranks, longest = column["rank of hat"] / column["rank of hat, sketch"], np.where(last, ratio, 1)
    fewer = "a sketch with fewer features than channels"
    as_width = at_least(k[m < p], m[m < p], stated=True)
    more = at_least(k[m + 1 < p], m[m + 1 < p] + 1, reading="more features than channels")
    angle = check(column["angle to leading features"], reading=fewer)
    return rows, {
        "m is the width < p: number k of features in use >= m": as_width,
        "width < m < p: k >= width + 1": more,
        "k / width in [0.2, 0.6]": check(k / m, reading=fewer),
        "angle between the directions in use and the first k features <= 0.25": angle,
        "the next singular value of the gains <= 1/4": column["next gain"],
        "risk / risk of the best sketch to k features in [0.95, 1.6]": ratio,
        "width p + c = 24, 18000 steps: k >= p": at_least(np.where(last & (m == ENOUGH), k, p), p),
        "18000 steps: risk / risk of the best sketch to k features <= 1.05": longest,
        "effective rank of df/dy / that of this sketch in [0.85, 1.35]": ranks,
    }


def of_model(risk: Any, slopes: Any, rank: Any, risks: Any, steep: Any, ranks: Any) -> dict:
    """The features that a model uses, and a comparison with the best sketch to as many."""
    _, gains, directions = np.linalg.svd(np.linalg.lstsq(steep[p], slopes)[0].T)
    k = int(np.sum(gains > 0.5))
    overlap = np.linalg.svd(directions[:k, :k], compute_uv=False)
    return {
        "features in use": k,
        "least gain in use": float(gains[k - 1]),
        "next gain": float([*gains, 0.0][k]),
        "angle to leading features": float(np.arccos(np.minimum(overlap, 1)).max(initial=0)),
        "risk / exact": float(risk / risks[p]),
        "sketch / exact": float(risks[k] / risks[p]),
        "rank of hat": float(rank),
        "rank of hat, sketch": float(ranks[k]),
    }


def sketch(directions: jax.Array, task: Task) -> jax.Array:
    """Predictions of KRR on the first features, with the others as noise, and the ridge for it."""
    keep = jnp.arange(p) < directions
    # of uniform distributions
    variances = STUDY.task.condition ** -jnp.linspace(0, 1, p) / 3
    ridge = p * STUDY.task.noise + jnp.sum(jnp.where(keep, 0, variances))
    x, x_query = (jnp.where(keep[None], points, 0) for points in (task.x, task.x_query))
    return solvers.exact(Linear(), task.replace(x=x, x_query=x_query), ridge=ridge).prediction


@every(static="hats")
def measure(answer: Callable[[Task], jax.Array], tasks: Task, hats: int) -> tuple[jax.Array, ...]:
    """The risk of a predictor f, its mean df/dx [tasks, p] over queries, and the rank of df/dy.

    The effective rank is (sum s_i^2)^2 / sum s_i^4, the mean over some tasks.
    """

    def error_and_slopes(task: Task) -> tuple[jax.Array, jax.Array]:
        def total(x_query: jax.Array) -> tuple[jax.Array, jax.Array]:
            f = answer(task.replace(x_query=x_query, y_query=None))
            return jnp.sum(f), f  # a prediction depends on its own query only

        slopes, f = jax.grad(total, has_aux=True)(task.x_query)
        return jnp.mean((f - task.y_query) ** 2), slopes

    def hat_rank(task: Task) -> jax.Array:
        hat = jax.jacrev(lambda y: answer(task.replace(y=y)))(task.y)
        gram = matmul(hat, hat.T)
        return jnp.trace(gram) ** 2 / jnp.sum(gram**2)

    errors, slopes = jax.lax.map(error_and_slopes, tasks, batch_size=64)
    ranks = jax.lax.map(hat_rank, jax.tree.map(lambda leaf: leaf[:hats], tasks))
    return jnp.mean(errors), jnp.mean(slopes, axis=1), jnp.mean(ranks)


CLAIM = Claim(
    statement="A transformer with a stream of m channels is trained. If m is smaller than the "
    "number p of features, it becomes kernel ridge regression on a sketch to m features. (The "
    "source has width < m < p and does not define m. We read m as the width of the stream, or as "
    "more features than channels.)",
    truth="Sketching emerges, but the sketch has fewer features than the stream has channels, and "
    "it emerges for m >= p, too. With p = 8 features, models of 4, 6, 8, 12, 16 and 24 channels "
    "use k = 1 to 2, 2 to 3, 4, 5 to 6, 6 to 7 and 7 features after 6000 steps of training (three "
    "seeds). These are the features of largest variance. The risk is 1 to 1.5 times, and the "
    "effective rank of df/dy 0.9 to 1.2 times that of the best sketch to k features. k depends on "
    "the training seed, and longer training can raise it. From 6000 to 18000 steps (first seed) "
    "the error falls by about 0.3, 5, 4, 8, 15 and 10 %, and k becomes 1, 3, 4, 5, 7 and 8. The "
    "risk is then that of the best sketch to k features up to 5 %, so what these models lack is "
    "features, not precision. With p + c = 24 channels, as many as textbook conjugate gradient "
    "needs, all 8 features are in use.",
    source="Cawley 2025, docs/theory/route_a.md",
    quote="when width<m<p, effective rank-m sketching behavior emerges.",
    expected=CORRECTED,
    required_inputs=TASK_FAMILY,
    run=run,
    config=Config(tasks=256, hats=8, num_queries=16),
    axes=Config(models=tuple(product(("longer", "longest"), STUDY.variants))),
    quick=Config(tasks=128, hats=4, num_queries=8, models=(("longer", "width 6"),)),
    plot=Plot(x="width", y="features in use", by=("steps", "training seed"), logy=False),
    dtype="float32",
)
