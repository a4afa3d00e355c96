"""Conjugate gradient at every token, for the regression of its prefix, or the posterior of it."""

from __future__ import annotations

from typing import Any

from .. import solvers
from .._core import checks
from .._core.constants import xp
from ..kernels._kernel import check_kernel
from ..solvers._prefix_iterations import token_solver
from ._assembly.prefix import compiled_from, prefix_sums
from ._assembly.prefix_sums import PosteriorSums
from ._compiler.compile import run_on

FORMS = ("textbook", "fused")


@compiled_from(solvers.prefix_conjugate_gradient)
def prefix_conjugate_gradient(
    kernel, *, ridge, steps, preconditioner, form="textbook", stores_sums=False, **options
):
    checks.choice("form", form, FORMS)
    function, choice = token_solver(preconditioner), {"form": form}
    if preconditioner is not None:
        if form != "textbook":
            raise ValueError(f"form must be 'textbook' with a preconditioner, got {form!r}")
        choice = {}
    m = prefix_sums(kernel, ridge=ridge, stores_sums=stores_sums, **options)
    return run_on(m, function, steps, ridge=ridge, **choice)


@compiled_from(solvers.prefix_posterior)
def prefix_posterior(kernel, *, ridge, steps, approximates, form="textbook", **options):
    checks.choice("form", form, FORMS)
    if approximates is not None:
        check_kernel(approximates)
    checks.scalar_ridge(ridge)
    m: Any = prefix_sums(kernel, ridge=ridge, kind=PosteriorSums, **options)
    m.ridges = xp.asarray(ridge, m.dtype)
    m.approximated = None if approximates is None else (approximates,)
    return run_on(m, token_solver(), steps, ridge=ridge, form=form)


@compiled_from(solvers.prefix_chebyshev)
def prefix_chebyshev(kernel, *, ridge, steps, spectrum, stores_sums=False, **options):
    checks.count("steps", steps)
    m = prefix_sums(kernel, ridge=ridge, stores_sums=stores_sums, **options)
    return run_on(m, solvers.chebyshev.function, steps, ridge=ridge, spectrum=spectrum)
