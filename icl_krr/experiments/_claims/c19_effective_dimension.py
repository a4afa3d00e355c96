"""C19: d_eff channels are nearly as good as full width."""

import jax
import jax.numpy as jnp
import numpy as np

from ... import Linear, constructions, predict, solvers, theory
from ...sketches import best
from ...tasks import LinearRegression, Task, sample
from .._shared.spectra import SPECTRA, flat_task, ridge_of
from .claim import CORRECTED, THIS_TASK, Checks, Claim, Config, at_most, check, stated
from .measuring import Plot, Rows, every, gap, sizes, stacked, tidy

WIDTHS = (1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 28, 32, 36)


def run(config: Config, key: jax.Array) -> tuple[Rows, Checks]:
    widths, d = np.asarray(config.widths), config.dimension
    index = jnp.arange(1.0, config.num_features + 1)
    data = stacked(measure(key, SPECTRA[name](index), config) for name in config.spectra)
    bound = np.asarray(theory.lost_share_bound(d, jnp.asarray(widths)))
    curves, risks = np.median(data.gap, axis=1), np.median(data.risk, axis=1)  # over draws
    x, y = (np.log(v[:, widths <= d / 2]) for v in (np.median(data.tail, axis=1), curves))
    slopes = np.array([np.polyfit(tail, log_gap, 1)[0] for tail, log_gap in zip(x, y, strict=True)])
    fits = [np.corrcoef(tail, log_gap)[0, 1] ** 2 for tail, log_gap in zip(x, y, strict=True)]
    pooled = np.corrcoef(x.ravel(), y.ravel())[0, 1] ** 2
    axes = {"spectrum": config.spectra, "draw": range(config.draws), "m / d_eff": widths / d}
    values = {"gap": data.gap, "excess": data.risk, "expected": data.expected, "width": widths}
    values |= {"ridge": data.ridge[..., None], "tail": data.tail, "slope": slopes[:, None, None]}
    rows = tidy(axes, **values, fit=np.array(fits)[:, None, None])
    ratio = (curves / np.median(data.expected, axis=1))[:, widths <= 2 * d]
    at = lambda values, x: values[..., list(widths).index(round(x * d))]  # noqa: E731
    level = theory.effective_dimension(jnp.ones(d + 1), 1.0)
    equal = abs(0.5 / theory.lost_share_bound(level, d) - 1)
    flat = np.sqrt(np.mean(flat_gaps(key, np.array(config.ranks), config) ** 2, axis=0))
    of_flat = flat / np.sqrt(1 - d / np.asarray(config.ranks))
    of_share = at_most(data.share, bound, trivial=1)
    of_supports = at_most(data.moved, bound, trivial=1)
    tripled = check(at(risks, 3), reading="m is a multiple of d_eff, first sentence alone")
    return rows, {
        "flat spectra (r equal eigenvalues, r = 2 d_eff and more), m = d_eff: |f^ - f*| / |f*| <= "
        "1/2, root mean square over draws (1/2 is ours: half of the answer)": stated(flat[None]),
        "m = d_eff, every spectrum: median of risk / risk "
        "of full width <= 1.1 (10 % is ours)": stated(at(risks, 1)[None]),
        "m <= d_eff / 2: largest / smallest exponent a, with gap ~ tail^a fitted to each spectrum, "
        "is 1 (1.5 is ours: any power of the gap may "
        "be proportional to the tail)": at_most(np.max(slopes) / np.min(slopes), 1.5, stated=True),
        "m <= d_eff / 2: R^2 of gap ~ tail^a for each spectrum >= 0.5": fits,
        "m <= d_eff / 2: R^2 of gap ~ tail^a for all spectra together <= 0.7": pooled,
        "flat spectra, m = d_eff: |f^ - f*| / |f*| / sqrt(1 - m / r) in [0.85, 1.15]": of_flat,
        "every spectrum: share sigma_(m+1) / (sigma_(m+1) + ridge) <= d_eff / (m + 1)": of_share,
        "every spectrum, at the supports: |f^ - f*| <= |y| d_eff / (m + 1)": of_supports,
        "m + 1 equal eigenvalues: | share (m + 1) / d_eff - 1 | <= 1e-9": equal,
        "m = 3 d_eff, every spectrum: median of risk / risk of full width <= 1.1": tripled,
        "m <= 2 d_eff: log_3(median gap / expected gap) in [-1, 1]": np.log(ratio) / np.log(3),
    }


