"""How many numbers a run holds, from shapes: bounds from above and from below."""

from __future__ import annotations

from typing import Any

import jax

from ..tasks import Task
from .evaluate import Request
from .tiled_attention import uses_tiles
from .tying import is_mean, lasting_slots
from .weights import Block, Transformer


def most_numbers(model: Transformer, request: Request, tokens: int) -> int:
    """An upper bound for one task that takes no time: it looks at no block."""
    width = model.layout.width
    points = 10 if request.keep is True else len(request.keep or ())
    stored = width * (1 + len(request.names)) + model.blocks_per_step * points * (width + tokens)
    formed = model.spec.attention == "softmax" or points or request.hooks
    pairs = tokens if formed else width  # of tokens, or of the channels of keys and values
    return tokens * (width * (2 + 3 * pairs) + model.steps * stored)


def least_numbers(
    model: Transformer, task: Task, request: Request, tokens: int, divided: bool, gradient: bool
) -> float:
    """A lower bound for one task: the stream, what is stored, and patterns if not `divided`."""
    layout, weights = model.layout, model.weights
    rows: dict[tuple[str, ...], int] = {
        ("aggregator",): 1,
        ("support",): task.num_supports,
        ("query",): task.num_queries,
    }
    stored = sum(
        rows.get(layout[name].at, tokens) * layout[name].width
        for name in request.names
        if name != "prediction"
    )
    pattern = 0 if divided else tokens**2 * largest_pattern(model, tokens, request)
    # without a mask the weights replace the logits; the gradient stores the weights of one step
    numbers = tokens * layout.width + (2 if gradient else 1) * pattern + (model.steps + 1) * stored
    for blocks, times in ((weights.prologue, 1), (weights.steps, model.steps)):
        each = (numbers_of_points(block, request.keep, tokens, layout.width) for block in blocks)
        numbers += times * sum(each)
    if gradient:  # it stores what each step passes to the next
        lasting = lasting_slots(weights.steps) & set(layout.names)
        numbers += model.steps * tokens * sum(layout[slot].width for slot in lasting)
    return numbers


def largest_pattern(model: Transformer, tokens: int, request: Request) -> int:
    """The largest number of heads whose patterns [T, T] exist at the same time."""
    spec = model.spec
    formed = spec.attention == "softmax" and not uses_tiles(tokens, spec.streaming)
    if not formed and not any(name.endswith("pattern") for name, _ in request.hooks):
        return 0
    groups = [group for block in model.blocks for group in block.attention]
    return max((group.heads for group in groups if not is_mean(group, spec)), default=0)


def numbers_of_points(block: Block, kept: Any, tokens: int, width: int) -> float:
    """The numbers that a run stores at the points of one block."""
    heads = [group.heads for group in block.attention]
    if kept is True:
        return 3 * tokens * width + tokens**2 * sum(heads)
    numbers = 0
    for point in kept or ():
        group = point.removeprefix("heads.").removesuffix(".pattern")
        if point in ("resid_pre", "resid_mid", "resid_post"):
            numbers += tokens * width
        elif group.isdigit() and point.endswith("pattern"):
            numbers += tokens**2 * sum(heads[int(group) : int(group) + 1])
    return numbers


def how_to_need_less(model: Transformer, divided: bool) -> str:
    """What the caller can do if a run does not fit."""
    if divided:
        return "divide the task over more devices (mesh=), or use fewer tokens, tasks or outputs"
    over = ", or divide the supports over devices (mesh=)" if jax.device_count() > 1 else ""
    if model.spec.attention == "softmax" and model.spec.streaming is False:
        return f"use streaming=None, which computes long contexts in tiles, or fewer tokens{over}"
    return (
        "keep fewer slots (names=), avoid everything=True, or use fewer tokens, tasks or outputs "
        f"at once{over}"
    )
