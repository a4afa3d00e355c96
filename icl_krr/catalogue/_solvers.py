"""Catalogue entries for the solvers."""

from __future__ import annotations

from typing import Any

from ._causal_solvers import CAUSAL, RIDGE
from ._entries import Box, SolverEntry, by_name

STEP = Box(-1.5, 0.7, -1)
VARIANT: dict[str, Any] = {"sums": True, "variant_of": "conjugate_gradient"}
PCG: Any = VARIANT | {"function": "preconditioned_conjugate_gradient"}
SPECTRAL = ("ridge", "spectrum")
FIELDS = ("alpha", "r", "prediction")
SPECTRUM = {"high": Box(-1, 0.5, 1), "low_over_high": Box(-5, 0, 0, True)}
KEYWORDS = {"ridge": {"ridge": RIDGE}, "step_size": {"step_size": STEP}, "spectrum": SPECTRUM}
"""Keywords that a solver in a user's file may have without a default, and what is fitted instead.
"""

SOLVERS = by_name(
    SolverEntry(
        "nadaraya_watson",
        "NW",
        kernels="positive",
        required_inputs=(),
        states=("prediction",),
        blocks={"softmax": 1},
        iterates=False,
        fitted={},
    ),
    SolverEntry(
        "gradient_descent",
        "GD",
        required_inputs=SPECTRAL,
        states=FIELDS,
        blocks={"linear": 1, "softmax": 1},
        fitted={"ridge": RIDGE, "step_size": STEP},
    ),
    SolverEntry(
        "gradient_descent_in_alpha",
        "GDIA",
        required_inputs=SPECTRAL,
        states=FIELDS,
        blocks={"linear": 2, "softmax": 2},
        fitted={"ridge": RIDGE, "step_size": Box(-1.5, 1.3, -2)},
        variant_of="gradient_descent",
    ),
    SolverEntry(
        "richardson",
        "RIC",
        kernels="positive",
        states=("alpha", "prediction"),
        blocks={"softmax": 1},
        fitted={"ridge": RIDGE, "step_size": Box(-1, 0.3, 0, True)},
    ),
    SolverEntry(
        "heavy_ball",
        "HB",
        required_inputs=SPECTRAL,
        blocks={"linear": 1, "softmax": 1},
        fitted={"ridge": RIDGE, "step_size": STEP, "momentum": Box(-2, 0, 0, True)},
        contains=("gradient_descent",),
    ),
    SolverEntry(
        "chebyshev",
        "CHE",
        required_inputs=SPECTRAL,
        blocks={"linear": 1, "softmax": 1},
        fitted={"ridge": RIDGE, **SPECTRUM},
        contains=("gradient_descent",),
    ),
    SolverEntry(
        "preconditioned_chebyshev",
        "NCHE",
        kernels="bounded",
        required_inputs=("ridge", "num_supports"),
        states=("alpha", "prediction"),
        blocks={"softmax": 1},
        fitted={"ridge": RIDGE, "num_supports": Box(0, 3)},
    ),
    SolverEntry(
        "conjugate_gradient",
        "CG",
        blocks={"linear": 5, "softmax": 7},
        sums=True,
        fitted={"ridge": RIDGE},
    ),
    SolverEntry(
        "fused_conjugate_gradient",
        "FCG",
        "conjugate_gradient",
        options={"form": "fused"},
        blocks={"linear": 3, "softmax": 5},
        **VARIANT,
    ),
    SolverEntry(
        "pipelined_conjugate_gradient",
        "PiCG",
        "conjugate_gradient",
        options={"form": "pipelined"},
        blocks={"linear": 2, "softmax": 4},
        **VARIANT,
    ),
    SolverEntry(
        "jacobi_conjugate_gradient",
        "JCG",
        blocks={"linear": 5, "softmax": 8},
        **PCG,
        fitted={"ridge": RIDGE},
        aliases=("pcg",),
    ),
    SolverEntry(
        "normalised_conjugate_gradient",
        "DCG",
        kernels="positive",
        options={"preconditioner": "normaliser"},
        states=("alpha", "p", "prediction"),
        blocks={"softmax": 8},
        **PCG,
    ),
    SolverEntry(
        "nystrom_conjugate_gradient",
        "NCG",
        kernels="featured",
        required_inputs=("ridge", "preconditioner"),
        blocks={"linear": 6},
        **PCG,
        one_task=True,
    ),
    SolverEntry(
        "newton_schulz",
        "NS",
        kernels="featured",
        required_inputs=SPECTRAL,
        states=("alpha", "prediction"),
        blocks={"linear": 2},
        fitted={"ridge": RIDGE, "scale": Box(-1.5, 0.5, -1)},
    ),
    SolverEntry(
        "gradient_descent_plus_plus",
        "GD++",
        kernels="featured",
        required_inputs=("step_size", "curvature"),
        states=("r", "prediction"),
        blocks={"linear": 1},
        one_task=True,
    ),
    *CAUSAL,
)
