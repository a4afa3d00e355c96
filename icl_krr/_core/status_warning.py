"""The warning about a result that is not right, where a user gets it outside of a JAX trace."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from . import checks

TOO_LARGE = 1e4
"""Predictions that are so many times larger than the largest |y| are implausible."""

R = TypeVar("R")


class StatusWarning(UserWarning):
    """A result is not right: its `Status` is not ok, or predictions are not finite or too large.

    Too large are predictions of more than 10,000 times the largest $|y|$; whether smaller ones are
    right, `icl_krr.check` measures. Solvers, `posterior`, `predict`, `predict_batch`,
    `predict_along` and `run_with_cache` emit it outside of JAX transformations, once for each line
    that calls them. To know it, they wait for their result. This line turns off the warning and the
    waiting:

    >>> import warnings
    >>> warnings.filterwarnings("ignore", category=StatusWarning)
    """


def warn_unless_ok(result: R) -> R:
    """Return the result of a public function; warn its caller if its status is not ok."""
    status: Any = getattr(result, "status", None)
    if status is not None:
        _warn(lambda ok: "" if ok else status.advice(), status.ok)
    return result


def warn_unless_plausible(prediction: R, task: Any) -> R:
    """Return the predictions of a public function; warn its caller if they are implausible."""
    _warn(_implausible, prediction, task.y)
    return prediction


def _implausible(prediction: np.ndarray, y: np.ndarray) -> str:
    largest = np.max(np.abs(np.asarray(prediction, float)), initial=0)
    # of masked supports, y may be NaN
    size = np.fmax.reduce(np.abs(np.asarray(y, float)), axis=None)
    if np.isfinite(largest) and not (size and largest > TOO_LARGE * size):
        return ""
    what = f"up to {largest / size:.2g} times the largest |y|" if largest < np.inf else "not finite"
    return f"predictions are {what}; icl_krr.check(model, task) says why and what helps"


def _warn(message: Callable[..., str], *arrays: Any) -> None:
    """Warn the caller of a public function, unless the message about the arrays is empty.

    Nothing waits for the arrays if this package is the caller, the warning is ignored, or Python
    would not show it again.
    """
    level, line = _caller()
    action = _action()
    if not level or action == "ignore" or (action == "default" and line in _WARNED):
        return
    values = [checks.concrete(array) for array in arrays]
    if all(value is not None for value in values) and (text := message(*values)):
        _WARNED.add(line)
        warnings.warn(text, StatusWarning, stacklevel=level)


_WARNED: set[tuple[str, int]] = set()
"""Lines that were warned: for Python, a warning with another number is another one."""


def _caller() -> tuple[int, tuple[str, int]]:
    """Stack level, file and line of the caller of a public function; level 0 for this package."""
    level = 3  # _warn, the function that calls it, and the public function
    frame = sys._getframe(level)
    own = frame.f_globals["__name__"], "icl_krr._core.messages"
    while (module := frame.f_globals.get("__name__", "")) in own and frame.f_back:
        frame, level = frame.f_back, level + 1
    line = frame.f_code.co_filename, frame.f_lineno
    return 0 if module.startswith("icl_krr.") else level, line


def _action() -> str:
    """What the first filter does that concerns the warning, wherever it comes from."""
    for action, message, category, module, line in warnings.filters:
        if issubclass(StatusWarning, category) and message is module is None and not line:
            return action
    return "default"
