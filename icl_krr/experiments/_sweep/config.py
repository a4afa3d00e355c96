"""The settings of a sweep: its axis, values, lines and task."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...catalogue import AXES, KERNELS, SOLVERS, compared, find, load, taken
from ...catalogue._choices import Kernel

NOISE = 0.1

if TYPE_CHECKING:
    Count = Number = Any
else:
    Count, Number = int | None, float | None
"""A number; the default of the axis takes the place of None."""


@dataclass(frozen=True)
class SweepConfig:
    """A grid of values, lines and seeds along one axis, and the task.

    Tasks are draws of a Gaussian process on the unit sphere with the exponential kernel and noise
    variance 0.1. Along the axes "width", "position" and "rounding" with the linear kernel they are
    linear regression on p features with standard deviations 1/i.

    Most settings are options of `icl-krr sweep`. The Gaussian and the Matern kernels
    have the lengthscale sqrt(temperature). The default ridge is 0.1 p along the axes of linear
    regression, and 0.1 k(x, x) of the exponential kernel along the others.
    """

    axis: str
    """Quantity to vary."""
    values: tuple[Any, ...] = ()
    """Values of the quantity; along the axis "depth" steps. If empty, a default grid is used."""
    lines: tuple[str, ...] = ()
    """Solvers, sketches or random features to compare. Each is one line of the figure. The command
    takes solvers of your own, too, as FILE.py:NAME (such as my.py:nesterov): a function with the
    mark icl_krr.solver whose keywords besides ridge, step_size and spectrum have defaults.
    If empty, the default lines of the axis are used."""
    kernel: Kernel | None = None
    """Kernel of the regression; --temperature sets its bandwidth.
    If None, linear for the axis width, Gaussian for arithmetic, and exponential otherwise. Along
    the axis width, the exponential kernel has the n Nystrom features of the supports."""
    seeds: int = 5
    """Number of seeds. The first seed is --seed. There is one task per seed."""
    seed: int = 0
    """First seed."""
    steps: int = 32
    """Number of solver steps of every model, >= 1."""
    num_supports: int = 64
    """Number of supports n per task."""
    num_features: Count = None
    """Number of features p. If None, 32 for the axis width with the linear kernel, else 2."""
    num_queries: int = 64
    """Number of queries q per task."""
    temperature: float = 0.5
    """Temperature of the exponential kernel, >= 1/80."""
    ridge: Number = None
    """Ridge > 0.
    If None, 0.1 p with the linear kernel, and 0.1 e^(1 / temperature) otherwise."""

    def __post_init__(self):
        from ..._core import checks  # imports JAX, which `--help` does without

        axis = axis_of(self.axis)
        for name in ("steps", "seeds"):
            checks.count(name, getattr(self, name))
        check_temperature("temperature", self.temperature)
        checks.count("seed", self.seed, minimum=0)
        checks.instance("values", self.values, (tuple, list), "a tuple")
        for name in ("num_supports", "num_queries"):
            checks.count(name, getattr(self, name))
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


def axis_of(name: str) -> Any:
    """The `Axis` of this name."""
    return load(find("axis", AXES, name).made_by)


def check_temperature(name: str, value: Any, config: Any = None) -> None:
    from ..._core import checks

    checks.positive_scalar(name, value)
    if value < 1 / 80:
        raise ValueError(
            f"{name} must be >= 1/80, because exp(1 / {name}) may overflow float32, got {value}"
        )


def kernel_for(name: str, kernel: str | None) -> str:
    """The kernel, by default that of the axis; another kernel must have the same kind."""
    axis = axis_of(name)
    kind = KERNELS[axis.kernel].kind
    known = {n: row for n, row in KERNELS.items() if row.kind == kind or n in axis.kernels}
    return find(f"kernel along the {name}", known, axis.kernel if kernel is None else kernel).name


def lines_for(axis: Any, lines: tuple[str, ...], kernel: str) -> tuple[str, ...]:
    """The lines as the catalogue spells them; by default those of the axis."""
    if isinstance(lines, str):
        raise ValueError(f"lines must be a tuple of names, got {lines!r}; use ({lines!r},)")
    if not axis.solvers:
        from ..._core import checks

        for line in lines:
            checks.choice("line", line, axis.lines)
        return tuple(dict.fromkeys(lines)) or axis.lines
    fit = {
        name: row
        for name, row in SOLVERS.items()
        if kernel in taken(name) and (row.iterates or axis.smooths)
    }
    usual = [name for name, row in fit.items() if name in compared() or not row.iterates]
    chosen = [find(f"line on the {kernel} kernel", fit, line).name for line in lines or axis.lines]
    return tuple(dict.fromkeys(chosen or usual))
