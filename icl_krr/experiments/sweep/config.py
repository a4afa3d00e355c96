"""The settings of a sweep: its axis, values, lines and task."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ... import checks
from ...catalogue import AXES, KERNELS, SOLVERS, Axis, find, taken
from .values import RULES, bandwidth

NOISE = 0.1


@dataclass(frozen=True)
class SweepConfig:
    """A grid of values, lines and seeds along one axis, and the task.

    Tasks are draws of a Gaussian process on the unit sphere with the exponential kernel and noise
    variance 0.1. Along the axes "width", "position" and "rounding" they are linear regression on p
    features with standard deviations 1/i.

    Args:
        axis: name of the axis.
        values: values of the axis; default: those of the catalogue. Along the axis "depth" the
            values are steps, by default all.
        lines: solvers, sketches or feature maps to compare; default: those of the axis.
        kernel: kernel of the regression. The default is "linear" along the axes of linear
            regression, "gaussian" along the axis "arithmetic" and "exponential" along the others.
        seeds: number of seeds, >= 1; default 5.
        seed: first seed; default 0.
        steps: number of steps of every solver, >= 1; default 32.
        num_supports: number of supports n, >= 1; default 64.
        num_features: number of features p, >= 1; default: that of the axis.
        num_queries: number of queries q, >= 1; default 64.
        temperature: temperature of the exponential kernel, >= 1/80; default 0.5. The Gaussian
            kernel has the lengthscale sqrt(temperature).
        ridge: ridge > 0. The default along the axes of linear regression is 0.1 p. The default
            along the other axes is 0.1 e^(1 / temperature), which is 0.1 k(x, x) of the exponential
            kernel.

    Raises:
        ValueError: the axis, the kernel or a line is unknown, or a number is out of range.
    """

    axis: str
    values: tuple[Any, ...] = ()
    lines: tuple[str, ...] = ()
    kernel: str | None = None
    seeds: int = 5
    seed: int = 0
    steps: int = 32
    num_supports: int = 64
    num_features: Any = None
    num_queries: int = 64
    temperature: float = 0.5
    ridge: Any = None

    def __post_init__(self):
        axis: Axis = find("axis", AXES, self.axis)
        for name in ("steps", "seeds"):
            checks.stored(name, getattr(self, name))
        bandwidth("temperature", self.temperature)
        checks.count("seed", self.seed, minimum=0)
        checks.instance("values", self.values, (tuple, list), "a tuple")
        for name in ("num_supports", "num_queries"):
            checks.count(name, getattr(self, name))
        set_field = lambda name, value: object.__setattr__(self, name, value)  # noqa: E731
        set_field("kernel", kernel_for(axis, self.kernel))
        if self.num_features is None:
            set_field("num_features", axis.num_features)
        checks.count("num_features", self.num_features)
        if self.ridge is None:
            linear = axis.kernel == "linear"
            scale: Any = self.num_features if linear else math.exp(1 / self.temperature)
            set_field("ridge", NOISE * scale)
        checks.positive_scalar("ridge", self.ridge)
        set_field("lines", lines_for(axis, self.lines, str(self.kernel)))
        values, rule = tuple(dict.fromkeys(self.values)), RULES[axis.value]
        for value in values:
            try:
                rule(value, self)
            except TypeError as error:
                raise ValueError(str(error)) from None
        if not values:
            values = tuple(v for v in axis.values or range(self.steps + 1) if self.allows(v))
        set_field("values", values)

    def allows(self, value: Any) -> bool:
        """Whether this value is valid along the axis."""
        try:
            RULES[AXES[self.axis].value](value, self)
        except ValueError:
            return False
        return True


def kernel_for(axis: Axis, kernel: str | None) -> str:
    """The kernel, by default that of the axis; another kernel must have the same kind."""
    kind = KERNELS[axis.kernel].kind
    known = {name: row for name, row in KERNELS.items() if row.kind == kind}
    return find(
        f"kernel along the {axis.name}", known, axis.kernel if kernel is None else kernel
    ).name


def lines_for(axis: Axis, lines: tuple[str, ...], kernel: str) -> tuple[str, ...]:
    """The lines as the catalogue spells them; by default those of the axis."""
    if isinstance(lines, str):
        raise ValueError(f"lines must be a tuple of names, got {lines!r}; use ({lines!r},)")
    if not axis.solvers:
        for line in lines:
            checks.choice("line", line, axis.lines)
        return tuple(dict.fromkeys(lines)) or axis.lines
    smooths = any(not SOLVERS[line].iterates for line in axis.lines)
    fit = {
        name: row
        for name, row in SOLVERS.items()
        if kernel in taken(name) and (row.iterates or smooths)
    }
    return tuple(
        dict.fromkeys(
            find(f"line on the {kernel} kernel", fit, line).name for line in lines or axis.lines
        )
    )
