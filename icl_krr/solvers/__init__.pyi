from ._bayesian_average import AverageTrajectory, bayesian_average
from ._conjugate_gradient import conjugate_gradient
from ._delta_rules import (
    Token,
    delta_rule,
    implicit_delta_rule,
    kalman_delta_rule,
    momentum_delta_rule,
    preconditioned_delta_rule,
)
from ._derivatives import (
    change_without,
    derivative_in_bandwidth,
    derivative_in_projection,
    derivative_in_queries,
    derivative_in_ridge,
    derivative_in_supports,
    derivative_in_weights,
    derivative_in_y,
)
from ._exact import exact, leave_one_out, posterior
from ._gradient_descent import gradient_descent, gradient_descent_in_alpha
from ._gradient_descent_plus_plus import gradient_descent_plus_plus
from ._language.trace import per_step
from ._likelihood import log_marginal_likelihood
from ._lookup import lookup
from ._momentum import chebyshev, heavy_ball
from ._nadaraya_watson import nadaraya_watson
from ._newton_schulz import newton_schulz
from ._normalised import preconditioned_chebyshev, richardson
from ._preconditioned_conjugate_gradient import preconditioned_conjugate_gradient
from ._prefix_iterations import (
    PosteriorTrajectory,
    prefix_chebyshev,
    prefix_conjugate_gradient,
    prefix_posterior,
)
from ._results import CausalTrajectory, Posterior, Smoothing, Solution, Trajectory
from ._run import Solver, run, solver
from ._smoother import smoother_leave_one_out

__all__ = [
    "AverageTrajectory",
    "CausalTrajectory",
    "Posterior",
    "PosteriorTrajectory",
    "Smoothing",
    "Solution",
    "Solver",
    "Token",
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
    "implicit_delta_rule",
    "kalman_delta_rule",
    "leave_one_out",
    "log_marginal_likelihood",
    "lookup",
    "momentum_delta_rule",
    "nadaraya_watson",
    "newton_schulz",
    "per_step",
    "posterior",
    "preconditioned_chebyshev",
    "preconditioned_conjugate_gradient",
    "preconditioned_delta_rule",
    "prefix_chebyshev",
    "prefix_conjugate_gradient",
    "prefix_posterior",
    "richardson",
    "run",
    "smoother_leave_one_out",
    "solver",
]
