"""An axis of a sweep: what it varies, its defaults, and how the model of a value is built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..._core import checks
from .._shared.rows import Plot
from .trial import Build

Check = Callable[[Any, Any], None]
"""A function of (value, config) that raises ValueError or TypeError for a wrong value."""
OVER_VALUES = Plot("value", "gap", ("line",), logx=True)


@dataclass(frozen=True, kw_only=True)
class Axis:
    """A quantity to vary.

    Attributes:
        build: function of (line, value, task, config, key) that returns a `Trial`.
        check: checks every value.
        values: default values; () stands for the numbers of steps.
        lines: names of the lines to compare by default, such as sketches; each is one curve.
        solvers: whether the lines are solvers; () then stands for all `compared` ones.
        smooths: whether these may be solvers without steps, such as Nadaraya-Watson.
        kernel: name of the default kernel. A user may choose another one of the same kind.
        kernels: names of other kernels that a user may choose.
        num_features: default number of features p of the tasks.
        unused: names of the settings that have no effect along this axis.
        plot: what the figure shows.
        traced: whether the values are traced, so that one compiled program runs all of them.
        against: what the gap is measured to.
    """

    build: Build
    check: Check
    values: tuple[Any, ...] = ()
    lines: tuple[str, ...] = ()
    solvers: bool = False
    smooths: bool = False
    kernel: str = "exponential"
    kernels: tuple[str, ...] = ()
    num_features: int = 2
    unused: tuple[str, ...] = ()
    plot: Plot = OVER_VALUES
    traced: bool = True
    against: str = "exact KRR"


def along(check: Check, **defaults: Any) -> Callable[[Build], Axis]:
    """Make an axis of the function `build` below it."""
    return lambda build: Axis(build=build, check=check, **defaults)


def positive(value: Any, config: Any) -> None:
    checks.positive_scalar("values", value)


def condition(value: Any, config: Any) -> None:
    positive(value, config)
    if value <= 1:
        raise ValueError(f"values must be > 1, because they are condition numbers, got {value}")


def at_most(name: str, value: Any, config: Any, minimum: int = 1) -> None:
    checks.count("values", value, minimum=minimum)
    if value > getattr(config, name):
        raise ValueError(f"values must be <= {name} = {getattr(config, name)}, got {value}")


support = partial(at_most, "num_supports")
step = partial(at_most, "steps", minimum=0)


def feature(value: Any, config: Any) -> None:
    at_most("num_features" if config.kernel == "linear" else "num_supports", value, config)


def feature_count(value: Any, config: Any) -> None:
    checks.count("values", value)
    if "trigonometric" in config.lines and value % 2:
        raise ValueError(
            f"values must be even, because features are pairs of cosine and sine, got {value}"
        )
    if "landmarks" in config.lines:
        support(value, config)


def floating(value: Any, config: Any) -> None:
    checks.choice("values", value, ("bfloat16", "float32", "float64"))


def relu_width(value: Any, config: Any) -> None:
    checks.even("values", value)


def check_temperature(name: str, value: Any, config: Any = None) -> None:
    checks.positive_scalar(name, value)
    if value < 1 / 80:
        raise ValueError(
            f"{name} must be >= 1/80, because exp(1 / {name}) may overflow float32, got {value}"
        )
