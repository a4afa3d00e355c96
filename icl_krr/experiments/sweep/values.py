"""Check the values of an axis, by a function of the name in `Axis.value` of the catalogue.

Each raises ValueError or TypeError if a value is invalid.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ... import checks


def positive(value: Any, config: Any) -> None:
    checks.positive_scalar("values", value)


def condition(value: Any, config: Any) -> None:
    positive(value, config)
    if value <= 1:
        raise ValueError(f"values must be > 1, because they are condition numbers, got {value}")


def bandwidth(name: str, value: Any, config: Any = None) -> None:
    checks.positive_scalar(name, value)
    if value < 1 / 80:
        raise ValueError(
            f"{name} must be >= 1/80, because exp(1 / {name}) may overflow float32, got {value}"
        )


temperature = partial(bandwidth, "values")


def at_most(name: str, value: Any, config: Any) -> None:
    checks.count("values", value)
    if value > getattr(config, name):
        raise ValueError(f"values must be <= {name} = {getattr(config, name)}, got {value}")


support = partial(at_most, "num_supports")


def feature(value: Any, config: Any) -> None:
    at_most("num_features" if config.kernel == "linear" else "num_supports", value, config)


def feature_count(value: Any, config: Any) -> None:
    checks.count("values", value)
    if "trigonometric" in config.lines and value % 2:
        raise ValueError(
            f"values must be even, because features are pairs of cosine and sine, got {value}"
        )
    if "landmarks" in config.lines:
        at_most("num_supports", value, config)


def floating(value: Any, config: Any) -> None:
    checks.choice("values", value, ("bfloat16", "float32", "float64"))


def relu_width(value: Any, config: Any) -> None:
    checks.even("values", value)
    checks.count("values", value)


def step(value: Any, config: Any) -> None:
    checks.count("values", value, minimum=0)
    if value > config.steps:
        raise ValueError(f"values must be <= steps = {config.steps}, got {value}")
