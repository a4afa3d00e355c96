"""Reference solvers of kernel ridge regression that do not use a transformer.

Every solver takes one task and is jitted. Use `jax.vmap` for a batch. The solvers share no code
with the transformer, so agreement between a model and a solver is independent evidence.
"""

from .bayesian_average import AverageTrajectory, bayesian_average
from .conjugate_gradient import conjugate_gradient
from .delta_rule import delta_rule
from .derivatives import (
    change_without,
    derivative_in_bandwidth,
    derivative_in_projection,
    derivative_in_queries,
    derivative_in_ridge,
    derivative_in_supports,
    derivative_in_weights,
    derivative_in_y,
)
from .exact import exact, leave_one_out, posterior
from .gradient_descent import gradient_descent, gradient_descent_in_alpha
from .gradient_descent_plus_plus import gradient_descent_plus_plus
from .likelihood import log_marginal_likelihood
from .momentum import chebyshev, heavy_ball
from .nadaraya_watson import nadaraya_watson, smoother_leave_one_out
from .newton_schulz import newton_schulz
from .preconditioned_chebyshev import preconditioned_chebyshev
from .preconditioned_conjugate_gradient import preconditioned_conjugate_gradient
from .prefix_chebyshev import prefix_chebyshev
from .prefix_conjugate_gradient import prefix_conjugate_gradient
from .prefix_posterior import PosteriorTrajectory, prefix_posterior
from .results import CausalTrajectory, Posterior, Smoothing, Solution, Trajectory
from .richardson import richardson

__all__ = [
    "AverageTrajectory",
    "CausalTrajectory",
    "Posterior",
    "PosteriorTrajectory",
    "Smoothing",
    "Solution",
    "Trajectory",
    "bayesian_average",
    "change_without",
    "chebyshev",
    "conjugate_gradient",
    "delta_rule",
    "derivative_in_bandwidth",
    "derivative_in_projection",
    "derivative_in_queries",
    "derivative_in_ridge",
    "derivative_in_supports",
    "derivative_in_weights",
    "derivative_in_y",
    "exact",
    "gradient_descent",
    "gradient_descent_in_alpha",
    "gradient_descent_plus_plus",
    "heavy_ball",
    "leave_one_out",
    "log_marginal_likelihood",
    "nadaraya_watson",
    "newton_schulz",
    "posterior",
    "preconditioned_chebyshev",
    "preconditioned_conjugate_gradient",
    "prefix_chebyshev",
    "prefix_conjugate_gradient",
    "prefix_posterior",
    "richardson",
    "smoother_leave_one_out",
]
