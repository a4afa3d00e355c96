"""Points inside a block where values are read or replaced, and what a caller asks of a run."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax

from .._core.messages import suggestion
from .._core.readable import readable
from ..tasks import Task
from ._weights import Transformer

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
    """A hook of a block at one point, in one step (or in every step, if `step` is None).

    `position` is the index of the block in the prologue and one step; None stands for all blocks.
    """

    position: int | None
    point: str
    step: int | None
    name: str
    function: Hook


@dataclass
class HookPoints:
    """The points of one block, shared by all steps, because JAX traces the steps only once."""

    hooks: list[PlacedHook] = field(default_factory=list)
    where: Where = field(default_factory=lambda: Where(0, 0))
    keep: bool | Collection[str] = ()
    stored: dict[str, Any] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)

    @property
    def used(self) -> bool:
        """Whether a caller reads or replaces values in this block."""
        return bool(self.hooks or self.keep)

    def uses(self, point: str) -> bool:
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
                    self.stored[f"{point}.{slot}"] = part
        if self.keeps(point):
            self.stored[point] = value
        return value

    def run_hooks(self, point: str, value: Any) -> Any:
        self.names.add(point)
        for hook in self.hooks:
            if hook.point == point:
                value = apply_hook(value, hook, self.where)
        return value


class Hooks:
    """The hooks of a run, the points whose values are stored, and the names of all points."""

    def __init__(self, model: Transformer, hooks: Mapping[str, Hook], keep: bool | Collection[str]):
        self.hooks = [place_hook(name, hook, model) for name, hook in hooks.items()]
        self.keep = keep
        self.names: set[str] = set()
        self.blocks_per_step = model.blocks_per_step

    @property
    def used(self) -> bool:
        return bool(self.hooks or self.keep)

    def change_steps(self, first: int) -> bool:
        """Whether a hook is in a block of the steps, the first of which has this position."""
        return any(hook.position is None or hook.position >= first for hook in self.hooks)

    def of_block(self, position: int, step: Any) -> HookPoints:
        hooks = [hook for hook in self.hooks if hook.position in (position, None)]
        where = Where(position, step, position + step * self.blocks_per_step)
        return HookPoints(hooks, where, self.keep)

    def stored(self, block: HookPoints) -> dict[str, Any]:
        """The values that a block has stored; raise an error if it lacks the point of a hook."""
        for hook in block.hooks:
            if hook.step is not None and hook.point not in block.names:
                raise ValueError(
                    f"hook must be at a point of its block, got {hook.name!r}; "
                    f"{listed(hook.point, block.names)}"
                )
        self.names |= block.names
        return block.stored

    def check_points(self) -> None:
        """Raise an error unless every point exists in some block."""
        points = [hook.point for hook in self.hooks if hook.position is None]
        for point in [*points, *([] if isinstance(self.keep, bool) else self.keep)]:
            if point not in self.names:
                raise ValueError(
                    f"point must exist in some block, got {point!r}; {listed(point, self.names)}"
                )


def place_hook(name: str, hook: Hook, model: Transformer) -> PlacedHook:
    if name.startswith("blocks.*."):
        return PlacedHook(None, name.removeprefix("blocks.*."), None, name, hook)
    match = re.fullmatch(r"blocks\.(\d+)\.(.+)", name)
    if not match or int(match[1]) >= model.depth:
        raise ValueError(
            f"hook must be at blocks.I.POINT with I < depth = {model.depth} or at blocks.*.POINT, "
            f"got {name!r}"
        )
    block, first = int(match[1]), len(model.weights.prologue)
    if block < first:
        return PlacedHook(block, match[2], 0, name, hook)
    step, position = divmod(block - first, model.blocks_per_step)
    return PlacedHook(first + position, match[2], step, name, hook)


def listed(point: str, names: Collection[str]) -> str:
    """The end of a sentence about a point that does not exist: the points without their parts."""
    parts = {name for name in names if any(name.startswith(f"{whole}.") for whole in names)}
    example = f", and their parts, such as {min(parts)}" if parts else ""
    points = ", ".join(sorted({*names} - parts))
    return f"the points are {points}{example}{suggestion(point, names)}"


def check_arguments(name: str, hook: Hook) -> None:
    try:
        takes = inspect.signature(hook)
    except ValueError:  # a function in C may have no signature
        return
    try:
        takes.bind(None, None)
    except TypeError:
        raise TypeError(f"hook at {name} must take (value, where), got {takes}") from None


def apply_hook(value: Any, hook: PlacedHook, where: Where) -> Any:
    step, where = where.step, where._replace(point=hook.point, name=hook.name)
    if hook.step is not None:  # the hook acts in this step only, so its numbers are known
        where = where._replace(step=hook.step, block=int(hook.name.split(".")[1]))

    def act(value: Any) -> Any:
        return hook.function(value, where)

    shape = jax.eval_shape(act, value)
    if (got := describe(shape)) != (needed := describe(value)):
        raise ValueError(f"hook at {hook.name} must return {needed}, got {got}")
    if hook.step is None:
        return act(value)
    return jax.lax.cond(step == hook.step, act, lambda v: v, value)


def describe(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{slot}: {describe(value[slot])}" for slot in sorted(value)) + "}"
    if not hasattr(value, "dtype"):
        return type(value).__name__
    return f"{value.dtype}{list(value.shape)}"


Answer = Callable[[dict[str, jax.Array], Transformer, Task], Any]
"""Function from all readouts by name, model and task to what a run returns."""


class Request(NamedTuple):
    """What a run of one task returns. It is static: every request has its own program.

    Stored are the slots `names` at the start and after every step, and the points `keep` inside of
    blocks (True: all). With `along`, the predictions at the supports precede those at the queries.
    The result of `answer` replaces the prediction. With `store_products`, a gradient also stores
    products with weights (see `forward`).
    """

    names: tuple[str, ...] = ()
    keep: bool | tuple[str, ...] = ()
    hooks: tuple[tuple[str, Hook], ...] = ()
    along: bool = False
    answer: Answer | None = None
    store_products: bool = False


PREDICTION = Request()
