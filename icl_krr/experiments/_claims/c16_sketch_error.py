"""C16: every sketch of x satisfies the error bound of the best one."""

import jax
import numpy as np

from ... import theory
from .._shared.spectra import SKETCHES
from .claim import CORRECTED, NONE, Checks, Claim, Config, at_most, nearly
from .measuring import Plot, Rows, every, tidy
from .sketch_losses import FEW, HIDDEN, RANDOM, checks_of, losses


def run(config: Config, key: jax.Array) -> tuple[Rows, Checks]:
    m, h = config.width, np.asarray(config.levels)
    by_width = {w: measure(key, config.replace(width=w)) for w in sorted({*config.widths, m})}
    rows = []
    for width, results in by_width.items():
        axes = {"sketch": config.sketches, "width": [width], "draw": range(config.draws)}
        whole = {name: getattr(results, name)[:, 0] for name in ("tail", "sharp", "any_metric")}
        rows += tidy(axes, error=results.error.T[:, None], **whole)
    results = by_width[m]
    relative = results.any_metric, results.tail, results.plain, results.metric
    lost, tail, plain, best = (values / results.size for values in relative)
    few, sharp = plain[:, FEW], results.sharp[:, RANDOM]
    of_metric = nearly(results.metric[:, RANDOM], results.any_metric[:, RANDOM] * 2 / np.sqrt(3))
    return rows, {
        **checks_of(results, "|K - K^|", "sum_(i>m) sigma_i", "sigma_(m+1)", h),
        "hidden direction, every metric: |K - K^| / |K| >= 0.2": lost[:, HIDDEN],
        "hidden direction: sum_(i>m) sigma_i / |K| <= h^2": at_most(tail[:, HIDDEN], h**2),
        "features of rank m, random sketch, metric I: |K - K^| / |K| >= 0.1": few,
        "the same, best metric: |K - K^| / |K| <= 1e-8": best[:, FEW],
        "random sketch, best metric: |K - K^| <= (2 / sqrt 3) |K - Q K|": of_metric,
        "every sketch: rank of K^ <= m": at_most(results.rank, m),
        "every sketch: sigma_(m+1) <= |K - K^|": nearly(sharp[:, None], results.error),
    }


@every()
def measure(key: jax.Array, config: Config) -> dict[str, jax.Array]:
    """Return `losses` of K for every draw."""
    return losses(key, lambda K: K, theory.sketch_error_tail, theory.sketch_error_best, config)


CLAIM = Claim(
    statement="Every linear sketch of x to m channels P^T x gives, for every metric M = W_Q^T W_K "
    "of its queries and keys, a kernel matrix K^ with |K - K^| <= sum_(i>m) sigma_i in the "
    "spectral norm. Here K^_ij = x_i^T P M P^T x_j, and sigma_1 >= sigma_2 >= ... are the "
    "eigenvalues of K.",
    truth="For the best sketch, if the source means this one alone, the bound holds: its error is "
    "exactly sigma_(m+1), and no matrix of rank m has a smaller error. For another sketch P, the "
    "error of every metric is at least |K - Q K|, where Q projects on the columns of X P. The "
    "least-squares metric M = R^T R, with R = C P inv(P^T C P) and C = X^T X, gives K^ = Q K Q, "
    "with at most 2 / sqrt(3) times this error. It recovers K from a random sketch of features of "
    "rank m, which the metric I does not. For features of full rank a random sketch violates the "
    "bound with every metric in nearly all draws. No constant saves the bound either: a sketch may "
    "nearly hide the features' first direction.",
    source="Cawley 2025, docs/theory/width_rank.md, theorem",
    quote="If m < p, any computation that linearly preserves Phi across layers induces an "
    "effective rank-m sketch K^ with spectral approximation error controlled by the tail of K: "
    "||K - K^||_2 <= sum_{i>m} sigma_i(K) [...]",
    expected=CORRECTED,
    required_inputs=NONE,
    run=run,
    config=Config(draws=60, num_supports=40, num_features=20, width=8, spectrum="1/i"),
    axes=Config(widths=(2, 4, 8, 16), sketches=SKETCHES, levels=(0.1, 0.01, 0.001)),
    quick=Config(draws=20, widths=(8,)),
    plot=Plot(x="width", y="error", by=("sketch",), bound="tail"),
)
