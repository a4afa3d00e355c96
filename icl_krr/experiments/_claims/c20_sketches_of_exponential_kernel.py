"""C20: sketches have the same guarantees for both kernels."""

import jax
import jax.numpy as jnp
import numpy as np

from ... import Exponential, Features, sketches, solvers, theory
from ..._core.linalg import eigenvalues, solve
from ...sketches import best, nystrom_features, sketched
from ...tasks import GaussianProcess, sample
from .._shared.spectra import spectral_norm
from .c18_query_error_of_width import width_errors
from .claim import FALSE, THIS_TASK, Checks, Claim, Config, at_least, at_most, nearly, stated
from .measuring import Plot, Rows, every, sizes, tidy

BEST = "the best sketch of x alone"
NAMES = ("best sketch of x", "best rank m of K", "m landmarks")


def run(config: Config, key: jax.Array) -> tuple[Rows, Checks]:
    m, ridges = np.asarray(config.widths), np.asarray(config.ridges)
    results = measure(key, config)
    few, many = (of_model(key, *case, config) for case in ((3, 1.0), (16, 2e3)))
    (of_x, of_K, of_marks), tail = np.moveaxis(results.error, -1, 0), results.tail
    axes = {"draw": range(config.draws), "width": m, "sketch": NAMES}
    rows = tidy(axes, error=results.error, tail=tail[..., None])
    of_query = at_most(many.error, many.dual, stated=True)
    on_sphere = at_most(of_x, tail, reading=BEST)
    of_A = at_most(results.inverse, tail[..., None] / ridges**2, trivial=1 / ridges, reading=BEST)
    long = at_most(results.long, results.long_tail, reading=BEST)
    return rows, {
        "best sketch of x: rank of K^ <= m": at_most(results.rank, m, stated=True),
        "supports at m points, for which sum_(i>m) sigma_i = 0, channels that do not tell two of "
        "them apart, every kernel of the channels: |K - K^| / |K| <= 0 (1e-9 for rounding), "
        "whatever the constant": at_most(results.blind, 1e-9, stated=True),
        "the same: ridge |inv(A) - inv(A^)| <= 0 (1e-9 for rounding), whatever the "
        "constant": at_most(results.blind_inverse, 1e-9, stated=True, trivial=1),
        "p = 16, m = 3, best sketch of x: |f^ - f*| <= |k| |y| |inv(A) - inv(A^)|": of_query,
        "p = 16, m = 3 >= d_eff, best sketch of x: |f^ - f*| / |f*| <= 1/2, root mean square over "
        "draws (1/2 is ours: half of the answer)": stated(np.sqrt(np.mean(many.gap**2))),
        "p = m = 3, m far below d_eff: |f^ - f*| / |f*| >= 0.01 of the share of sum_(i>m) sigma_i "
        "in the trace of K": at_least(few.gap, 0.01 * few.share, stated=True),
        "best sketch of x, supports on the sphere: |K - K^| <= sum_(i>m) sigma_i": on_sphere,
        "best sketch of x, supports on the sphere: |inv(A) - inv(A^)| <= sum_(i>m) sigma_i / "
        "ridge^2": of_A,
        "best sketch of x, one long support: |K - K^| <= sum_(i>m) sigma_i": long,
        "supports at m points: sum_(i>m) sigma_i / |K| <= 1e-12": results.nothing,
        "p = m = 3: d_eff >= 10 m": at_least(few.dimension, 30),
        "p = m = 3: |f^ - f*| / |f*| <= 1e-7": few.gap,
        "p = 16: d_eff <= m": at_most(many.dimension, 3),
        "best matrix K^ of rank m: |K - K^| <= sigma_(m+1)": nearly(of_K, results.least),
        "m landmarks: |K - K^| <= tr(K - K^)": nearly(of_marks, results.trace),
        "sketch of x to the span of m landmarks: |K - K^| <= that of the kernel matrix of these "
        "landmarks": nearly(results.span, of_marks),
        "entries of K and K^, logits s and s^: |exp(s) - exp(s^)| <= exp(max(s, "
        "s^)) |s - s^|": nearly(results.entry, results.entry_bound),
    }


