"""What values an axis of a sweep takes: a ValueError for one that it does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ... import checks
from ...constructions import ReLU

if TYPE_CHECKING:
    from .grid import SweepConfig


def positive(value: Any, config: SweepConfig) -> None:
    checks.positive_scalar("value", value)


def bandwidth(name: str, value: Any) -> None:
    checks.positive_scalar(name, value)
    if value < 1 / 80:
        raise ValueError(f"{name} must be >= 1/80, else exp(1 / t) overflows float32, got {value}")


def temperatures(value: Any, config: SweepConfig) -> None:
    bandwidth("value", value)


def feature_count(value: Any, config: SweepConfig) -> None:
    checks.count("value", value)
    if "trigonometric" in config.lines and value % 2:
        raise ValueError(f"value must be even, a cosine and a sine each, got {value}")
    if "landmarks" in config.lines:
        at_most("num_supports")(value, config)


def at_most(name: str) -> Callable[[Any, SweepConfig], None]:
    def check(value: Any, config: SweepConfig) -> None:
        checks.count("value", value)
        if value > getattr(config, name):
            raise ValueError(f"value must be <= {name} = {getattr(config, name)}, got {value}")

    return check


def floating(value: Any, config: SweepConfig) -> None:
    checks.choice("value", value, ("bfloat16", "float32", "float64"))


def relu_width(value: Any, config: SweepConfig) -> None:
    ReLU(value)


def a_step(value: Any, config: SweepConfig) -> None:
    checks.count("value", value, minimum=0)
    if value > config.steps:
        raise ValueError(f"value must be <= steps = {config.steps}, got {value}")
