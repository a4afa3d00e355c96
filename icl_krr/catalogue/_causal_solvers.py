"""Catalogue entries for causal solvers, whose tokens see only the supports before them."""

from __future__ import annotations

from typing import Any

from ._entries import Box, SolverEntry

RIDGE = Box(-5, 0.5, 1)
STEP = Box(-1.5, 1.3, -1)
PRIMAL, DUAL = ("w", "r", "d", "prediction"), ("alpha", "prediction")


DELTA: dict[str, Any] = {"states": DUAL, "causal": True, "sequential": True}

CAUSAL = (
    SolverEntry(
        "delta_rule",
        "DELTA",
        required_inputs=("step_size",),
        **DELTA,
        blocks={"linear": 1, "softmax": 2},
        fitted={"step_size": STEP},
    ),
    SolverEntry(
        "momentum_delta_rule",
        "MDEL",
        kernels="featured",
        required_inputs=("step_size", "momentum"),
        **DELTA,
        blocks={"linear": 2},
        fitted={"step_size": STEP, "momentum": Box(-2, 0, 0, True), "decay": Box(-0.5, 0, 0, True)},
        contains=("delta_rule",),
    ),
    SolverEntry(
        "implicit_delta_rule",
        "IDEL",
        required_inputs=("step_size",),
        **DELTA,
        blocks={"linear": 1, "softmax": 2},
        fitted={"step_size": STEP},
    ),
    SolverEntry(
        "preconditioned_delta_rule",
        "PDEL",
        kernels="featured",
        required_inputs=("step_size",),
        **DELTA,
        blocks={"linear": 1},
        fitted={"step_size": Box(-2, 0.5), "initial": RIDGE},
        contains=("delta_rule",),
    ),
    SolverEntry(
        "kalman_delta_rule",
        "KDEL",
        kernels="featured",
        **DELTA,
        blocks={"linear": 3},
        fitted={"ridge": RIDGE, "process_noise": Box(-4, 0.5)},
    ),
    SolverEntry(
        "prefix_conjugate_gradient",
        "MESA",
        kernels="featured",
        states=PRIMAL,
        causal=True,
        blocks={"linear": 7},
        sums=True,
        fitted={"ridge": RIDGE},
    ),
    SolverEntry(
        "prefix_chebyshev",
        "PCHE",
        kernels="featured",
        required_inputs=("ridge", "spectrum"),
        states=PRIMAL,
        causal=True,
        blocks={"linear": 1},
    ),
    SolverEntry(
        "prefix_posterior",
        "POST",
        kernels="featured",
        states=("h", "r", "d", "variance", "prediction"),
        causal=True,
        blocks={"linear": 7},
        sums=True,
    ),
    SolverEntry(
        "bayesian_average",
        "BMA",
        kernels="featured",
        required_inputs=("ridges",),
        states=("means", "variances", "log_evidence", "weights", "prediction"),
        causal=True,
        blocks={"linear": 7},
        sums=True,
    ),
)