@every()
def measure(key: jax.Array, deviations: jax.Array, config: Config) -> dict[str, jax.Array]:
    """Gaps, risks and shares for every width [draw, width], and the ridge of this d_eff [draw].

    The gap |f^ - f*| / |f*| at the queries, `risk` over that of f*, |f^ - f*| / |y| at the supports
    (`moved`), the expected gap, the `tail` and the `share` of sigma_(m+1).
    """
    p, q, widths = config.num_features, config.num_queries, jnp.asarray(config.widths)
    process = LinearRegression(**sizes(config), noise=config.noise, spectrum=deviations**2)
    task = sample(key, process)
    sigma = theory.eigenvalues(Linear(), task)
    ridge, P = ridge_of(sigma, config.dimension), best(task.x, p)
    all_points = Task(x=task.x, y=task.y, x_query=jnp.concatenate([task.x_query, task.x]))
    target = solvers.exact(Linear(), all_points, ridge=ridge).prediction
    risk = lambda f: jnp.mean((f[:q] - task.y_query) ** 2)  # noqa: E731

    def of_width(width: jax.Array) -> dict[str, jax.Array]:
        # channels >= width are 0, so that one compiled program serves every width
        sketch = jnp.where(jnp.arange(p)[None] < width, P, 0)
        options = {"num_features": p, "ridge": ridge, "steps": p, "sketch": sketch}
        f = predict(constructions.conjugate_gradient(Linear(), **options), all_points)
        return {
            "gap": gap(f[:q], target[:q]),
            "risk": risk(f) / risk(target),
            "moved": jnp.linalg.norm((f - target)[q:]) / jnp.linalg.norm(task.y),
            "expected": theory.expected_gap(sigma, width, ridge, 1 / p, config.noise),
            "tail": theory.sketch_error_tail(sigma, width) / jnp.sum(sigma),
            "share": ridge * theory.inverse_error_best(sigma, width, ridge),
        }

    return {**jax.vmap(of_width)(widths), "ridge": ridge}


@every(1, 0)
def flat_gaps(key: jax.Array, rank: jax.Array, config: Config) -> jax.Array:
    """Return |f^ - f*| / |f*| at m = d_eff [draw, rank] if K has r eigenvalues 1 and others 0."""
    p, m = max(config.ranks), config.dimension
    task = flat_task(key, rank, p, config.num_supports, config.num_queries)
    ridge = rank / m - 1  # so that d_eff = rank / (1 + ridge) = m
    options = {"num_features": p, "ridge": ridge, "steps": 2, "sketch": best(task.x, m)}
    prediction = predict(constructions.conjugate_gradient(Linear(), **options), task)
    return gap(prediction, solvers.exact(Linear(), task, ridge=ridge).prediction)


CLAIM = Claim(
    statement="A model with m >= d_eff = tr(K inv(K + ridge I)) feature channels predicts nearly "
    "what kernel ridge regression f* predicts, for every spectrum of K. With m far below d_eff, "
    "its error is in proportion to the tail, the sum of the eigenvalues sigma_i with i > m.",
    truth="The best sketch changes the predictions at the supports by at most |y| d_eff / (m + 1). "
    "So m must be a multiple of d_eff: the bound is about |y| at d_eff, and |y| / 3 at 3 d_eff, "
    "where the risk (mean squared error) is within 10 % of that of full width for every tested "
    "decay. If r eigenvalues are equal and m = d_eff, the relative gap to f* is sqrt(1 - m / r), "
    "near 1 for large r. Below d_eff the gap is a power of the tail that depends on the spectrum. "
    "All this is about features of the kernel. For the exponential kernel d_eff does not count the "
    "channels of x that a model needs: three can be exact at d_eff = 40 (C20).",
    source="Cawley 2025, docs/theory/width_rank.md, theorem",
    quote="Moreover, writing the effective dimension d_eff(lambda) = tr(K (K + lambda I)^-1), "
    "width m controls approximation via the spectral tail beyond m: when m >= d_eff(lambda), the "
    "induced error is small; when m << d_eff(lambda), prediction degrades in proportion to the "
    "tail mass sum_{i>m} sigma_i(K).",
    expected=CORRECTED,
    required_inputs=THIS_TASK,
    run=run,
    config=Config(
        draws=20, num_supports=80, num_features=40, num_queries=64, noise=0.1, dimension=8
    ),
    axes=Config(widths=WIDTHS, spectra=tuple(SPECTRA), ranks=(16, 32, 80)),
    quick=Config(draws=10, widths=(1, 2, 4, 8, 16, 24), ranks=(16,)),
    plot=Plot(x="m / d_eff", y="gap", by=("spectrum",), bound="expected"),
)
