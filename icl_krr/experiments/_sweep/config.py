"""A sweep with all its settings: defaults come from its axis."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ..._core import checks
from ...catalogue import AXES, KERNELS, SOLVERS, compared, find, taken
from . import axes
from .axis import Axis, check_temperature
from .settings import NOISE, SweepSettings


@dataclass(frozen=True)
class SweepConfig(SweepSettings):
    """`SweepSettings` that are valid, with the defaults of the axis in place of None and ()."""

    def __post_init__(self):
        axis = axis_of(self.axis)
        for name in ("steps", "seeds", "num_supports", "num_queries"):
            checks.count(name, getattr(self, name))
        check_temperature("temperature", self.temperature)
        checks.count("seed", self.seed, minimum=0)
        checks.instance("values", self.values, (tuple, list), "a tuple")
        set_field = lambda name, value: object.__setattr__(self, name, value)  # noqa: E731
        set_field("kernel", kernel_for(self.axis, self.kernel))
        if self.num_features is None:
            set_field("num_features", axis.num_features if self.kernel == axis.kernel else 2)
        checks.count("num_features", self.num_features)
        if self.ridge is None:
            linear = self.kernel == "linear"
            scale: Any = self.num_features if linear else math.exp(1 / self.temperature)
            set_field("ridge", NOISE * scale)
        checks.positive_scalar("ridge", self.ridge)
        set_field("lines", lines_for(axis, self.lines, str(self.kernel)))
        values = []
        for value in dict.fromkeys(self.values or axis.values or range(self.steps + 1)):
            try:
                axis.check(value, self)
                values.append(value)
            except (TypeError, ValueError) as error:
                if self.values:  # of the default values, those that are valid
                    raise ValueError(str(error)) from None
        set_field("values", tuple(values))


def axis_of(name: str) -> Axis:
    """The `Axis` of this name."""
    entry = find("axis", AXES, name)
    return entry.axis or getattr(axes, entry.name)


def kernel_for(name: str, kernel: str | None) -> str:
    """The kernel, by default that of the axis; another kernel must have the same kind."""
    axis = axis_of(name)
    kind = KERNELS[axis.kernel].kind
    rows = {n: entry for n, entry in KERNELS.items() if entry.kind == kind or n in axis.kernels}
    return find(f"kernel along the {name}", rows, axis.kernel if kernel is None else kernel).name


def lines_for(axis: Any, lines: tuple[str, ...], kernel: str) -> tuple[str, ...]:
    """The lines as the catalogue spells them; by default those of the axis."""
    if isinstance(lines, str):
        raise ValueError(f"lines must be a tuple of names, got {lines!r}; use ({lines!r},)")
    if not axis.solvers:
        for line in lines:
            checks.choice("line", line, axis.lines)
        return tuple(dict.fromkeys(lines)) or axis.lines
    fits = {n: e for n, e in SOLVERS.items() if kernel in taken(n) and (e.iterates or axis.smooths)}
    usual = [name for name, entry in fits.items() if name in compared() or not entry.iterates]
    chosen = [find(f"line on the {kernel} kernel", fits, line).name for line in lines or axis.lines]
    return tuple(dict.fromkeys(chosen or usual))
