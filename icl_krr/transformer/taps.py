"""Points inside a block where values can be looked at or replaced, by name.

Block 3 has `blocks.3.resid_pre`, for its J-th heads `.heads.J.pattern` and `.heads.J` (what
they write), `.attn` (what the sublayer writes), for its J-th units `.units.J`, `.mlp` and
`.resid_post`. All but the patterns are {slot: [T, width]}; each slot is a point of its own as
well, such as `blocks.3.attn.alpha`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax

Hook = Callable[[Any, str], Any]


class Placed(NamedTuple):
    """A hook that is known to act on a block at one point, in one step."""

    point: str
    step: int
    name: str
    function: Hook


@dataclass
class Taps:
    """The points of one block of the step, at all its steps at once (they share one trace).

    `step` is the traced number of the step that runs.
    """

    hooks: list[Placed] = field(default_factory=list)
    step: Any = 0
    keep: bool = False
    kept: dict[str, Any] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)

    def wants(self, point: str) -> bool:
        return self.keep or any(point == hook.point for hook in self.hooks)

    def __call__(self, point: str, value: Any) -> Any:
        """Offer a value; what comes back takes its place."""
        value = self.apply(point, value)
        if isinstance(value, dict):
            value = {slot: self.apply(f"{point}.{slot}", part) for slot, part in value.items()}
        if self.keep:
            self.kept[point] = value
        return value

    def apply(self, point: str, value: Any) -> Any:
        self.seen.add(point)
        for hook in self.hooks:
            if hook.point == point:
                value = replace(value, hook.function, hook.name, self.step == hook.step)
        return value


def replace(value: Any, hook: Hook, name: str, here: Any) -> Any:
    shape = jax.eval_shape(lambda v: hook(v, name), value)
    if (got := describe(shape)) != (needed := describe(value)):
        raise ValueError(f"hook at {name} must return {needed}, got {got}")
    return jax.lax.cond(here, lambda v: hook(v, name), lambda v: v, value)


def describe(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{slot}: {describe(value[slot])}" for slot in sorted(value)) + "}"
    if not hasattr(value, "dtype"):
        return type(value).__name__
    return f"{value.dtype}{list(value.shape)}"
