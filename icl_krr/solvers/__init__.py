"""Oracles: kernel ridge regression without a transformer, as independent evidence.

Every solver is written for one task and jitted; batch it by `jax.vmap`. None of them knows
the transformer, so that agreement between a model and a solver means something.
"""

from .conjugate_gradient import conjugate_gradient
from .exact import exact, leave_one_out
from .gradient_descent import gradient_descent
from .nadaraya_watson import nadaraya_watson, smoother_leave_one_out
from .results import Smoothing, Solution, Trajectory

__all__ = [
    "Smoothing",
    "Solution",
    "Trajectory",
    "conjugate_gradient",
    "exact",
    "gradient_descent",
    "leave_one_out",
    "nadaraya_watson",
    "smoother_leave_one_out",
]
