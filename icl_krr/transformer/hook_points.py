"""Points inside a block where values are read or replaced; `run_with_hooks` lists their names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax

Hook = Callable[[Any, Any], Any]


class HookPlace(NamedTuple):
    """Where a hook at `blocks.*.POINT` is called.

    In a `Cache`, the value at the same place is `cache.points[position][point][step]`. For a block
    of the prologue it is `cache.points[position][point]`.

    Attributes:
        position: index of the block among the blocks of the prologue and of one step, >= 0.
        step: index of the solver step, a traced integer; 0 in the prologue.
    """

    position: int
    step: Any


class PlacedHook(NamedTuple):
    """A hook of a block at one point, in one step (or in every step, if `step` is None)."""

    point: str
    step: int | None
    name: str
    function: Hook


@dataclass
class HookPoints:
    """The points of one block. All steps share them, because JAX traces the steps only once.

    `keep` names the points whose values are stored, or is True for all points.
    """

    hooks: list[PlacedHook] = field(default_factory=list)
    place: HookPlace = field(default_factory=lambda: HookPlace(0, 0))
    keep: bool | Collection[str] = ()
    kept: dict[str, Any] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)

    def wants(self, point: str) -> bool:
        return self.keeps(point) or any(point == hook.point for hook in self.hooks)

    def keeps(self, point: str) -> bool:
        return self.keep if isinstance(self.keep, bool) else point in self.keep

    def __call__(self, point: str, value: Any) -> Any:
        """Pass a value to the hooks of a point; store and return their result."""
        value = self.run_hooks(point, value)
        if isinstance(value, dict):
            value = {slot: self.run_hooks(f"{point}.{slot}", part) for slot, part in value.items()}
            for slot, part in value.items():
                if self.keep is not True and self.keeps(f"{point}.{slot}"):
                    self.kept[f"{point}.{slot}"] = part
        if self.keeps(point):
            self.kept[point] = value
        return value

    def run_hooks(self, point: str, value: Any) -> Any:
        self.seen.add(point)
        for hook in self.hooks:
            if hook.point == point:
                value = apply_hook(value, hook, self.place)
        return value


def apply_hook(value: Any, hook: PlacedHook, place: HookPlace) -> Any:
    act = lambda v: hook.function(v, place if hook.step is None else hook.name)  # noqa: E731
    shape = jax.eval_shape(act, value)
    if (got := describe(shape)) != (needed := describe(value)):
        raise ValueError(f"hook at {hook.name} must return {needed}, got {got}")
    if hook.step is None:
        return act(value)
    return jax.lax.cond(place.step == hook.step, act, lambda v: v, value)


def describe(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{slot}: {describe(value[slot])}" for slot in sorted(value)) + "}"
    if not hasattr(value, "dtype"):
        return type(value).__name__
    return f"{value.dtype}{list(value.shape)}"
