r"""Bounds and identities behind the claims, one in each function.

The code in brackets, such as (C4), names the claim, which `icl-krr verify` tests. In formulas
$A = K + \lambda I$, and $\hat K$, $\hat k$ and $\hat A = \hat K + \lambda I$ are those of a sketch.
`RATES` has the rate of each solver of the catalogue that has one. Arguments of several functions:

Args:
    kernel: kernel $k$ of the regression; a positive kernel, such as `Exponential` or `Gaussian`,
        where row sums or logarithms of its values are needed.
    ridge: ridge $\lambda$ > 0, in units of $k(x, x)$.
    sink: weight $c$ > 0 of the attention sink, which adds $c$ to every row sum.
    sigma: eigenvalues of $K$ [n], ascending, as `eigenvalues` returns them; the last is $\sigma_1$.
        A filter takes eigenvalues $\sigma$ of any shape.
    low, high: bounds $a$ > 0 and $b$ on the eigenvalues of $A$, or ends of a table.
    step_size: step size $\eta$ of gradient descent.
    width: number m of features that are kept, 0 to n; may be traced.
    temperature: temperature $\tau$ > 0 of the exponential kernel.
    bandwidth: lengthscale $h$ > 0 of the Gaussian kernel. For the exponential kernel on a sphere of
        radius 1, it is the square root of the temperature.
    dimension: dimension $d$ of the set of inputs, >= 1; p - 1 on a sphere.
    noise: variance of the noise in y.
    logit_bound: bound $L$ on the absolute logits.
"""

from ._random_features import performer_width, positive_variance, trigonometric_variance
from ._rates import (
    RATES,
    chebyshev_filter,
    chebyshev_rate,
    conjugate_gradient_rate,
    energy_norm,
    exact_filter,
    gradient_descent_rate,
    gradient_filter,
    heavy_ball_rate,
    neumann_factor,
    prediction_bound,
    stationary_factor,
)
from ._smoothing import (
    best_bandwidth,
    gaussian_from_exponential,
    mean_limit_bound,
    nearest_limit_bound,
    rank_correlation,
    smoothing_bias,
    smoothing_variance,
)
from ._softmax import best_epsilon, emulated_product, log_sink, recovery_error
from ._spectra import (
    effective_dimension,
    eigenvalues,
    lost_share_bound,
    opposite_pair_eigenvalue,
    preconditioned_eigenvalues,
    prefix_bounds,
    spectral_bounds,
)
from ._tables import Budget, budget, product_table_error, reciprocal_table_error
from ._width import (
    expected_gap,
    inverse_error_best,
    inverse_error_bound,
    inverse_error_tail,
    logit_perturbation,
    query_error_dual,
    query_error_features,
    relative_inverse_error_angle,
    sketch_error_best,
    sketch_error_tail,
    subspace_sine,
)

__all__ = [
    "RATES",
    "Budget",
    "best_bandwidth",
    "best_epsilon",
    "budget",
    "chebyshev_filter",
    "chebyshev_rate",
    "conjugate_gradient_rate",
    "effective_dimension",
    "eigenvalues",
    "emulated_product",
    "energy_norm",
    "exact_filter",
    "expected_gap",
    "gaussian_from_exponential",
    "gradient_descent_rate",
    "gradient_filter",
    "heavy_ball_rate",
    "inverse_error_best",
    "inverse_error_bound",
    "inverse_error_tail",
    "log_sink",
    "logit_perturbation",
    "lost_share_bound",
    "mean_limit_bound",
    "nearest_limit_bound",
    "neumann_factor",
    "opposite_pair_eigenvalue",
    "performer_width",
    "positive_variance",
    "preconditioned_eigenvalues",
    "prediction_bound",
    "prefix_bounds",
    "product_table_error",
    "query_error_dual",
    "query_error_features",
    "rank_correlation",
    "reciprocal_table_error",
    "recovery_error",
    "relative_inverse_error_angle",
    "sketch_error_best",
    "sketch_error_tail",
    "smoothing_bias",
    "smoothing_variance",
    "spectral_bounds",
    "stationary_factor",
    "subspace_sine",
    "trigonometric_variance",
]
