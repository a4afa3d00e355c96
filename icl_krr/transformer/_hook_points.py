"""Points inside a block where values are read or replaced; `run_with_hooks` lists their names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax

from .._core.readable import readable

Hook = Callable[[Any, Any], Any]


@readable
class Where(NamedTuple):
    """Where a hook is called: the second argument of every hook.

    JAX traces all steps at once, so at `blocks.*.POINT` the fields `step` and `block` are traced
    integers, except in the prologue. In a `Cache`, the value at the same place is
    `cache.points[position][point][step]`, for a block of the prologue without `[step]`.

    Attributes:
        position: index of the block among the blocks of the prologue and of one step.
        step: index of the solver step; 0 in the prologue.
        block: number of the block in the model, as in `blocks.3.attn`.
        point: point of the block, such as "attn" or "attn.alpha".
        name: name under which the hook was given, such as "blocks.*.attn".
    """

    position: int
    step: Any
    block: Any = 0
    point: str = ""
    name: str = ""


class PlacedHook(NamedTuple):
    """A hook of a block at one point, in one step (or in every step, if `step` is None)."""

    point: str
    step: int | None
    name: str
    function: Hook


@dataclass
class HookPoints:
    """The points of one block, shared by all steps, because JAX traces the steps only once."""

    hooks: list[PlacedHook] = field(default_factory=list)
    place: Where = field(default_factory=lambda: Where(0, 0))
    keep: bool | Collection[str] = ()
    kept: dict[str, Any] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)

    @property
    def used(self) -> bool:
        """Whether somebody reads or replaces values in this block."""
        return bool(self.hooks or self.keep)

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


def check_arguments(name: str, hook: Hook) -> None:
    try:
        takes = inspect.signature(hook)
    except ValueError:  # a function in C may have no signature
        return
    try:
        takes.bind(None, None)
    except TypeError:
        raise TypeError(f"hook at {name} must take (value, where), got {takes}") from None


def apply_hook(value: Any, hook: PlacedHook, place: Where) -> Any:
    where = place._replace(point=hook.point, name=hook.name)
    if hook.step is not None:  # the hook acts in this step only, so its numbers are known
        where = where._replace(step=hook.step, block=int(hook.name.split(".")[1]))
    act = lambda v: hook.function(v, where)  # noqa: E731
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
