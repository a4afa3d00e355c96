"""What sketches lose of the kernel matrix, or of a function of it, for C16 and C17."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ... import Linear, sketched
from ..._core.linalg import eigenvalues
from .._shared import spectra
from .._shared.spectra import least_lost, sketch, spectral_norm
from .claim import Unnamed, at_least, at_most, nearly

RANDOM, FEW, HIDDEN = 0, 1, slice(2, None)
"""The cases of `losses`: a random sketch, one for features of rank m, and some that hide."""


def losses(
    key: jax.Array, of: Callable, tail: Callable, sharp: Callable, config: Any, *ridge: jax.Array
) -> dict[str, jax.Array]:
    """|B - B^| with B = of(K) and B^ = of(K^) for all sketches [sketch] and cases [case].

    A sketch that hides has h^2 times the first principal direction of its features, of rank m up to
    noise h, for each h in `config.levels`. Errors: the metric I (`plain`), the best, and the least.
    """
    (at, sketch_key), width = jax.random.split(key), config.width
    sizes = config.spectrum, config.num_features, config.num_supports
    x, few = spectra.spectral_task(at, *sizes).x, spectra.of_rank(width, at, *sizes)
    P = sketch("orthonormal", sketch_key, x, width)
    noisy = [few + h * x for h in config.levels]
    hidden = [spectra.hiding(P, x, h**2) for x, h in zip(noisy, config.levels, strict=True)]
    gram = lambda x, *P: (sketched(Linear(), *P) if P else Linear())(x, x)  # noqa: E731

    def case(pair: tuple[jax.Array, jax.Array]) -> dict[str, jax.Array]:
        x, P = pair
        whole, sigma = of(gram(x)), jnp.maximum(eigenvalues(gram(x)), 0)
        return {
            "size": sigma[-1],
            "plain": spectral_norm(whole - of(gram(x, P))),
            "metric": spectral_norm(whole - of(gram(x, spectra.with_metric(P, x)))),
            "any_metric": least_lost(P, x, whole),
            "tail": tail(sigma, width, *ridge),
            "sharp": sharp(sigma, width, *ridge),
        }

    def sketch_errors(K: jax.Array) -> dict[str, jax.Array]:
        sigma = eigenvalues(K)
        return {
            "rank": jnp.sum(sigma > 1e-10 * sigma[-1]),
            "error": spectral_norm(of(gram(x)) - of(K)),
            "lost": spectral_norm(gram(x) - K),
        }

    grams = [gram(x, sketch(name, sketch_key, x, width)) for name in config.sketches]
    cases = jnp.stack([x, few, *noisy]), jnp.stack([P, P, *hidden])
    return {**jax.lax.map(case, cases), **jax.lax.map(sketch_errors, jnp.stack(grams))}


def checks_of(results: Any, error: str, bound: str, sharp: str, h: Any, most: Any = None) -> dict:
    """The checks that C16 and C17 share, of arrays [draw, ...] of `losses` with words for them."""
    lost, tail, best = results.any_metric, results.tail, results.error[..., 0]
    unit, other = results.plain[..., RANDOM], results.metric[..., RANDOM]
    least, one = lost[..., RANDOM], "random orthonormal sketch"

    def at(measured: Any, reading: str) -> Unnamed:
        return at_most(measured, tail[..., RANDOM], reading=reading, trivial=most)

    lower = at_least(np.minimum(unit, other), least, slack=1e-6)
    return {
        "sketch that nearly hides the first direction of the features, for h = 0.1, 0.01, ..., "
        f"every metric: {error} <= (1 / h) {bound}, whatever the constant 1 / "
        "h": at_most(lost[..., HIDDEN], tail[..., HIDDEN] / h, stated=True),
        f"{one}, metric I: {error} <= {bound}": at(unit, "queries and keys are the channels P^T x"),
        f"{one}, every metric: {error} <= {bound}": at(least, "the best metric for each sketch"),
        f"best sketch: {error} <= {bound}": at(best, "the best sketch alone"),
        f"{one}, two metrics: {error} >= what every metric loses": lower,
        f"best sketch: {error} <= {sharp}": nearly(best, results.sharp[..., RANDOM]),
    }
