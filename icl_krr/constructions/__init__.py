"""Solvers of kernel ridge regression as literal weights of a transformer.

A solver file is written once, in verbs (`machine`); how a verb becomes heads depends on the
attention (`linear_attention`, `softmax_attention`), how it becomes units on the `arithmetic`,
and `packing` puts them into blocks (all in `assembly`). A slot of its states lives at the tokens
`SUPPORTS` or `SUPPORTS_AND_QUERIES`. Every construction takes the same further keywords, `Options`.
"""

from .assembly.choice import machine
from .assembly.options import Options, Softmax
from .assembly.relu import ReLU
from .assembly.slots import SUPPORTS, SUPPORTS_AND_QUERIES
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
    "Options",
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
