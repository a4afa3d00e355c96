"""The names in the tables, as types of settings. All entries must be registered before."""

from typing import TYPE_CHECKING, Literal

from . import ATTENTIONS, AXES, FAMILIES, KERNELS, SHIFTS, SITES, SOLVERS

if TYPE_CHECKING:
    SolverName = KernelName = AxisName = FamilyName = ShiftName = AttentionName = SiteName = str
else:
    SolverName, KernelName, AxisName, FamilyName, ShiftName, AttentionName, SiteName = (
        Literal[tuple(table)]
        for table in (SOLVERS, KERNELS, AXES, FAMILIES, SHIFTS, ATTENTIONS, SITES)
    )
