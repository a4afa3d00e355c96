"""C16: the error of the kernel matrix after a sketch to m features."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ... import theory
from ...kernels import Linear
from ...linalg import eigenvalues
from ...sketches import sketched
from ..shared.spectra import SKETCHES, of_rank, sketch, spectral_norm, spectral_task
from .claim import CORRECTED, NOTHING, Claim, Verdict, at_least, at_most, judge, named
from .measuring import Plot, Rows, every, tidy


class Config(NamedTuple):
    draws: int = 60
    num_supports: int = 40
    num_features: int = 20
    width: int = 8
    widths: tuple[int, ...] = (2, 4, 8, 12, 16)
    spectrum: str = "1/i"


def run(config: Config, key: jax.Array) -> tuple[Rows, Verdict]:
    keys = jax.random.split(key, config.draws)
    size, nothing, random = (np.asarray(part) for part in exact_rank(keys, config))
    rows, found = [], {}
    bounds = theory.sketch_error_tail, theory.sketch_error_best
    for width in config.widths:
        sigma, errors, ranks = measure(keys, width, config)
        tail, least = (np.asarray(jax.vmap(bound, (0, None))(sigma, width)) for bound in bounds)
        errors = np.asarray(errors)
        found[width] = errors, tail, least, np.asarray(ranks)
        rows += tidy(
            {"sketch": SKETCHES, "width": [width], "draw": range(config.draws)},
            error=errors.T[:, None],
            tail=tail,
            least=least,
        )
    everyone, tail, least, ranks = found[config.width]
    best, other = (everyone[:, SKETCHES.index(name)] for name in ("best", "orthonormal"))
    checks = {
        "features of rank m, for which sum_(i>m) sigma_i = 0, random orthonormal sketch: |K - K^| "
        "/ |K| <= 0 (1e-9 for rounding), "
        "whatever the constant": at_most(random / size, 1e-9, stated=True),
        "features of any rank, random orthonormal sketch: |K - K^| <= sum_(i>m) sigma_i": at_most(
            other, tail, stated=True
        ),
        "features of rank m: sum_(i>m) sigma_i / |K| <= 1e-12": at_most(nothing / size, 1e-12),
        "features of rank m, random orthonormal sketch: |K - K^| / |K| >= 0.1": at_least(
            random / size, 0.1
        ),
        "best sketch: |K - K^| <= sum_(i>m) sigma_i": at_most(
            best, tail, reading="the best sketch alone"
        ),
        "every sketch: rank of K^ <= m": at_most(ranks, config.width),
        "best sketch: |K - K^| <= sigma_(m+1)": at_most(best, least, slack=1e-6),
        "every sketch: sigma_(m+1) <= |K - K^|": at_most(least[:, None], everyone, slack=1e-6),
    }
    return rows, judge(*named(checks))


@every(static=("width", "config"))
def measure(key: jax.Array, width: int, config: Config) -> tuple[jax.Array, ...]:
    """Return the eigenvalues of K, and |K - K^| and the rank of K^ for every sketch."""
    at, own = jax.random.split(key)
    x = spectral_task(at, config.spectrum, config.num_features, config.num_supports).x
    gram = Linear()(x, x)
    grams = jnp.stack([sketched(Linear(), sketch(name, own, x, width))(x, x) for name in SKETCHES])
    sigma = jax.lax.map(eigenvalues, grams)
    ranks = jnp.sum(sigma > 1e-10 * sigma[:, -1:], axis=1)
    errors = jax.lax.map(lambda K: spectral_norm(gram - K), grams)
    return eigenvalues(gram), errors, ranks


@every()
def exact_rank(key: jax.Array, config: Config) -> tuple[jax.Array, ...]:
    """Return |K|, sum_(i>m) sigma_i and |K - K^| of a random sketch, for features of rank m."""
    m = config.width
    at, own = jax.random.split(key)
    x = of_rank(m, at, config.spectrum, config.num_features, config.num_supports)
    gram = Linear()(x, x)
    lost = gram - sketched(Linear(), sketch("orthonormal", own, x, m))(x, x)
    sigma = jnp.maximum(eigenvalues(gram), 0)
    return sigma[-1], theory.sketch_error_tail(sigma, m), spectral_norm(lost)


CLAIM = Claim(
    title="every sketch of x satisfies the error bound of the best one",
    statement="Every linear sketch of x to m features gives a kernel matrix K^ with |K - K^| "
    "<= sum_(i>m) sigma_i in the spectral norm. Here sigma_1 >= sigma_2 >= ... are the "
    "eigenvalues of K.",
    truth="No constant saves the bound: if the features have the rank m, the sum is 0, but a "
    "random sketch still changes K. For the best sketch, if the source means this one alone, the "
    "bound holds: its error is exactly sigma_(m+1), and no matrix of rank m has a smaller error.",
    corrected="ours",
    source="Cawley 2025, docs/theory/width_rank.md, theorem",
    quote="If m < p, any computation that linearly preserves Phi across layers induces an "
    "effective rank-m sketch K^ with spectral approximation error controlled by the tail of K: "
    "||K - K^||_2 <= sum_{i>m} sigma_i(K) [...]",
    expected=CORRECTED,
    told=NOTHING,
    run=run,
    quick=Config(draws=20, widths=(8,)),
    plot=Plot(x="width", y="error", by=("sketch",), bound="tail"),
)
