"""C35: an eigengap gives relative error bounds for sketches."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from ... import Linear, Task, constructions, run_with_cache, theory
from ..._core.linalg import eigh, solve
from ..._core.numerics import matmul
from ...sketches import orthonormal, sketched
from .._shared.spectra import spectral_norm
from .claim import HOLDS, THIS_TASK, Checks, Claim, Config, at_least, at_most, nearly
from .measuring import Plot, Rows, every, largest_gap, tidy

SPECTRA = ("two levels", "decaying")


def run(config: Config, key: jax.Array) -> tuple[Rows, Checks]:
    gaps, ridges = np.asarray(config.gaps), np.asarray(config.ridges)
    sigma = np.stack([spectra(gap, config) for gap in config.gaps])  # [gap, spectrum, p]
    results = measure(key, sigma, ridges, config)
    sine, sine_bound, relative = results.sine, results.known, results.relative
    bound, by_gap, at_zero = results.bound, results.bound_by_gap, results.bound_at_zero
    first, lost = (sigma[..., i, None] / ridges for i in (-1, -config.width - 1))
    plain = lambda sine: sine[..., None] ** 2 * first + (1 - sine[..., None] ** 2) * lost  # noqa: E731
    separated, of_gram = gaps > 2 * config.perturbation, results.size[..., None] / ridges
    axes = {"draw": range(config.draws), "gap / sigma_m": gaps, "spectrum": SPECTRA}
    columns = {"sine": sine[..., None], "relative": relative, "bound": bound}
    columns |= {"bound from the gap": by_gap, "bound from |K - K^|": plain(sine_bound)}
    rows = tidy(axes | {"ridge / sigma_m": ridges}, **columns)
    # of two levels, and of the best sketch
    e1, e2 = (1 - (a / b)[:, :, 0] for a, b in ((relative, bound), (of_gram, plain(sine))))
    attained = abs(results.best / at_zero - 1)
    at_angle = nearly(relative, bound, trivial=first)
    useless = at_least(by_gap[:, ~separated], first[~separated] * (1 - 1e-9))
    inverses = nearly(results.absolute, bound / ((1 + bound) * ridges), trivial=1 / ridges)
    of_model = nearly(results.alpha, bound)
    return rows, {
        "gap > 2 |E|, angle that the gap guarantees: relative bound (its formula is ours) <= bound "
        "from |K - K^| "
        "alone": at_most(by_gap[:, separated], plain(sine_bound)[:, separated], stated=True),
        "gap of 0.99 sigma_m, ridge of 0.01 sigma_m: bound from |K - K^| alone / relative bound "
        ">= 5": (plain(sine_bound) / by_gap)[:, -1, :, 0],
        "|K - K^| / ridge <= bound from |K - K^| alone": nearly(of_gram, plain(sine)),
        "|sqrt(A) (inv(A) - inv(A^)) sqrt(A)| <= relative bound for the angle": at_angle,
        "two levels of eigenvalues: 1 - |sqrt(A) (inv(A) - inv(A^)) sqrt(A)| / bound <= 1e-6": e1,
        "two levels of eigenvalues: 1 - |K - K^| / ridge / (bound from |K - K^| alone) <= 1e-6": e2,
        "sin(angle) <= |E| / (gap - |E|)": at_most(sine, sine_bound, trivial=1),
        "gap <= 2 |E|: relative bound >= sigma_1 / ridge, what every sketch satisfies": useless,
        "angle 0: | |sqrt(A) (inv(A) - inv(A^)) sqrt(A)| / bound - 1 | <= 1e-6": attained,
        "angle 0: bound <= sigma_(m+1) / ridge": nearly(at_zero, lost),
        "|inv(A) - inv(A^)| <= b / ((1 + b) ridge), where b is the relative bound": inverses,
        "width-m model: |alpha^ - alpha*|_A / |alpha*|_A <= relative bound": of_model,
        "gap between the alpha^ of the model and inv(A^) y <= 1e-7": results.model_gap,
    }


def spectra(gap: float, config: Config) -> np.ndarray:
    """Eigenvalues of K that are not 0, ascending, with sigma_m = 1 and sigma_(m+1) = 1 - gap."""
    i, m = np.arange(config.num_features, 0.0, -1), config.width
    level = np.where(i <= m, 1, 1 - gap)
    return np.stack([level, level * np.where(i <= m, m, m + 1) / i])


@every(1, 2)
def measure(key: jax.Array, sigma: jax.Array, ridges: jax.Array, config: Config) -> dict:
    """sin(angle), its bound, |K - K^|, and `errors` of every ridge [draw, gap, spectrum, ...].

    The sketch holds the m leading eigenvectors of X^T X + E, where E is random.
    """
    n, p, m = config.num_supports, config.num_features, config.width
    eye = jnp.eye(n)
    left, right, other, outputs = jax.random.split(key, 4)
    U, W = orthonormal(left, n, p), orthonormal(right, p, p)
    noise = jax.random.normal(other, (p, p))
    noise = (noise + noise.T) * config.perturbation / spectral_norm(noise + noise.T)
    P, leading = eigh(matmul(W * sigma[None], W.T) + noise)[1][:, -m:], W[:, -m:]
    outside = leading - matmul(P, matmul(P.T, leading))
    sine = jnp.sqrt(spectral_norm(matmul(outside.T, outside)))
    sine_bound = theory.subspace_sine(sigma[-m] - sigma[-m - 1], config.perturbation)
    x = matmul(U * jnp.sqrt(sigma)[None], W.T)
    task = Task(x=x, y=jax.random.normal(outputs, (n,)), x_query=x[:1])
    grams = [sketched(Linear(), sketch)(x, x) for sketch in (P, leading)]

    def errors(ridge: jax.Array) -> dict[str, jax.Array]:
        """Return errors of the sketch and the model, and the bound for three angles."""
        # sqrt(A): A is ridge I outside of the columns of U
        root = matmul(U * (jnp.sqrt(sigma + ridge) - jnp.sqrt(ridge))[None], U.T)
        root += jnp.sqrt(ridge) * eye
        exact, inverse, of_best = (solve(K + ridge * eye, eye) for K in (matmul(x, x.T), *grams))
        options = {"num_features": p, "ridge": ridge, "steps": m + 6, "sketch": P}
        model = constructions.conjugate_gradient(Linear(), **options)
        alpha = run_with_cache(model, task, names=("alpha",))[1]["alpha"][-1]
        target, on_sketch = (matmul(M, task.y[:, None])[:, 0] for M in (exact, inverse))
        size = lambda v: jnp.linalg.norm(matmul(root, v[:, None]))  # noqa: E731
        angles = {"bound": sine, "bound_by_gap": sine_bound, "bound_at_zero": 0.0}
        of_angle = partial(theory.relative_inverse_error_angle, sigma, m, ridge)
        bounds = jax.tree.map(of_angle, angles)
        return bounds | {
            "relative": spectral_norm(matmul(root, matmul(exact - inverse, root))),
            "absolute": spectral_norm(exact - inverse),
            "best": spectral_norm(matmul(root, matmul(exact - of_best, root))),
            "alpha": size(alpha - target) / size(target),
            "model_gap": largest_gap(alpha, on_sketch),
        }

    lost = spectral_norm(matmul(x, x.T) - grams[0])
    return {"sine": sine, "known": sine_bound, "size": lost, **jax.lax.map(errors, ridges)}


CLAIM = Claim(
    statement="Let the kernel be linear and let a sketch keep m features. If the eigenvalues "
    "sigma_1 >= sigma_2 >= ... of K have a gap sigma_m - sigma_(m+1), bounds on |inv(A) - inv(A^)| "
    "can be strengthened to bounds on the relative error |sqrt(A) (inv(A) - inv(A^)) sqrt(A)|. "
    "Here A = K + ridge I and A^ = K^ + ridge I, where K^ is the kernel matrix of the sketch.",
    truth="The source gives no formula; this one is ours. Let t be the largest angle between the "
    "sketch and the m leading eigenvectors of the features. The relative error is at most "
    "(sigma_1 + ridge) (sigma_(m+1) + ridge) / (ridge (sigma_1 cos^2 t + sigma_(m+1) sin^2 t + "
    "ridge)) - 1 <= sigma_(m+1) / (ridge cos^2 t) + tan^2 t. A sketch from features whose "
    "covariance has the error E has sin t <= |E| / (gap - |E|). If the gap is not above 2 |E|, "
    "the bound says nothing. From |K - K^| alone one only gets the bound (sigma_1 sin^2 t + "
    "sigma_(m+1) cos^2 t) / ridge, which is never smaller.",
    source="Cawley 2025, docs/theory/width_rank.md, notes",
    quote="operator-norm statements can be strengthened to relative error bounds under eigengap "
    "assumptions.",
    expected=HOLDS,
    required_inputs=THIS_TASK,
    run=run,
    config=Config(draws=20, num_supports=30, num_features=12, width=4, perturbation=0.2),
    axes=Config(gaps=(0.0, 0.3, 0.6, 0.9, 0.99), ridges=(0.01, 0.1, 1.0)),
    quick=Config(draws=5, gaps=(0.0, 0.6, 0.99), ridges=(0.01, 1.0)),
    plot=Plot(
        "gap / sigma_m", "relative", by=("spectrum", "ridge / sigma_m"), bound="bound from the gap"
    ),
)
