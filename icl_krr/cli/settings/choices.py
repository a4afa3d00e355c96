"""The words that options take, where a catalogue elsewhere has as many entries."""

from typing import Literal

Solver = Literal[
    "conjugate-gradient",
    "fused-conjugate-gradient",
    "pipelined-conjugate-gradient",
    "jacobi-conjugate-gradient",
    "nystrom-conjugate-gradient",
    "chebyshev",
    "heavy-ball",
    "gradient-descent",
    "gradient-descent-in-alpha",
    "richardson",
    "newton-schulz",
    "gradient-descent-plus-plus",
    "nadaraya-watson",
]
Kernel = Literal["linear", "exponential", "gaussian"]
Axis = Literal[
    "depth",
    "width",
    "ridge",
    "temperature",
    "context",
    "features",
    "precision",
    "arithmetic",
]
Suite = Literal[
    "forward",
    "gradient",
    "attention",
    "context",
    "exact",
    "iterative",
    "training",
    "startup",
    "profile",
    "scaling",
]
