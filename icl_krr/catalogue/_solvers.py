"""Catalogue rows for the solvers."""

from __future__ import annotations

from typing import Any

from ._causal_solvers import CAUSAL, RIDGE
from ._rows import Box, Solver

STEP = Box(-1.5, 0.7, -1)
CG, PCG = (
    (f"icl_krr.constructions:{name}", f"icl_krr.solvers:{name}")
    for name in ("conjugate_gradient", "preconditioned_conjugate_gradient")
)
VARIANT: dict[str, Any] = {"sums": True, "variant_of": "conjugate_gradient"}
SPECTRAL = ("ridge", "spectrum")
FIELDS = ("alpha", "r", "prediction")
EXPECTED = "icl_krr.experiments._ablate.expected"
SPECTRUM = {"high": Box(-1, 0.5, 1), "low_over_high": Box(-5, 0, 0, True)}
KEYWORDS = {"ridge": {"ridge": RIDGE}, "step_size": {"step_size": STEP}, "spectrum": SPECTRUM}
"""Keywords that a solver in a user's file may have without a default, and what is fitted instead.
"""

SOLVERS = {
    row.name: row
    for row in (
        Solver(
            "nadaraya_watson",
            "NW",
            kernels="positive",
            told=(),
            states=("prediction",),
            blocks={"softmax": 1},
            iterates=False,
            fitted={},
        ),
        Solver(
            "gradient_descent",
            "GD",
            told=SPECTRAL,
            states=FIELDS,
            blocks={"linear": 1, "softmax": 1},
            fitted={"ridge": RIDGE, "step_size": STEP},
            rate="icl_krr.theory:gradient_descent_rate",
        ),
        Solver(
            "gradient_descent_in_alpha",
            "GDIA",
            told=SPECTRAL,
            states=FIELDS,
            blocks={"linear": 2, "softmax": 2},
            fitted={"ridge": RIDGE, "step_size": Box(-1.5, 1.3, -2)},
            variant_of="gradient_descent",
        ),
        Solver(
            "richardson",
            "RIC",
            kernels="positive",
            states=("alpha", "prediction"),
            blocks={"softmax": 1},
            fitted={"ridge": RIDGE, "step_size": Box(-1, 0.3, 0, True)},
            expected=f"{EXPECTED}:RICHARDSON",
        ),
        Solver(
            "heavy_ball",
            "HB",
            told=SPECTRAL,
            blocks={"linear": 1, "softmax": 1},
            fitted={"ridge": RIDGE, "step_size": STEP, "momentum": Box(-2, 0, 0, True)},
            contains=("gradient_descent",),
            rate="icl_krr.theory:heavy_ball_rate",
        ),
        Solver(
            "chebyshev",
            "CHE",
            told=SPECTRAL,
            blocks={"linear": 1, "softmax": 1},
            fitted={"ridge": RIDGE, **SPECTRUM},
            arguments="icl_krr.probes._naming.candidates:spectral_arguments",
            contains=("gradient_descent",),
            rate="icl_krr.theory:chebyshev_rate",
            expected=f"{EXPECTED}:CHEBYSHEV",
        ),
        Solver(
            "preconditioned_chebyshev",
            "NCHE",
            kernels="bounded",
            told=("ridge", "num_supports"),
            states=("alpha", "prediction"),
            blocks={"softmax": 1},
            fitted={"ridge": RIDGE, "num_supports": Box(0, 3)},
        ),
        Solver(
            "conjugate_gradient",
            "CG",
            blocks={"linear": 5, "softmax": 7},
            sums=True,
            fitted={"ridge": RIDGE},
            rate="icl_krr.theory:conjugate_gradient_rate",
            expected=f"{EXPECTED}:CONJUGATE_GRADIENT",
        ),
        Solver(
            "fused_conjugate_gradient",
            "FCG",
            *CG,
            options={"form": "fused"},
            blocks={"linear": 3, "softmax": 5},
            **VARIANT,
        ),
        Solver(
            "pipelined_conjugate_gradient",
            "PiCG",
            *CG,
            options={"form": "pipelined"},
            blocks={"linear": 2, "softmax": 4},
            **VARIANT,
        ),
        Solver(
            "jacobi_conjugate_gradient",
            "JCG",
            *PCG,
            blocks={"linear": 5, "softmax": 8},
            **VARIANT,
            fitted={"ridge": RIDGE},
            aliases=("pcg",),
        ),
        Solver(
            "normalised_conjugate_gradient",
            "DCG",
            *PCG,
            kernels="positive",
            options={"preconditioner": "normaliser"},
            states=("alpha", "p", "prediction"),
            blocks={"softmax": 8},
            **VARIANT,
        ),
        Solver(
            "nystrom_conjugate_gradient",
            "NCG",
            *PCG,
            kernels="featured",
            told=("ridge", "preconditioner"),
            blocks={"linear": 6},
            **VARIANT,
            one_task=True,
        ),
        Solver(
            "newton_schulz",
            "NS",
            kernels="featured",
            told=SPECTRAL,
            states=("alpha", "prediction"),
            blocks={"linear": 2},
            fitted={"ridge": RIDGE, "scale": Box(-1.5, 0.5, -1)},
            arguments="icl_krr.probes._naming.candidates:newton_schulz_arguments",
        ),
        Solver(
            "gradient_descent_plus_plus",
            "GD++",
            kernels="featured",
            told=("step_size", "curvature"),
            states=("r", "prediction"),
            blocks={"linear": 1},
            one_task=True,
        ),
        *CAUSAL,
    )
}
