"""Points inside a block where values can be looked at or replaced, by name.

Block 3 has `blocks.3.resid_pre`, for its J-th heads `.heads.J.pattern` [H, T, T],
`.heads.J.mixed` [T, H, d] (the values as the pattern weighs them) and `.heads.J` (what they
write), `.attn` (what the sublayer writes), `.resid_mid`, for its J-th units `.units.J.hidden`
[T, hidden] and `.units.J`, `.mlp` and `.resid_post`. Those without a shape are
{slot: [T, width]}; each slot is a point of its own as well, such as `blocks.3.attn.alpha`.

`blocks.*.attn` is that point of every block that has it. A hook there is told its `HookPlace`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax

Hook = Callable[[Any, Any], Any]


class HookPlace(NamedTuple):
    """A block by its position among those of the prologue and of a step, and its step, traced.

    The points of a `Cache` are found by the same two: `cache.points[position][point][step]`, the
    step being left out in the prologue.
    """

    position: int
    step: Any


class PlacedHook(NamedTuple):
    """A hook that is known to act on a block at one point, in one step or, if None, in each."""

    point: str
    step: int | None
    name: str
    function: Hook


@dataclass
class HookPoints:
    """The points of one block of the step, at all its steps at once (they share one trace).

    `keep` names the points whose values are kept, or is True for all of them.
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
        """Offer a value; what comes back takes its place."""
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
