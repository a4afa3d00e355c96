"""Values that `run_with_cache` stores, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from io import StringIO
from typing import Any

import jax
import jax.numpy as jnp

from .._core.messages import short_repr, suggestion
from .._core.pytree import pytree_dataclass, static
from .._core.readable import LINES, WIDTH, pretty


@pytree_dataclass
class Cache(Mapping):
    """Stored values of a run: slots after each step, and points inside blocks.

    `cache["alpha"]` is a slot, `cache["blocks.3.attn"]` is a point of block 3 and
    `cache["blocks.3.attn.alpha"]` is one slot of that point. `print(cache)` shows them as a tree
    with their shapes. A cache is a pytree, so `run_with_cache` can be batched by `jax.vmap`. Read
    points of a batched cache inside the vmapped function, because the cache indexes their first
    axis by step.

    Args:
        slots: {slot: [steps + 1, ...]}, the values at the start and after each step.
        points: one dict {point: value} for each block of the prologue, then one for each block of a
            step. Values of step blocks have the steps as first axis.
        prologue: number of blocks in the prologue.

    >>> Cache({"alpha": jax.numpy.zeros((2, 3))}, [])["alpha"].shape
    (2, 3)
    """

    slots: dict[str, jax.Array]
    points: list[dict[str, Any]]
    prologue: int = static(default=0)
    steps: int = static(default=0)

    def __getitem__(self, name: str) -> Any:
        if name in self.slots:
            return self.slots[name]
        at, point = parsed(self, str(name))
        if at is not None:
            position, step = place(self, at)
            with suppress(KeyError):
                value = part(self.points[position], point)
                return value if step is None else entry(value, step)
        raise KeyError(without(self, name))

    def stack(self, point: str) -> Any:
        """Stack one point over all blocks: [depth, ...].

        Args:
            point: name of the point without its block, such as "resid_post" or "resid_post.alpha".
                All blocks must have it, with the same slots; "resid_pre", "resid_mid" and
                "resid_post" have every slot in every block.
        """
        blocks = []
        for block in self.points:
            with suppress(KeyError):
                blocks.append(part(block, point))
        if not blocks or len(blocks) < len(self.points):
            count = f"{len(blocks)} of the {len(self.points)} blocks of prologue and step"
            raise KeyError(
                f"{point} must be in every block to be stacked, but {count} have it; choose it "
                "with points=, or stack resid_post, which has every slot in every block"
            )
        if len({jax.tree.structure(block) for block in blocks}) > 1:
            raise KeyError(
                f"{point} must have the same slots in every block; "
                f"stack one of its slots as {point}.SLOT"
            )
        first, step = blocks[: self.prologue], blocks[self.prologue :]

        def along(*values: jax.Array) -> jax.Array:
            """Join the blocks of a step, [steps, ...] each, in the order in which they run."""
            together = jnp.stack(values, 1)
            return together.reshape(-1, *together.shape[2:])

        parts = [jax.tree.map(lambda value: value[None], block) for block in first]
        parts += [jax.tree.map(along, *step)] if step else []
        return jax.tree.map(lambda *values: jnp.concatenate(values), *parts)

    def __iter__(self) -> Iterator[str]:
        yield from self.slots
        for block in range(depth(self)):
            for point in with_slots(self.points[place(self, block)[0]]):
                yield f"blocks.{block}.{point}"

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return as_text(branches(self, step_shape))

    def __treescope_repr__(self, path: Any, subtree_renderer: Any) -> Any:
        from treescope.repr_lib import render_dictionary_wrapper

        tree = branches(self, lambda leaf: leaf)
        return render_dictionary_wrapper(
            object_type=type(self), wrapped_dict=tree, path=None, subtree_renderer=subtree_renderer
        )


def depth(cache: Cache) -> int:
    """The number of blocks of the run."""
    per_step = len(cache.points) - cache.prologue
    return cache.prologue + cache.steps * per_step if cache.points else 0


def place(cache: Cache, block: int) -> tuple[int, int | None]:
    """The index of a block in the points of a cache, and its step; None in the prologue."""
    first = cache.prologue
    if block < first:
        return block, None
    step, position = divmod(block - first, len(cache.points) - first)
    return first + position, step


def parsed(cache: Cache, name: str) -> tuple[int | None, str]:
    """The number of the block in the name of a point, None if the run has no such, and the rest."""
    blocks, at, point = [*name.split(".", 2), "", ""][:3]
    is_block = blocks == "blocks" and at.isdigit() and int(at) < depth(cache)
    return int(at) if is_block else None, point


def without(cache: Cache, name: Any) -> str:
    """The sentence about a name that a cache does not have."""
    at, _ = parsed(cache, str(name))
    points = {} if at is None else cache.points[place(cache, at)[0]]
    has = f"has {', '.join(points or cache.slots) or 'no slots'}"
    if points:
        has += f" in blocks.{at}"
    elif any(cache.points):
        has += f" and points of {label([*range(depth(cache))])}"
    names = [*cache] if depth(cache) < 1000 else [*cache.slots]
    return (
        f"{short_repr(name)} is not in the cache, which {has}; choose slots with names= and points "
        f"of blocks with points= or everything=True{suggestion(name, names)}"
    )


def branches(cache: Cache, of_steps: Callable[[jax.Array], Any]) -> dict[str, Any]:
    """{slot: value} and {blocks: {point: value}}; `of_steps` maps the values of all steps."""
    tree: dict[str, Any] = dict(cache.slots)
    for position, points in enumerate(cache.points):
        blocks = [block for block in range(depth(cache)) if place(cache, block)[0] == position]
        if points and blocks:
            prologue = position < cache.prologue
            tree[label(blocks)] = points if prologue else jax.tree.map(of_steps, points)
    return tree


def step_shape(leaf: Any) -> Any:
    """The shape of a value at one step; a placeholder without a shape is kept."""
    return jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype) if hasattr(leaf, "shape") else leaf


def label(blocks: list[int]) -> str:
    """The blocks at the same place in every step, such as "blocks.1, 6, ..., 36"."""
    numbers = [*map(str, blocks)]
    some = numbers if len(numbers) < 4 else [*numbers[:2], "...", numbers[-1]]
    return "blocks." + ", ".join(some)


def with_slots(points: dict[str, Any]) -> Iterator[str]:
    """The names of the points of a block, each followed by its slots."""
    for point, value in points.items():
        yield point
        if isinstance(value, dict):
            yield from (f"{point}.{slot}" for slot in value)


def part(block: dict[str, Any], point: str) -> Any:
    """A point, or one slot of a point."""
    if point in block:
        return block[point]
    whole, _, slot = point.rpartition(".")
    if not isinstance(block.get(whole), dict):
        raise KeyError(point)
    return block[whole][slot]


def as_text(tree: dict[str, Any]) -> str:
    """A tree {name: array or tree}, with as many of its levels as fit on one screen."""
    from rich.console import Console  # takes time to import
    from rich.markup import escape
    from rich.tree import Tree

    def grow(node: Any, tree: dict[str, Any], depth: int) -> None:
        for name, value in tree.items():
            if not isinstance(value, dict):
                node.add(escape(f"{name}: {pretty(value, 0)}"))
            elif depth > 1:
                grow(node.add(escape(name)), value, depth - 1)
            else:
                node.add(escape(f"{name}: {', '.join(value)}"))

    lines: list[str] = []
    for depth in (3, 2, 1):
        root, out = Tree("Cache"), StringIO()
        grow(root, tree, depth)
        Console(file=out, width=WIDTH, color_system=None).print(root)
        lines = [line.rstrip() for line in out.getvalue().splitlines()]
        if len(lines) <= LINES:
            break
    return "\n".join(lines)


@jax.jit
def entry(tree: Any, index: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[index], tree)
