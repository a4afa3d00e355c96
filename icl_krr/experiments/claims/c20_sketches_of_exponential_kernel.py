"""C20: sketches of the inputs of the exponential kernel."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ... import constructions, solvers, theory
from ...kernels import Exponential, Features, Linear
from ...linalg import eigenvalues
from ...sketches import best, nystrom_features, orthonormal, sketched
from ...tasks import GaussianProcess, sample
from ...transformer import predict
from ..shared.spectra import spectral_norm
from .claim import FALSE, TASK, Claim, Verdict, at_least, at_most, judge, named
from .measuring import Plot, Rows, every, fields, largest_gap, sizes, tidy


class Config(NamedTuple):
    draws: int = 50
    num_supports: int = 40
    num_features: int = 4
    temperature: float = 0.25
    ridge: float = 1.0
    widths: tuple[int, ...] = (1, 2, 3)


def run(config: Config, key: jax.Array) -> tuple[Rows, Verdict]:
    m, keys = np.asarray(config.widths), jax.random.split(key, config.draws)
    found = fields(measure(keys, config))
    ranks, logit, best_rank, landmarks = found.rank, found.logit, found.best, found.landmarks
    over = lambda bound: np.asarray(jax.vmap(jax.vmap(bound, (None, 0)), (0, None))(found.sigma, m))  # noqa: E731
    tail, least = over(theory.sketch_error_tail), over(theory.sketch_error_best)
    names = ("best sketch of x", "best rank m of K", "m landmarks")
    rows = tidy(
        {"draw": range(config.draws), "width": m, "sketch": names},
        error=np.stack([logit, best_rank, landmarks], axis=-1),
        tail=tail[..., None],
        rank=np.stack([ranks, np.broadcast_to(m, ranks.shape), ranks * 0 + m], axis=-1),
    )
    n = config.num_supports
    checks = {
        "best sketch of x: rank of K^ <= m": at_most(ranks, m, stated=True),
        "supports at m points, for which sum_(i>m) sigma_i = 0, random orthonormal sketch of x: |K "
        "- K^| / |K| <= 0 (1e-9 for rounding), "
        "whatever the constant": at_most(found.few, 1e-9, stated=True),
        "best sketch of x: |K - K^| <= sum_(i>m) sigma_i": at_most(logit, tail, stated=True),
        "supports at m points: sum_(i>m) sigma_i / |K| <= 1e-12": at_most(found.nothing, 1e-12),
        "supports at m points, random orthonormal sketch of x: |K - K^| / |K| >= 1e-3": at_least(
            found.few, 1e-3
        ),
        "exponential kernel on two features: rank of K >= n": at_least(found.planar_rank, n),
        "best matrix K^ of rank m: |K - K^| <= sigma_(m+1)": at_most(best_rank, least, slack=1e-6),
        "best matrix K^ of rank m: 1 - |K - K^| / sigma_(m+1) <= 1e-3": at_most(
            1 - best_rank / least, 1e-3
        ),
        "m landmarks: |K - K^| <= tr(K - K^)": at_most(landmarks, found.trace, slack=1e-6),
        "m landmarks: |K - K^| >= sigma_(m+1)": at_least(landmarks * (1 + 1e-6), least),
        "entries of K and K^, logits s and s^: |exp(s) - exp(s^)| <= exp(max(s, "
        "s^)) |s - s^|": at_most(found.entry, found.entry_bound, slack=1e-6),
        "linear attention on m landmark features: gap to ridge regression on them <= 1e-7": at_most(
            found.model_gap, 1e-7
        ),
    }
    return rows, judge(*named(checks))


@every()
def measure(key: jax.Array, config: Config) -> dict[str, jax.Array]:
    """Ranks and errors of the sketches [draw, width], and eigenvalues of K [draw, n].

    `planar_rank` [draw] is that of K on two features. For supports at m points, `nothing` is the
    relative sum of the eigenvalues after the m-th, and `few` the error of a random sketch.
    """
    kernel, n = Exponential(config.temperature), config.num_supports

    process = GaussianProcess(Linear(), **sizes(config), num_queries=4, inputs="sphere")

    def rank(gram: jax.Array) -> jax.Array:
        sigma = eigenvalues(gram)
        return jnp.sum(sigma > n * jnp.finfo(gram.dtype).eps * sigma[-1])

    at, turn = jax.random.split(key)
    task = sample(at, process)
    flat = task.x[:, :2]
    x, gram = task.x, kernel(task.x, task.x)
    parts = []
    for m in config.widths:
        P = best(x, m)
        squeezed = sketched(kernel, P)(x, x)
        whole, part = nystrom_features(kernel, x, width=m), nystrom_features(kernel, x[:m])
        on_whole, on_few = (Features(phi)(x, x) for phi in (whole, part))
        model = constructions.conjugate_gradient(
            kernel, num_features=x.shape[1], ridge=config.ridge, steps=m + 4, sketch=part
        )
        target = solvers.exact(Features(part), task, ridge=config.ridge).prediction
        logits = [jnp.log(kernel_of) for kernel_of in (gram, squeezed)]
        bound = theory.logit_perturbation(*logits) + 1e-13 * gram  # rounding
        entry = jnp.abs(gram - squeezed)
        repeated = x[jnp.arange(n) % m]
        narrow = kernel(repeated, repeated)
        few_sigma = jnp.maximum(eigenvalues(narrow), 0)
        random = sketched(kernel, orthonormal(turn, config.num_features, m))
        worst = jnp.argmax(entry / jnp.maximum(bound, jnp.finfo(bound.dtype).tiny))
        parts.append({
            "rank": rank(squeezed),
            "logit": spectral_norm(gram - squeezed),
            "best": spectral_norm(gram - on_whole),
            "landmarks": spectral_norm(gram - on_few),
            "trace": jnp.trace(gram - on_few),
            "model_gap": largest_gap(predict(model, task), target),
            "entry": entry.ravel()[worst],
            "entry_bound": bound.ravel()[worst],
            "nothing": theory.sketch_error_tail(few_sigma, m) / few_sigma[-1],
            "few": spectral_norm(narrow - random(repeated, repeated)) / few_sigma[-1],
        })  # fmt: skip
    stacked = jax.tree.map(lambda *values: jnp.stack(values), *parts)
    return {**stacked, "planar_rank": rank(kernel(flat, flat)), "sigma": eigenvalues(gram)}


CLAIM = Claim(
    title="sketches have the same guarantees for both kernels",
    statement="A linear sketch of x to m features gives the same guarantees for the exponential "
    "kernel as for the linear kernel. The kernel matrix K^ of the sketched inputs has rank at "
    "most m, and |K - K^| <= sum_(i>m) sigma_i in the spectral norm. Here sigma_1 >= sigma_2 >= "
    "... are the eigenvalues of K.",
    truth="The rank of K^ is much larger than m. With 40 supports it is 40 for every tested m >= "
    "2. No constant saves the bound on |K - K^|: if the supports are at m points, the sum is 0, "
    "but a random sketch of x still changes K. Three guarantees hold instead. The best matrix of "
    "rank m has the error sigma_(m+1). The kernel matrix of m landmarks has an error of at most "
    "tr(K - K^). For a sketch of x, the error of each entry of K is bounded in terms of the error "
    "of its logit.",
    corrected="ours",
    source="Cawley 2025, docs/theory/width_rank.md, implications",
    quote="Softmax Route A: identical statements hold with K replaced by K~ and sigma_i replaced "
    "by the spectrum of K~.",
    expected=FALSE,
    told=TASK,
    run=run,
    quick=Config(draws=5, widths=(2,)),
    plot=Plot(x="width", y="error", by=("sketch",), bound="tail"),
)
