"""Catalogue rows for causal solvers, whose tokens see only the supports before them."""

from __future__ import annotations

from .rows import Box, Solver

RIDGE = Box(-5, 0.5, 1)
STEP = Box(-1.5, 1.3, -1)
PRIMAL, DUAL = ("w", "r", "d", "prediction"), ("alpha", "prediction")
OF_PREFIX = "icl_krr.experiments.shared.prefix_keywords"


def own(name: str) -> tuple[str, str]:
    """Return the paths of the construction and the oracle of this name in the library."""
    return f"icl_krr.constructions:{name}", f"icl_krr.solvers:{name}"


CAUSAL = (
    Solver(
        "delta_rule",
        "DELTA",
        *own("delta_rule"),
        told=(f"{OF_PREFIX}:step_size",),
        states=DUAL,
        blocks={"linear": 1, "softmax": 2},
        causal=True,
        sequential=True,
        fitted={"step_size": STEP},
    ),
    Solver(
        "momentum_delta_rule",
        "MDEL",
        *own("momentum_delta_rule"),
        kernels="featured",
        told=(f"{OF_PREFIX}:step_size", f"{OF_PREFIX}:momentum"),
        states=DUAL,
        blocks={"linear": 2},
        causal=True,
        sequential=True,
        fitted={"step_size": STEP, "momentum": Box(-2, 0, 0, True), "decay": Box(-0.5, 0, 0, True)},
        contains=("delta_rule",),
    ),
    Solver(
        "implicit_delta_rule",
        "IDEL",
        *own("implicit_delta_rule"),
        told=(f"{OF_PREFIX}:step_size",),
        states=DUAL,
        blocks={"linear": 1, "softmax": 2},
        causal=True,
        sequential=True,
        fitted={"step_size": STEP},
    ),
    Solver(
        "preconditioned_delta_rule",
        "PDEL",
        *own("preconditioned_delta_rule"),
        kernels="featured",
        told=(f"{OF_PREFIX}:step_size",),
        states=DUAL,
        blocks={"linear": 1},
        causal=True,
        sequential=True,
        fitted={"step_size": Box(-2, 0.5), "initial": RIDGE},
        contains=("delta_rule",),
    ),
    Solver(
        "kalman_delta_rule",
        "KDEL",
        *own("kalman_delta_rule"),
        kernels="featured",
        states=DUAL,
        blocks={"linear": 3},
        causal=True,
        sequential=True,
        fitted={"ridge": RIDGE, "process_noise": Box(-4, 0.5)},
    ),
    Solver(
        "prefix_conjugate_gradient",
        "MESA",
        *own("prefix_conjugate_gradient"),
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
        *own("prefix_chebyshev"),
        kernels="featured",
        told=("ridge", f"{OF_PREFIX}:spectrum"),
        states=PRIMAL,
        causal=True,
        blocks={"linear": 1},
    ),
    Solver(
        "prefix_posterior",
        "POST",
        *own("prefix_posterior"),
        kernels="featured",
        states=("h", "r", "d", "variance", "prediction"),
        causal=True,
        blocks={"linear": 7},
        sums=True,
    ),
    Solver(
        "bayesian_average",
        "BMA",
        *own("bayesian_average"),
        kernels="featured",
        told=("ridges",),
        states=("means", "variances", "log_evidence", "weights", "prediction"),
        causal=True,
        blocks={"linear": 7},
        sums=True,
    ),
)