@every()
def measure(key: jax.Array, config: Config) -> dict[str, jax.Array]:
    """Ranks and errors of the sketches and of models [draw, width, ...].

    Channels that do not tell two points apart lose at least `blind` of K, relative to |K|, and at
    least `blind_inverse` [draw, width, ridge] of ridge inv(A).
    """
    kernel, n, p = Exponential(config.temperature), config.num_supports, config.num_features
    ridges, eye = jnp.asarray(config.ridges), jnp.eye(n)
    task = sample(key, GaussianProcess(kernel, **sizes(config), num_queries=1, inputs="sphere"))
    x, gram = task.x, kernel(task.x, task.x)
    long = x.at[:, -1].set(0).at[0].set(jnp.eye(p)[-1] * config.length)

    def inverses(gram: jax.Array) -> jax.Array:
        return jax.lax.map(lambda ridge: solve(gram + ridge * eye, eye), ridges)

    def of_width(m: int) -> dict[str, jax.Array]:
        lost = lambda P, x: spectral_norm(kernel(x, x) - sketched(kernel, P)(x, x))  # noqa: E731
        tail = lambda sigma: theory.sketch_error_tail(jnp.maximum(sigma, 0), m)  # noqa: E731
        squeezed = sketched(kernel, best(x, m))(x, x)
        whole, part = nystrom_features(kernel, x, width=m), nystrom_features(kernel, x[:m])
        grams = squeezed, *(Features(phi)(x, x) for phi in (whole, part))
        entry = theory.logit_perturbation(*map(jnp.log, (gram, squeezed)))
        points = x[jnp.arange(n) % m]
        narrow = kernel(points, points)
        sigma, of_narrow, estimate = map(eigenvalues, (gram, narrow, squeezed))
        # K^ v = 0 for every kernel that sees no difference between the first two points
        v = (eye[0] - eye[1]) / jnp.sqrt(2.0)
        changed = ridges[:, None] * (inverses(narrow) @ v) - v[None]
        return {
            "rank": jnp.sum(estimate > n * jnp.finfo(estimate.dtype).eps * estimate[-1]),
            "error": jnp.stack([spectral_norm(gram - estimate) for estimate in grams]),
            "tail": tail(sigma),
            "least": theory.sketch_error_best(sigma, m),
            "inverse": jax.lax.map(spectral_norm, inverses(gram) - inverses(squeezed)),
            "long": lost(best(long, m), long),
            "long_tail": tail(eigenvalues(kernel(long, long))),
            "trace": jnp.trace(gram - grams[2]),
            "span": lost(sketches.landmarks(x, m), x),
            "entry": jnp.abs(gram - squeezed),
            "entry_bound": entry + 1e-13 * gram,  # rounding
            "nothing": tail(of_narrow) / of_narrow[-1],
            "blind": jnp.linalg.norm(narrow @ v) / of_narrow[-1],
            "blind_inverse": jnp.linalg.norm(changed, axis=1),
        }  # fmt: skip

    return jax.tree.map(lambda *values: jnp.stack(values), *map(of_width, config.widths))


@every(static=("p", "ridge", "config"))
def of_model(key: jax.Array, p: int, ridge: float, config: Config) -> dict[str, jax.Array]:
    """`width_errors` for three channels, the gap, d_eff, and the share of the tail in the trace."""
    kernel, m, options = Exponential(config.temperature), 3, {"num_features": p, "num_queries": 8}
    task = sample(key, GaussianProcess(kernel, **options, num_supports=64, inputs="sphere"))
    sigma = theory.eigenvalues(kernel, task)
    errors = width_errors(kernel, task, best(task.x, m), jnp.eye(m), ridge, 120)
    exact = solvers.exact(kernel, task, ridge=ridge).prediction
    return errors | {
        "gap": jnp.linalg.norm(errors["error"]) / jnp.linalg.norm(exact),
        "dimension": theory.effective_dimension(sigma, ridge),
        "share": theory.sketch_error_tail(sigma, m) / jnp.sum(sigma),
    }


CLAIM = Claim(
    statement="A linear sketch of x to m features gives the guarantees that are claimed for the "
    "linear kernel (C16 to C19) for the exponential kernel, too. The kernel matrix K^ of the "
    "sketched inputs has rank at most m. In the spectral norm |K - K^| <= sum_(i>m) sigma_i and, "
    "up to a constant, |inv(A) - inv(A^)| <= sum_(i>m) sigma_i / ridge^2, where sigma_1 >= sigma_2 "
    ">= ... are the eigenvalues of K. The error at a query is at most |k| |y| |inv(A) - inv(A^)|. "
    "The error is small with m >= d_eff channels, and in proportion to the sum with m far below.",
    truth="None of them holds. The rank of K^ is much larger than m. If the channels do not tell "
    "two of m supports apart, every kernel of them changes K, but the sum is 0. On the sphere the "
    "best sketch of x satisfies both bounds in every draw, but not if one support is long. The "
    "model computes k from its channels, too, which adds to the error at a query. d_eff does not "
    "count the channels: m = p = 3 are exact at d_eff = 40, and three of p = 16 lose more than "
    "half of f* although d_eff < 3. These guarantees hold instead, for features of K~ itself, "
    "which a softmax model that stores m channels of x does not compute. The best matrix of rank m "
    "has the error sigma_(m+1), and m landmark features, which linear attention can use (C21), at "
    "most tr(K - K^). A sketch of x to the span of m landmarks has at most the error of their "
    "features. The error of each entry of K is bounded in terms of the error of its logit.",
    source="Cawley 2025, docs/theory/width_rank.md, implications",
    quote="Softmax Route A: identical statements hold with K replaced by K~ and sigma_i replaced "
    "by the spectrum of K~.",
    expected=FALSE,
    required_inputs=THIS_TASK,
    run=run,
    config=Config(draws=50, num_supports=40, num_features=4, temperature=0.25, length=1.75),
    axes=Config(ridges=(1.0, 1e4), widths=(2, 3)),
    quick=Config(draws=5, widths=(2,)),
    plot=Plot(x="width", y="error", by=("sketch",), bound="tail"),
)
