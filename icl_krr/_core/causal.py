"""Options of causal models and of delta rules, and their checks."""

from __future__ import annotations

from typing import Any, TypedDict

import numpy as np

from . import checks


class PrefixOptions(TypedDict, total=False):
    """Which supports a token attends to: see `icl_krr.constructions.CausalOptions`."""

    prefix: str
    log_gate: Any
    strength: Any
    window: int | None


def check_prefix(
    prefix: str = "exclusive", log_gate: Any = None, strength: Any = None, window: Any = None
) -> None:
    checks.choice("prefix", prefix, ("exclusive", "inclusive"))
    if log_gate is not None:
        checks.satisfies("log_gate", log_gate, "<= 0", "; a gate above 1 grows")
    if strength is not None:
        checks.satisfies("strength", strength, ">= 0")
    if window is not None:
        checks.count("window", window)


def check_token_parameter(name: str, value: Any, p: int, m: int | None = None) -> None:
    """Check a parameter of each token: a number, w for <w, x>, or W for W x [m] if m is given."""
    if np.shape(value) not in ((), (p,), (m, p)):
        matrix = "" if m is None else f", or a matrix [m, p] with m = {m} features of the kernel"
        where = "; only delta rules of features take a matrix, in linear attention"
        hint = where if name == "log_gate" and np.ndim(value) == 2 and m is None else ""
        raise ValueError(
            f"{name} must be a number or a vector [p] with p = {p}, the width of x{matrix}, got "
            f"shape {list(np.shape(value))}{hint}"
        )


def check_erase(erase: Any, p: int, m: int) -> None:
    checks.reals(erase=erase)
    if np.shape(erase) != (m, p):
        raise ValueError(
            f"erase must be a matrix [m, p] with m = {m} features of the kernel and p = {p}, got "
            f"shape {list(np.shape(erase))}"
        )


def refuse_window(window: Any) -> None:
    """Raise an error if a delta rule does not support a window."""
    if window is not None:
        raise ValueError(
            "window must be None with erase, with a gate of each feature and for rules with "
            f"further states, got {window!r}; delta_rule and implicit_delta_rule take a window"
        )
