from ._assembly.choice import machine
from ._assembly.machine import Machine
from ._assembly.options import Options, Softmax
from ._assembly.prefix import CausalOptions, prefix_sums
from ._assembly.relu import ReLU
from ._assembly.slots import SUPPORTS, SUPPORTS_AND_QUERIES
from ._bayesian_average import bayesian_average
from ._compiled import (
    chebyshev,
    conjugate_gradient,
    gradient_descent,
    gradient_descent_in_alpha,
    gradient_descent_plus_plus,
    heavy_ball,
    lookup,
    nadaraya_watson,
    newton_schulz,
    preconditioned_chebyshev,
    preconditioned_conjugate_gradient,
    richardson,
)
from ._compiler.compile import compile
from ._delta_rules import (
    delta_rule,
    implicit_delta_rule,
    kalman_delta_rule,
    momentum_delta_rule,
    preconditioned_delta_rule,
)
from ._prefix_conjugate_gradient import (
    prefix_chebyshev,
    prefix_conjugate_gradient,
    prefix_posterior,
)

__all__ = [
    "SUPPORTS",
    "SUPPORTS_AND_QUERIES",
    "CausalOptions",
    "Machine",
    "Options",
    "ReLU",
    "Softmax",
    "bayesian_average",
    "chebyshev",
    "compile",
    "conjugate_gradient",
    "delta_rule",
    "gradient_descent",
    "gradient_descent_in_alpha",
    "gradient_descent_plus_plus",
    "heavy_ball",
    "implicit_delta_rule",
    "kalman_delta_rule",
    "lookup",
    "machine",
    "momentum_delta_rule",
    "nadaraya_watson",
    "newton_schulz",
    "preconditioned_chebyshev",
    "preconditioned_conjugate_gradient",
    "preconditioned_delta_rule",
    "prefix_chebyshev",
    "prefix_conjugate_gradient",
    "prefix_posterior",
    "prefix_sums",
    "richardson",
]
