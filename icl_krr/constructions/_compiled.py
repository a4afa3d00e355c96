"""The constructions that are compiled from solvers, and all constructions by name."""

from __future__ import annotations

import sys
from collections.abc import Callable

from .. import solvers
from ..catalogue import SOLVERS, SolverEntry, find
from ..transformer._weights import Transformer
from ._compiler.compile import construction_of

nadaraya_watson = construction_of(solvers.nadaraya_watson)
gradient_descent = construction_of(solvers.gradient_descent)
gradient_descent_in_alpha = construction_of(solvers.gradient_descent_in_alpha)
gradient_descent_plus_plus = construction_of(solvers.gradient_descent_plus_plus)
heavy_ball = construction_of(solvers.heavy_ball)
chebyshev = construction_of(solvers.chebyshev)
richardson = construction_of(solvers.richardson)
preconditioned_chebyshev = construction_of(solvers.preconditioned_chebyshev)
conjugate_gradient = construction_of(solvers.conjugate_gradient)
preconditioned_conjugate_gradient = construction_of(solvers.preconditioned_conjugate_gradient)
newton_schulz = construction_of(solvers.newton_schulz)


def lookup(solver: str | SolverEntry) -> Callable[..., Transformer]:
    """Return the construction of a solver of the catalogue.

    Args:
        solver: name or short name in the catalogue, or an entry of `icl_krr.catalogue.SOLVERS`.

    >>> lookup("CG") is conjugate_gradient
    True
    """
    entry = find("solver", SOLVERS, solver) if isinstance(solver, str) else solver
    if entry.solver is not None:
        return construction_of(entry.solver)
    return getattr(sys.modules[__package__ or ""], entry.function)
