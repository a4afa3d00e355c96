r"""Bounds and identities behind the claims, one in each function.

The code in brackets, such as (C4), names the claim. `icl-krr verify` tests every claim. In formulas
$A = K + \lambda I$, and $\hat K$, $\hat k$ and $\hat A = \hat K + \lambda I$ are those of a sketch.
A function that does not say what it returns returns its bound or its numbers, in the shape that its
signature names and in the dtype of its arrays.

Many functions take these arguments:

Args:
    kernel: kernel $k$ of the regression; a positive kernel, such as `Exponential` or `Gaussian`,
        where row sums or logarithms of its values are needed.
    task: supports, outputs and queries; x [n, p], y [n] or [n, r], x_query [q, p].
    ridge: ridge $\lambda$ > 0, in units of $k(x, x)$.
    sink: weight $c$ > 0 of the attention sink, which adds $c$ to every row sum.
    sigma: eigenvalues of $K$ [n], ascending, as `eigenvalues` returns them; the last is
        $\sigma_1$.
    width: number m of features that are kept, 0 to n; may be traced.

Raises:
    ValueError: a number is out of range, bounds are not 0 < low <= high, or `task` is a batch.
    TypeError: an argument is not a number, `kernel` is not positive where it must be, or the dtype
        of `task` is not float32 or float64.
    MemoryError: the kernel matrix does not fit into memory.
"""

from .consistency import best_bandwidth, smoothing_bias, smoothing_variance
from .emulation import best_epsilon, emulated_product, emulation_rounding, emulation_truncation
from .filters import chebyshev_filter, exact_filter, gradient_filter
from .random_features import performer_width, positive_variance, trigonometric_variance
from .rates import (
    chebyshev_rate,
    conjugate_gradient_rate,
    energy_norm,
    gradient_descent_rate,
    heavy_ball_rate,
    neumann_factor,
    prediction_bound,
    stationary_factor,
)
from .richardson import preconditioned_eigenvalues, richardson_bounds
from .smoothing import (
    gaussian_from_exponential,
    gaussian_logits,
    logit_variance,
    mean_limit_bound,
    nearest_limit_bound,
    rank_correlation,
    smoothing_gap,
)
from .softmax import dominant_sink_error, log_normaliser, log_sink, recovery_error, sink_weight
from .spectra import (
    distinct_eigenvalues,
    effective_dimension,
    eigenvalues,
    lost_share_bound,
    opposite_pair_eigenvalue,
    prefix_bounds,
    spectral_bounds,
)
from .subspaces import relative_inverse_error_angle, subspace_sine
from .tables import Budget, budget, product_table_error, reciprocal_table_error, table_width
from .width import (
    expected_gap,
    inverse_error_best,
    inverse_error_bound,
    inverse_error_tail,
    logit_perturbation,
    query_error_dual,
    query_error_features,
    relative_inverse_error_best,
    sketch_error_best,
    sketch_error_tail,
)

__all__ = [
    "Budget",
    "best_bandwidth",
    "best_epsilon",
    "budget",
    "chebyshev_filter",
    "chebyshev_rate",
    "conjugate_gradient_rate",
    "distinct_eigenvalues",
    "dominant_sink_error",
    "effective_dimension",
    "eigenvalues",
    "emulated_product",
    "emulation_rounding",
    "emulation_truncation",
    "energy_norm",
    "exact_filter",
    "expected_gap",
    "gaussian_from_exponential",
    "gaussian_logits",
    "gradient_descent_rate",
    "gradient_filter",
    "heavy_ball_rate",
    "inverse_error_best",
    "inverse_error_bound",
    "inverse_error_tail",
    "log_normaliser",
    "log_sink",
    "logit_perturbation",
    "logit_variance",
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
    "relative_inverse_error_best",
    "richardson_bounds",
    "sink_weight",
    "sketch_error_best",
    "sketch_error_tail",
    "smoothing_bias",
    "smoothing_gap",
    "smoothing_variance",
    "spectral_bounds",
    "stationary_factor",
    "subspace_sine",
    "table_width",
    "trigonometric_variance",
]
