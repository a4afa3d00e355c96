"""C17: the error of the inverse after a sketch to m features."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from ... import theory
from ...kernels import Linear
from ...linalg import eigh, solve
from ...numerics import matmul
from ...sketches import sketched
from ..shared.draws import draws
from ..shared.rows import Plot, Rows, tidy
from ..shared.spectra import sketch, spectral_norm, spectral_task
from .claim import CORRECTED, TASK, Claim, Verdict, compare, judge

SKETCHES = ("best", "orthonormal", "gaussian", "landmarks")


@dataclass(frozen=True)
class Config:
    draws: int = 100
    num_supports: int = 40
    num_features: int = 20
    width: int = 8
    ridges: tuple[float, ...] = (0.01, 0.1, 1.0, 10.0, 100.0)
    spectrum: str = "1/i"


def run(config: Config, key: jax.Array) -> tuple[Rows, Verdict]:
    ridges, m = jnp.asarray(config.ridges), config.width
    sigma, lost, plain, relative = measure(draws(key, config.draws), ridges, config)
    tail, sharp, sharp_relative = (
        np.asarray(jax.vmap(jax.vmap(bound, (None, None, 0)), (0, None, None))(sigma, m, ridges))
        for bound in (
            theory.inverse_error_tail,
            theory.inverse_error_best,
            theory.relative_inverse_error_best,
        )
    )
    general = theory.inverse_error_bound(lost[:, None, :], ridges[None, :, None])
    rows = tidy(
        {"draw": range(config.draws), "ridge": config.ridges, "sketch": SKETCHES},
        error=plain,
        relative=relative,
        tail=tail[..., None],
        sharp=sharp[..., None],
        general=general,
    )
    best = SKETCHES.index("best")
    return rows, judge(
        compare(
            "random orthonormal sketch: |inv(A) - inv(A^)| <= sum_(i>m) sigma_i / ridge^2",
            plain[:, :, SKETCHES.index("orthonormal")],
            tail,
            stated=True,
            trivial=1 / ridges,
        ),
        compare(
            "best sketch: |inv(A) - inv(A^)| <= sum_(i>m) sigma_i / ridge^2",
            plain[:, :, best],
            tail,
            trivial=1 / ridges,
        ),
        compare(
            "best sketch: |inv(A) - inv(A^)| <= sigma_(m+1) / (ridge (ridge + sigma_(m+1)))",
            plain[:, :, best],
            sharp,
            trivial=1 / ridges,
            slack=1e-6,
        ),
        compare(
            "best sketch: 1 - |inv(A) - inv(A^)| ridge (ridge + sigma_(m+1)) / sigma_(m+1) <= 1e-3",
            1 - plain[:, :, best] / sharp,
            1e-3,
        ),
        compare(
            "every sketch: |inv(A) - inv(A^)| <= min(|K - K^| / ridge^2, 1 / ridge)",
            plain,
            general,
            slack=1e-6,
        ),
        compare(
            "best sketch: |sqrt(A) (inv(A) - inv(A^)) sqrt(A)| <= sigma_(m+1) / ridge",
            relative[:, :, best],
            sharp_relative,
            slack=1e-6,
        ),
        compare(
            "best sketch: 1 - |sqrt(A) (inv(A) - inv(A^)) sqrt(A)| ridge / sigma_(m+1) <= 1e-3",
            1 - relative[:, :, best] / sharp_relative,
            1e-3,
        ),
        amended=True,
    )


@partial(jax.jit, static_argnames="config")
def measure(keys: jax.Array, ridges: jax.Array, config: Config) -> tuple[jax.Array, ...]:
    """Return the eigenvalues of K and three spectral norms for every sketch.

    The norms are |K - K^|, |inv(A) - inv(A^)| and |sqrt(A) (inv(A) - inv(A^)) sqrt(A)|.
    """

    def once(key: jax.Array) -> tuple[jax.Array, ...]:
        at, own = jax.random.split(key)
        x = spectral_task(at, config.spectrum, config.num_features, config.num_supports).x
        gram, eye = Linear()(x, x), jnp.eye(config.num_supports)
        sigma, vectors = eigh(gram)
        grams = jnp.stack(
            [sketched(Linear(), sketch(s, own, x, config.width))(x, x) for s in SKETCHES]
        )

        def errors(ridge: jax.Array) -> tuple[jax.Array, jax.Array]:
            inverse = matmul(vectors / (jnp.maximum(sigma, 0) + ridge)[None], vectors.T)
            root = matmul(vectors * jnp.sqrt(jnp.maximum(sigma, 0) + ridge)[None], vectors.T)

            def error(sketched_gram: jax.Array) -> tuple[jax.Array, jax.Array]:
                gap = inverse - solve(sketched_gram + ridge * eye, eye)
                return spectral_norm(gap), spectral_norm(matmul(root, matmul(gap, root)))

            return jax.lax.map(error, grams)

        lost = jax.lax.map(lambda K: spectral_norm(gram - K), grams)
        return jnp.maximum(sigma, 0), lost, *jax.lax.map(errors, ridges)

    return jax.lax.map(once, keys)


CLAIM = Claim(
    title="every sketch satisfies a bound on the inverse of K + ridge I",
    statement="Every linear sketch to m features gives a kernel matrix K^ with |inv(A) - inv(A^)| "
    "<= sum_(i>m) sigma_i / ridge^2 in the spectral norm. Here A = K + ridge I, A^ = K^ + ridge I, "
    "and sigma_1 >= sigma_2 >= ... are the eigenvalues of K.",
    truth="The bound holds for the best sketch, whose error is exactly sigma_(m+1) / (ridge (ridge "
    "+ sigma_(m+1))). The error of every sketch is at most min(|K - K^| / ridge^2, 1 / ridge). A "
    "bound above 1 / ridge is trivial.",
    corrected="ours",
    source="Cawley 2025, TODO",
    quote="TODO",
    expected=CORRECTED,
    told=TASK,
    run=run,
    config=Config(),
    quick=Config(draws=10, ridges=(0.1, 10.0)),
    plot=Plot(x="ridge", y="error", by=("sketch",), bound="sharp", logx=True),
)
