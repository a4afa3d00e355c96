"""C20: sketches of the inputs of the exponential kernel."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from ... import constructions, solvers, theory
from ...kernels import Exponential, Features, Linear
from ...linalg import eigh
from ...sketches import best, nystrom_features, sketched
from ...tasks import GaussianProcess, sample
from ...transformer import predict
from ..shared.draws import draws
from ..shared.rows import Plot, Rows, tidy
from ..shared.spectra import spectral_norm
from .claim import FALSE, TASK, Claim, Verdict, at_least, compare, judge


@dataclass(frozen=True)
class Config:
    draws: int = 50
    num_supports: int = 40
    num_features: int = 4
    temperature: float = 0.25
    ridge: float = 1.0
    widths: tuple[int, ...] = (1, 2, 3)


def run(config: Config, key: jax.Array) -> tuple[Rows, Verdict]:
    m, keys = np.asarray(config.widths), draws(key, config.draws)
    planar, wide = measure(keys, config)
    rank = np.asarray(planar)
    sigma, ranks, logit, best_rank, landmarks, trace, model_gap, entry, entry_bound = (
        np.asarray(part) for part in wide
    )
    over = lambda bound: np.asarray(jax.vmap(jax.vmap(bound, (None, 0)), (0, None))(sigma, m))  # noqa: E731
    tail, least = over(theory.sketch_error_tail), over(theory.sketch_error_best)
    names = ("best sketch of x", "best rank m of K", "m landmarks")
    rows = tidy(
        {"draw": range(config.draws), "width": m, "sketch": names},
        error=np.stack([logit, best_rank, landmarks], axis=-1),
        tail=tail[..., None],
        rank=np.stack([ranks, np.broadcast_to(m, ranks.shape), ranks * 0 + m], axis=-1),
    )
    n = config.num_supports
    return rows, judge(
        compare("best sketch of x: rank of K^ <= m", ranks, m, stated=True),
        compare("best sketch of x: |K - K^| <= sum_(i>m) sigma_i", logit, tail, stated=True),
        at_least("exponential kernel on two features: rank of K >= n", rank, n),
        compare("best matrix K^ of rank m: |K - K^| <= sigma_(m+1)", best_rank, least, slack=1e-6),
        compare(
            "best matrix K^ of rank m: 1 - |K - K^| / sigma_(m+1) <= 1e-3",
            1 - best_rank / least,
            1e-3,
        ),
        compare("m landmarks: |K - K^| <= tr(K - K^)", landmarks, trace, slack=1e-6),
        at_least("m landmarks: |K - K^| >= sigma_(m+1)", landmarks * (1 + 1e-6), least),
        compare(
            "entries of K and K^, logits s and s^: |exp(s) - exp(s^)| <= exp(max(s, s^)) |s - s^|",
            entry,
            entry_bound,
            slack=1e-6,
        ),
        compare(
            "linear attention on m landmark features: gap to ridge regression on them <= 1e-7",
            model_gap,
            1e-7,
        ),
    )


@partial(jax.jit, static_argnames="config")
def measure(keys: jax.Array, config: Config) -> tuple:
    kernel, n = Exponential(config.temperature), config.num_supports

    process = GaussianProcess(
        Linear(),
        num_features=config.num_features,
        num_supports=n,
        num_queries=4,
        inputs="sphere",
    )

    def rank(gram: jax.Array) -> jax.Array:
        sigma = eigh(gram)[0]
        return jnp.sum(sigma > n * jnp.finfo(gram.dtype).eps * sigma[-1])

    def once(key: jax.Array) -> tuple:
        task = sample(key, process)
        flat = task.x[:, :2]
        x, gram = task.x, kernel(task.x, task.x)
        parts = []
        for m in config.widths:
            P = best(x, m)
            squeezed = sketched(kernel, P)(x, x)
            whole, few = nystrom_features(kernel, x, width=m), nystrom_features(kernel, x[:m])
            on_whole, on_few = (Features(phi)(x, x) for phi in (whole, few))
            model = constructions.conjugate_gradient(
                kernel, num_features=x.shape[1], ridge=config.ridge, steps=m + 4, sketch=few
            )
            target = solvers.exact(Features(few), task, ridge=config.ridge).prediction
            model_gap = jnp.max(jnp.abs(predict(model, task) - target))
            logits = [jnp.log(kernel_of) for kernel_of in (gram, squeezed)]
            bound = theory.logit_perturbation(*logits)
            entry = jnp.abs(gram - squeezed)
            worst = jnp.argmax(entry / jnp.maximum(bound, jnp.finfo(bound.dtype).tiny))
            parts.append(
                (
                    rank(squeezed),
                    spectral_norm(gram - squeezed),
                    spectral_norm(gram - on_whole),
                    spectral_norm(gram - on_few),
                    jnp.trace(gram - on_few),
                    model_gap / jnp.max(jnp.abs(target)),
                    entry.ravel()[worst],
                    bound.ravel()[worst],
                )
            )
        stacked = jax.tree.map(lambda *values: jnp.stack(values), *parts)
        return rank(kernel(flat, flat)), (eigh(gram)[0], *stacked)

    return jax.lax.map(once, keys)


CLAIM = Claim(
    title="sketches have the same guarantees for both kernels",
    statement="A linear sketch of x to m features gives the same guarantees for the exponential "
    "kernel as for the linear kernel. The kernel matrix K^ of the sketched inputs has rank at "
    "most m, and |K - K^| <= sum_(i>m) sigma_i in the spectral norm. Here sigma_1 >= sigma_2 >= "
    "... are the eigenvalues of K.",
    truth="The rank of K^ is much larger than m. With 40 supports it is 40 for every tested m >= "
    "2. Three guarantees hold instead. The best matrix of rank m has the error sigma_(m+1). The "
    "kernel matrix of m landmarks has an error of at most tr(K - K^). For a sketch of x, the "
    "error of each entry of K is bounded in terms of the error of its logit.",
    corrected="ours",
    source="Cawley 2025, TODO",
    quote="TODO",
    expected=FALSE,
    told=TASK,
    run=run,
    config=Config(),
    quick=Config(draws=5, widths=(2,)),
    plot=Plot(x="width", y="error", by=("sketch",), bound="tail"),
)
