"""The values that options accept, read from the catalogue."""

from typing import TYPE_CHECKING, Literal

from ...catalogue import AXES, BATTERIES, KERNELS, SITES, SOLVERS, SUITES

if TYPE_CHECKING:
    Solver = Kernel = Axis = Suite = Site = Battery = str
else:
    Solver, Kernel, Axis, Suite, Site, Battery = (
        Literal[tuple(table)] for table in (SOLVERS, KERNELS, AXES, SUITES, SITES, BATTERIES)
    )
