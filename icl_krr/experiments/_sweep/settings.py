"""The settings of a sweep as the user passes them. This file imports no JAX."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...catalogue._choices import KernelName

NOISE = 0.1

if TYPE_CHECKING:
    Count = Number = Any
else:
    Count, Number = int | None, float | None
"""A number; the default of the axis takes the place of None."""


@dataclass(frozen=True)
class SweepSettings:
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
    kernel: KernelName | None = None
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
