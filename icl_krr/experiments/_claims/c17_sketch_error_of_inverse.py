"""C17: every sketch satisfies a bound on the inverse of K + ridge I."""

import jax
import jax.numpy as jnp
import numpy as np

from ... import theory
from ..._core.linalg import solve
from .._shared.spectra import METRIC
from .claim import CORRECTED, NONE, Checks, Claim, Config, at_least, nearly
from .measuring import Plot, Rows, every, tidy
from .sketch_losses import HIDDEN, RANDOM, checks_of, losses


def run(config: Config, key: jax.Array) -> tuple[Rows, Checks]:
    ridges, trivial = jnp.asarray(config.ridges), 1 / np.asarray(config.ridges)
    results = measure(key, ridges, config)
    most = theory.inverse_error_bound(results.lost, ridges[None, :, None])
    axes = {"draw": range(config.draws), "ridge": config.ridges, "sketch": config.sketches}
    whole = {name: getattr(results, name)[..., :1] for name in ("tail", "sharp", "any_metric")}
    rows = tidy(axes, error=results.error, **whole)
    error, of_sum = "|inv(A) - inv(A^)|", "sum_(i>m) sigma_i / ridge^2"
    sharp, h = "sigma_(m+1) / (ridge (ridge + sigma_(m+1)))", np.asarray(config.levels)
    last, size = config.ridges[-1], results.size[:, -1, HIDDEN]
    below = 1 - results.error[..., 0] / results.sharp[..., RANDOM]
    return rows, {
        **checks_of(results, error, of_sum, sharp, h, trivial),
        f"hidden direction, every metric, largest ridge: {error} >= 0.2 |K| / (ridge (ridge + "
        "|K|))": at_least(results.any_metric[:, -1, HIDDEN], 0.2 * size / (last * (last + size))),
        f"best sketch: 1 - {error} / ({sharp}) <= 1e-3": below,
        f"every sketch: {error} <= min(|K - K^| / ridge^2, 1 / ridge)": nearly(results.error, most),
    }


@every(1, 1)
def measure(key: jax.Array, ridge: jax.Array, config: Config) -> dict[str, jax.Array]:
    """Return `losses` of inv(A) [draw, ridge], as those of I / ridge - inv(A), at least 0."""
    eye = jnp.eye(config.num_supports)
    tail, sharp = theory.inverse_error_tail, theory.inverse_error_best
    of = lambda K: eye / ridge - solve(K + ridge * eye, eye)  # noqa: E731
    return losses(key, of, tail, sharp, config, ridge)


CLAIM = Claim(
    statement="Up to a constant, every linear sketch to m channels P^T x gives, for every metric M "
    "= W_Q^T W_K of its queries and keys, a kernel matrix K^ with |inv(A) - inv(A^)| <= sum_(i>m) "
    "sigma_i / ridge^2 in the spectral norm. Here K^_ij = x_i^T P M P^T x_j, A = K + ridge I, A^ = "
    "K^ + ridge I, and sigma_1 >= sigma_2 >= ... are the eigenvalues of K.",
    truth="For the best sketch, if the source means this one alone, the bound holds: its error is "
    "exactly sigma_(m+1) / (ridge (ridge + sigma_(m+1))). For other sketches no constant saves the "
    "bound, whatever the metric: a sketch may nearly hide the first direction of the features. "
    "If Q projects on the columns of X P, the error of every metric is at least |(I - Q) K inv(A)| "
    "/ ridge. For a random sketch and features with standard deviations 1/i, this exceeds the sum "
    "only if the ridge is large. No error exceeds the smaller of |K - K^| / ridge^2 and 1 / ridge.",
    source="Cawley 2025, paper/sections/theory.md, theorem 2",
    quote="If the Transformer width m < p, any linear preservation of features induces a low-rank "
    "sketch K^ of rank at most m. The approximation error in the ridge estimator is bounded by the "
    "spectral tail: ||(K + lambda I)^-1 - (K^ + lambda I)^-1||_2 <~ (1 / lambda^2) sum_{i>m} "
    "sigma_i(K)",
    expected=CORRECTED,
    required_inputs=NONE,
    run=run,
    config=Config(draws=100, num_supports=40, num_features=20, width=8, spectrum="1/i"),
    axes=Config(
        ridges=(0.01, 0.1, 1.0, 10.0, 100.0),
        sketches=("best", "orthonormal", METRIC, "gaussian", "landmarks"),
        levels=(0.1, 0.01, 0.001),
    ),
    quick=Config(draws=10, ridges=(0.1, 10.0)),
    plot=Plot(x="ridge", y="error", by=("sketch",), bound="sharp", logx=True),
)
