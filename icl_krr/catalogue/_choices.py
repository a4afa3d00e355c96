"""The names in the tables, as types of settings. All rows must be registered before."""

from typing import TYPE_CHECKING, Literal

from . import ATTENTIONS, AXES, BATTERIES, FAMILIES, KERNELS, SITES, SOLVERS

if TYPE_CHECKING:
    Solver = Kernel = Axis = Family = Battery = Attention = Site = str
else:
    Solver, Kernel, Axis, Family, Battery, Attention, Site = (
        Literal[tuple(table)]
        for table in (SOLVERS, KERNELS, AXES, FAMILIES, BATTERIES, ATTENTIONS, SITES)
    )
