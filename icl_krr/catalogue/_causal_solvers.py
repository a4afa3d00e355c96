"""Catalogue entries for causal solvers, whose tokens see only the supports before them."""

from __future__ import annotations

from typing import Any

from ._entries import Box, SolverEntry

RIDGE = Box(-5, 0.5, 1)
STEP = Box(-1.5, 1.3, -1)
PRIMAL = ("w", "r", "d", "prediction")
DELTA: Any = {
    "required_inputs": ("step_size",),
    "states": ("alpha", "prediction"),
    "causal": True,
    "sequential": True,
}
CORRECTION: Any = DELTA | {"blocks": {"linear": 1, "softmax": 2}, "fitted": {"step_size": STEP}}
FEATURED: Any = DELTA | {"kernels": "featured"}
CG: Any = {"kernels": "featured", "causal": True, "blocks": {"linear": 7}, "sums": True}

CAUSAL = (
    SolverEntry("delta_rule", "DELTA", **CORRECTION),
    SolverEntry(
        "momentum_delta_rule",
        "MDEL",
        **FEATURED | {"required_inputs": ("step_size", "momentum")},
        blocks={"linear": 2},
        fitted={"step_size": STEP, "momentum": Box(-2, 0, 0, True), "decay": Box(-0.5, 0, 0, True)},
        contains=("delta_rule",),
    ),
    SolverEntry("implicit_delta_rule", "IDEL", **CORRECTION),
    SolverEntry(
        "preconditioned_delta_rule",
        "PDEL",
        **FEATURED,
        blocks={"linear": 1},
        fitted={"step_size": Box(-2, 0.5), "initial": RIDGE},
        contains=("delta_rule",),
    ),
    SolverEntry(
        "kalman_delta_rule",
        "KDEL",
        **FEATURED | {"required_inputs": ("ridge",)},
        blocks={"linear": 3},
        fitted={"ridge": RIDGE, "process_noise": Box(-4, 0.5)},
    ),
    SolverEntry("prefix_conjugate_gradient", "MESA", **CG, states=PRIMAL, fitted={"ridge": RIDGE}),
    SolverEntry(
        "prefix_chebyshev",
        "PCHE",
        kernels="featured",
        required_inputs=("ridge", "spectrum"),
        states=PRIMAL,
        causal=True,
        blocks={"linear": 1},
    ),
    SolverEntry("prefix_posterior", "POST", **CG, states=("h", "r", "d", "variance", "prediction")),
    SolverEntry(
        "bayesian_average",
        "BMA",
        **CG,
        required_inputs=("ridges",),
        states=("means", "variances", "log_evidence", "weights", "prediction"),
    ),
)
