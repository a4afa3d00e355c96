"""Catalogue rows for causal solvers, whose tokens see only the supports before them."""

from __future__ import annotations

from typing import Any

from ._rows import Box, Solver

RIDGE = Box(-5, 0.5, 1)
STEP = Box(-1.5, 1.3, -1)
PRIMAL, DUAL = ("w", "r", "d", "prediction"), ("alpha", "prediction")
OF_PREFIX = "icl_krr.tabular._prefix_keywords"


DELTA: dict[str, Any] = {"states": DUAL, "causal": True, "sequential": True}

CAUSAL = (
    Solver(
        "delta_rule",
        "DELTA",
        told=(f"{OF_PREFIX}:step_size",),
        **DELTA,
        blocks={"linear": 1, "softmax": 2},
        fitted={"step_size": STEP},
    ),
    Solver(
        "momentum_delta_rule",
        "MDEL",
        kernels="featured",
        told=(f"{OF_PREFIX}:step_size", f"{OF_PREFIX}:momentum"),
        **DELTA,
        blocks={"linear": 2},
        fitted={"step_size": STEP, "momentum": Box(-2, 0, 0, True), "decay": Box(-0.5, 0, 0, True)},
        contains=("delta_rule",),
    ),
    Solver(
        "implicit_delta_rule",
        "IDEL",
        told=(f"{OF_PREFIX}:step_size",),
        **DELTA,
        blocks={"linear": 1, "softmax": 2},
        fitted={"step_size": STEP},
    ),
    Solver(
        "preconditioned_delta_rule",
        "PDEL",
        kernels="featured",
        told=(f"{OF_PREFIX}:step_size",),
        **DELTA,
        blocks={"linear": 1},
        fitted={"step_size": Box(-2, 0.5), "initial": RIDGE},
        contains=("delta_rule",),
    ),
    Solver(
        "kalman_delta_rule",
        "KDEL",
        kernels="featured",
        **DELTA,
        blocks={"linear": 3},
        fitted={"ridge": RIDGE, "process_noise": Box(-4, 0.5)},
    ),
    Solver(
        "prefix_conjugate_gradient",
        "MESA",
        kernels="featured",
        states=PRIMAL,
        causal=True,
        blocks={"linear": 7},
        sums=True,
        fitted={"ridge": RIDGE},
    ),
    Solver(
        "prefix_chebyshev",
        "PCHE",
        kernels="featured",
        told=("ridge", f"{OF_PREFIX}:spectrum"),
        states=PRIMAL,
        causal=True,
        blocks={"linear": 1},
    ),
    Solver(
        "prefix_posterior",
        "POST",
        kernels="featured",
        states=("h", "r", "d", "variance", "prediction"),
        causal=True,
        blocks={"linear": 7},
        sums=True,
    ),
    Solver(
        "bayesian_average",
        "BMA",
        kernels="featured",
        told=("ridges",),
        states=("means", "variances", "log_evidence", "weights", "prediction"),
        causal=True,
        blocks={"linear": 7},
        sums=True,
    ),
)
