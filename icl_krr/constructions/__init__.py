"""Solvers of kernel ridge regression as literal weights of a transformer.

A solver file is written once, in verbs (`machine`); how a verb becomes heads depends on the
attention (`linear_attention`, `softmax_attention`), how it becomes units on the `arithmetic`,
and `schedule` packs them into blocks. A slot of its states lives at the tokens `SUPPORTS` or
`SUPPORTS_AND_QUERIES`.
"""

from .assembly.arithmetic import ReLU
from .assembly.choice import machine
from .assembly.slots import SUPPORTS, SUPPORTS_AND_QUERIES
from .assembly.softmax_attention import Softmax
from .conjugate_gradient import conjugate_gradient
from .gradient_descent import gradient_descent, gradient_descent_in_alpha
from .gradient_descent_plus_plus import gradient_descent_plus_plus
from .momentum import chebyshev, heavy_ball
from .nadaraya_watson import nadaraya_watson
from .newton_schulz import newton_schulz
from .preconditioned_conjugate_gradient import preconditioned_conjugate_gradient
from .richardson import richardson

__all__ = [
    "SUPPORTS",
    "SUPPORTS_AND_QUERIES",
    "ReLU",
    "Softmax",
    "chebyshev",
    "conjugate_gradient",
    "gradient_descent",
    "gradient_descent_in_alpha",
    "gradient_descent_plus_plus",
    "heavy_ball",
    "machine",
    "nadaraya_watson",
    "newton_schulz",
    "preconditioned_conjugate_gradient",
    "richardson",
]
