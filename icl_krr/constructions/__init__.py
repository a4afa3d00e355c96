"""Solvers of kernel ridge regression as literal weights of a transformer.

A solver file is written once, in verbs (`machine`); how a verb becomes heads and units depends
on the attention (`linear_attention`), and `schedule` packs them into blocks.
"""

from .conjugate_gradient import conjugate_gradient
from .gradient_descent import gradient_descent
from .nadaraya_watson import nadaraya_watson

__all__ = ["conjugate_gradient", "gradient_descent", "nadaraya_watson"]
