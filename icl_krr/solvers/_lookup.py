"""The solvers of the catalogue by name."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from ..catalogue import SOLVERS, SolverEntry, find


def lookup(solver: str | SolverEntry) -> Callable[..., Any]:
    """Return the function of a solver of the catalogue.

    Args:
        solver: name or short name in the catalogue, or an entry of `icl_krr.catalogue.SOLVERS`.

    >>> lookup("CG").__name__
    'conjugate_gradient'
    """
    entry = find("solver", SOLVERS, solver) if isinstance(solver, str) else solver
    return entry.solver or getattr(sys.modules[__package__ or ""], entry.function)
