"""The words that options take, as the catalogue has them."""

from typing import TYPE_CHECKING, Literal

from ...catalogue import AXES, FAMILIES, KERNELS, SITES, SOLVERS, SUITES

if TYPE_CHECKING:
    Solver = Kernel = Axis = Suite = Family = Site = str
else:
    Solver, Kernel, Axis, Suite, Family, Site = (
        Literal[tuple(table)] for table in (SOLVERS, KERNELS, AXES, SUITES, FAMILIES, SITES)
    )
