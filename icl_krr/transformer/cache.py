"""Values that `run_with_cache` stores, by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from ..pytree import checked, static


@checked
class Cache(Mapping):
    """Stored values of a run: slots after each step, and points inside blocks.

    `cache["alpha"]` is a slot, `cache["blocks.3.attn"]` is a point of block 3 and
    `cache["blocks.3.attn.alpha"]` is one slot of that point. A cache is a pytree, so
    `run_with_cache` can be batched by `jax.vmap`. Read points of a batched cache inside the vmapped
    function, because the cache indexes their first axis by step.

    Args:
        slots: {slot: [steps + 1, ...]}, the values at the start and after each step.
        points: one dict {point: value} for each block of the prologue, then one for each block of a
            step. Values of step blocks have the steps as first axis.
        prologue: number of blocks in the prologue; default 0.
        steps: number of steps; default 0.

    Raises:
        KeyError: `cache[name]` for a name that the run did not store.

    >>> Cache({"alpha": jax.numpy.zeros((2, 3))}, [])["alpha"].shape
    (2, 3)
    """

    slots: dict[str, jax.Array]
    points: list[dict[str, Any]]
    prologue: int = static(default=0)
    steps: int = static(default=0)

    def __getitem__(self, name: str) -> Any:
        try:
            return self.slots[name] if name in self.slots else self.find(name)
        except (KeyError, AttributeError):
            raise KeyError(
                f"{name!r} is not in the cache; choose slots with names= and points of blocks with "
                "points= or everything=True"
            ) from None

    def find(self, name: str) -> Any:
        """Read a point of a block, or one slot of a point.

        Args:
            name: name of the point, such as "blocks.3.attn" or "blocks.3.attn.alpha".

        Raises:
            KeyError: the run did not store the point.
        """
        blocks, at, point = [*name.split(".", 2), "", ""][:3]
        if not self.points or blocks != "blocks" or not at.isdigit():
            raise KeyError(name)
        first, per_step = self.prologue, len(self.points) - self.prologue
        if int(at) < first:
            return part(self.points[int(at)], point)
        step, block = divmod(int(at) - first, per_step)
        if step >= self.steps:
            raise KeyError(name)
        return jax.tree.map(lambda value: value[step], part(self.points[first + block], point))

    def stack(self, point: str) -> Any:
        """Stack one point over all blocks: [depth, ...].

        Args:
            point: name of the point without its block, such as "resid_post" or "resid_post.alpha".

        Raises:
            KeyError: a block does not have the point, or the blocks have different slots there. The
                points "resid_pre", "resid_mid" and "resid_post" have every slot in every block.
        """
        blocks = [part(block, point) for block in self.points if has(block, point)]
        if not blocks or len(blocks) < len(self.points):
            found = f"{len(blocks)} of the {len(self.points)} blocks of prologue and step"
            raise KeyError(
                f"{point} must be in every block to be stacked, but {found} have it; choose it "
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
        blocks = [*self.points[: self.prologue]]
        blocks += self.points[self.prologue :] * self.steps
        for i, block in enumerate(blocks):
            for point, value in block.items():
                yield f"blocks.{i}.{point}"
                if isinstance(value, dict):
                    yield from (f"blocks.{i}.{point}.{slot}" for slot in value)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def has(block: dict[str, Any], point: str) -> bool:
    try:
        part(block, point)
    except KeyError:
        return False
    return True


def part(block: dict[str, Any], point: str) -> Any:
    """A point, or one slot of a point."""
    if point in block:
        return block[point]
    whole, _, slot = point.rpartition(".")
    if not isinstance(block.get(whole), dict):
        raise KeyError(point)
    return block[whole][slot]
