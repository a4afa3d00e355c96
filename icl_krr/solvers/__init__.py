r"""Solvers of kernel ridge regression on arrays, without a transformer.

Iterative ones without a causal mask are functions with the mark `solver`, as `icl_krr.compile`
takes them. Every solver takes one task and is jitted; use `jax.vmap` for a batch. Tests compare it
with textbook formulas in NumPy and SciPy, which share no code with this library, and each model
with it. Results have the dtype of the task. An iterative solver returns a `Trajectory`, a causal
one a `CausalTrajectory`, with one entry for each iterate from 0 to `steps`. In formulas
$A = K + \lambda I$, $\alpha = A^{-1} y$, and $(a, b)$ is `spectrum`. Arguments that most share:

Args:
    kernel: kernel $k$ of the regression, or covariance function of a Gaussian process. Solvers of
        features need one with a feature map (`Linear`, `Polynomial`, `Features`); smoothers and the
        normaliser need a positive one (such as `Exponential` or `Gaussian`).
    ridge: ridge $\lambda$ > 0, in units of $k(x, x)$; the variance of the noise of a Gaussian
        process.
    steps: number of steps, >= 1. A delta rule learns one support a step; its default None is all n,
        and for weights 256, with which a task must not have more supports.
    step_size: step size $\eta$ > 0.
    spectrum: bounds (low, high) on the eigenvalues of $A$, as `icl_krr.spectral_bounds` returns
        them.
    options: keywords of the causal mask: prefix, log_gate, strength and window of
        `icl_krr.constructions.CausalOptions`; the momentum, preconditioned and Kalman delta rules
        take no window.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..catalogue import SOLVERS, SolverEntry, absent, find
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
from ._language import per_step
from ._likelihood import log_marginal_likelihood
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


def lookup(solver: str | SolverEntry) -> Callable[..., Any]:
    """Return the function of a solver of the catalogue.

    Args:
        solver: name or short name in the catalogue, or an entry of `icl_krr.catalogue.SOLVERS`.

    >>> lookup("CG").__name__
    'conjugate_gradient'
    """
    entry = find("solver", SOLVERS, solver) if isinstance(solver, str) else solver
    return entry.solver or globals()[entry.function]


if not TYPE_CHECKING:  # a type checker knows which names there are

    def __getattr__(name):
        raise absent(__name__, name)
