"""C36: trained models of small width compute a sketch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ... import solvers
from ...kernels import Linear
from ...numerics import matmul
from ...tasks import Task
from ...transformer import Transformer, predict
from ..shared.retrained import SEEDS, STUDIES, load_models, random_models
from .claim import CORRECTED, FAMILY, Claim, Verdict, at_least, at_most, judge, named, within
from .measuring import Plot, Rows, draw_tasks

STUDY = STUDIES["widths"]
p = STUDY.task.num_features


class Config(NamedTuple):
    tasks: int = 256
    hats: int = 8
    num_queries: int = 16
    untrained: bool = True
    models: tuple[tuple[str, int], ...] = (
        *(("widths", width) for width in (4, 6, 8, 12, 16)),
        *(("longer", width) for width in (4, 8)),
    )


class Found(NamedTuple):
    """What a predictor f does on a batch of tasks; f* is exact KRR.

    Attributes:
        risk: mean squared error to the noiseless function.
        slopes: df/dx, mean over the queries of a task [tasks, p].
        energy: mean of (df/dx_i)^2 for every feature i, [p].
        rank: effective rank (sum s_i^2)^2 / sum s_i^4 of the hat matrix df/dy, mean over tasks.
    """

    risk: jax.Array
    slopes: jax.Array
    energy: jax.Array
    rank: jax.Array


def run(config: Config, key: jax.Array) -> tuple[Rows, Verdict]:
    """Compare every trained model with the best sketch to as many features as it uses.

    The gains of a model are the matrix M of the least squares fit df/dx = M df*/dx over the tasks,
    where f* is exact KRR. M is the identity for f*, and close to a projection for a sketch. A model
    uses as many features as M has singular values above 1/2. The covariance of x is diagonal and
    its variances decrease, so the best sketch to k features keeps the first k features.
    """
    family: Any = dataclasses.replace(STUDY.family, num_queries=config.num_queries)  # pyright: ignore[reportArgumentType]
    tasks = draw_tasks(key, config.tasks, family)
    sketches = measure_sketches(tasks, config.hats)
    rows = []
    for study, width in config.models:
        name = f"width {width}"
        models = load_models(study, name)
        found = each_seed(measure_models(models, tasks, config.hats))
        readin = np.asarray(models.weights.embedding["stream"].blocks["x"])
        for i, seed in enumerate(SEEDS):
            about = {"steps": STUDIES[study].training.steps, "width": width, "training seed": seed}
            rows.append(about | of_model(found[i], sketches) | of_readin(readin[i]))
        if config.untrained:
            starts = each_seed(measure_models(random_models(study, name), tasks, config.hats))
            for row, start in zip(rows[-len(SEEDS) :], starts, strict=True):
                row["share before training"] = share(start, row["features in use"])
    column = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    m, k = column["width"], column["features in use"]
    before = {}
    if config.untrained:
        share_before = column["share before training"][m <= p]
        before["m <= p: the same share before training <= 0.8"] = at_most(share_before, 0.8)
    checks = {
        "width m < p: number k of features in use >= m": at_least(k[m < p], m[m < p], stated=True),
        "k / m in [0.2, 0.6]": within(k / m, 0.2, 0.6),
        "the next singular value of the gains <= 1/4": at_most(column["next gain"], 0.25),
        "angle between the directions in use and the first k features <= 0.25": at_most(
            column["angle to leading features"], 0.25
        ),
        "share of the first k features in |df/dx|^2 >= 0.95": at_least(
            column["share"], 0.95, reading="a sketch with fewer features than channels"
        ),
        **before,
        "risk / risk of the best sketch to k features in [0.95, 1.6]": within(
            column["risk / exact"] / column["sketch / exact"], 0.95, 1.6
        ),
        "effective rank of df/dy / that of this sketch in [0.85, 1.35]": within(
            column["rank of hat"] / column["rank of hat, sketch"], 0.85, 1.35
        ),
        "effective rank of the weights that read x / k in [0.7, 1.8]": within(
            column["rank of read-in, x of variance 1"] / np.maximum(k, 1), 0.7, 1.8
        ),
    }
    return rows, judge(*named(checks))


def of_model(found: Found, sketches: Found) -> dict[str, float]:
    """The features that a trained model uses, and how it compares with the best sketch to them."""
    exact_slopes = sketches.slopes[p]
    _, gains, directions = np.linalg.svd(np.linalg.lstsq(exact_slopes, found.slopes)[0].T)
    k = int(np.sum(gains > 0.5))
    overlap = np.linalg.svd(directions[:k, :k], compute_uv=False)
    exact = sketches.risk[p]
    return {
        "features in use": k,
        "least gain in use": float(gains[k - 1]),
        "next gain": float([*gains, 0.0][k]),
        "angle to leading features": float(np.arccos(np.minimum(overlap, 1)).max(initial=0)),
        "share": share(found, k),
        "risk / exact": float(found.risk / exact),
        "sketch / exact": float(sketches.risk[k] / exact),
        "rank of hat": float(found.rank),
        "rank of hat, sketch": float(sketches.rank[k]),
    }


def each_seed(found: Found) -> list[Found]:
    return [jax.tree.map(lambda leaf, i=i: np.asarray(leaf[i]), found) for i in range(len(SEEDS))]


def share(found: Found, k: int) -> float:
    """Share of the first k features in |df/dx|^2."""
    return float(found.energy[:k].sum() / found.energy.sum())


def of_readin(weights: np.ndarray) -> dict[str, float]:
    """Effective rank of the weights [p, m] that read x, for x as it is and for x of variance 1."""
    scaled = np.sqrt(np.asarray(variances()))[:, None] * weights
    return {
        "rank of read-in": float(effective_rank(scaled @ scaled.T)),
        "rank of read-in, x of variance 1": float(effective_rank(weights @ weights.T)),
    }


def sketch(kept: jax.Array, task: Task) -> jax.Array:
    """Predictions of KRR on the first features, with the ridge of least risk.

    The other features are independent of these. Their part of y is noise.
    """
    keep = jnp.arange(p) < kept
    ridge = p * STUDY.task.noise + jnp.sum(jnp.where(keep, 0, variances()))
    x, x_query = (jnp.where(keep[None], points, 0) for points in (task.x, task.x_query))
    return solvers.exact(Linear(), task.replace(x=x, x_query=x_query), ridge=ridge).prediction


def variances() -> jax.Array:
    """Variances of the features, which decrease: those of uniform distributions."""
    return STUDY.task.condition ** -jnp.linspace(0, 1, p) / 3


@partial(jax.jit, static_argnames="hats")
def measure_sketches(tasks: Task, hats: int) -> Found:
    """The best sketches to 0, ..., p features; the last one is exact KRR."""
    return jax.lax.map(lambda kept: measure(partial(sketch, kept), tasks, hats), jnp.arange(p + 1))


@partial(jax.jit, static_argnames="hats")
def measure_models(models: Transformer, tasks: Task, hats: int) -> Found:
    return jax.lax.map(lambda model: measure(partial(predict, model), tasks, hats), models)


def measure(answer: Callable[[Task], jax.Array], tasks: Task, hats: int) -> Found:
    def error_and_slopes(task: Task) -> tuple[jax.Array, jax.Array]:
        def total(x_query: jax.Array) -> tuple[jax.Array, jax.Array]:
            f = answer(task.replace(x_query=x_query, y_query=None))
            return jnp.sum(f), f  # a prediction depends on its own query only

        slopes, f = jax.grad(total, has_aux=True)(task.x_query)
        return jnp.mean((f - task.y_query) ** 2), slopes

    def hat_rank(task: Task) -> jax.Array:
        hat = jax.jacrev(lambda y: answer(task.replace(y=y)))(task.y)
        return effective_rank(matmul(hat, hat.T))

    errors, slopes = jax.lax.map(error_and_slopes, tasks, batch_size=64)
    ranks = jax.lax.map(hat_rank, jax.tree.map(lambda leaf: leaf[:hats], tasks))
    energy = jnp.mean(slopes**2, axis=(0, 1))
    return Found(jnp.mean(errors), jnp.mean(slopes, axis=1), energy, jnp.mean(ranks))


def effective_rank(gram: Any) -> Any:
    """(sum s_i^2)^2 / sum s_i^4 of a matrix J with singular values s_i, from J J^T."""
    return gram.trace() ** 2 / (gram**2).sum()


CLAIM = Claim(
    title="trained models of small width compute a sketch",
    statement="A transformer with a stream of m channels is trained. If m is smaller than the "
    "number p of features, it becomes kernel ridge regression on a sketch to m features. (The "
    "source has width < m < p and does not define m; we read both as the width of the stream.)",
    truth="Sketching emerges, but the sketch has fewer than m features, and it emerges "
    "for m >= p, too. With p = 8 features, models of 4, 6, 8, 12 and 16 channels (three seeds "
    "each) use k = 1 to 2, 2 to 3, 3, 4 and 5 to 6 features. These are the features of largest "
    "variance. The risk is 1 to 1.5 times, and the effective rank of df/dy 0.9 to 1.3 times that "
    "of the best sketch to k features. The effective rank of the weights that read x is 0.8 to "
    "1.6 times k. After three times as many steps of training, models of 4 channels use as many "
    "features as before, and models of 8 channels use 4.",
    corrected="ours",
    source="Cawley 2025, docs/theory/route_a.md",
    quote="when width<m<p, effective rank-m sketching behavior emerges.",
    expected=CORRECTED,
    told=FAMILY,
    run=run,
    quick=Config(tasks=128, hats=4, untrained=False, num_queries=8, models=(("widths", 6),)),
    plot=Plot(x="width", y="features in use", by=("steps", "training seed"), logy=False),
    dtype="float32",
)
