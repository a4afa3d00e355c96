"""The forward pass of one task, for constructed and trained weights."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..residual import Stream
from ..residual._tokens import DividedTokens, without_aggregator
from ._block import run_block
from ._full_softmax import FullSoftmax
from ._heads import constant_patterns, precomputed_heads
from ._hook_points import Hook, Hooks
from ._masks import KeyMask
from ._tying import loop_carried_slots, split_steps
from ._weights import Transformer, with_patterns


class Pass(NamedTuple):
    """The stream after the last block, the values of `observe` [steps + 1, ...], and `points`.

    These are one dict {point: value} for each block of the prologue, then one for each block of a
    step, whose values have the steps as first axis.
    """

    stream: Stream
    observed: Any
    points: list[dict[str, Any]]


def forward(
    model: Transformer,
    stream: Stream,
    key_mask: KeyMask,
    *,
    observe: Callable[[Stream], Any] = lambda stream: (),
    keep: bool | Collection[str] = (),
    hooks: Mapping[str, Hook] | None = None,
    store_products: bool = False,
) -> Pass:
    """Run an embedded task through the blocks of a model.

    All steps are one `jax.lax.scan`, so the compile time does not grow with depth. The scan carries
    the slots that a step writes and does not erase. The memory does not grow with depth either,
    except that a gradient stores these slots for each step. Batch the function by `jax.vmap`.

    Args:
        stream: the embedded task, {slot: [T, width]} (see `icl_krr.residual.embed`; pass
            `model.spec.tokens` and `model.spec.centred`).
        key_mask: [T] bool, True for the tokens that can be read as keys (see
            `icl_krr.residual.key_mask`).
        observe: function of the stream, called after the prologue and after every step, whose
            values are stored.
        keep: names of points, such as "attn.alpha", whose values are stored in every block that has
            them, or True for all points.
        hooks: {name: function (value, where) -> value} (see `icl_krr.run_with_hooks`).
        store_products: whether a gradient stores products with weights instead of computing them
            again, unless they are large: faster while what it stores stays in the caches.

    >>> import icl_krr as ik
    >>> model = ik.constructions.nadaraya_watson(ik.Exponential(), num_features=1)
    >>> task = ik.Task(x=[[1.0]], y=[3.0], x_query=[[1.0]])
    >>> stream = ik.residual.embed(model.weights.embedding, task)
    >>> forward(model, stream, ik.residual.key_mask(task)).stream["prediction"][-1].tolist()
    [3.0]
    """
    spec, weights = model.spec, model.weights
    first = len(weights.prologue)
    if not spec.aggregator:
        key_mask = without_aggregator(key_mask)
    run_hooks = Hooks(model, hooks or {}, keep)
    if run_hooks.used:
        stream = jax.tree.map(jnp.asarray, stream)
    # the patterns that no step changes are computed here, before the scan
    whole = not (run_hooks.hooks or keep is True or isinstance(key_mask, DividedTokens))
    pairs = precomputed_heads(model, len(key_mask)) if whole else []
    shared: dict[str, FullSoftmax] = {}
    points: list[dict[str, Any]] = []
    for i, block in enumerate(with_patterns(weights.prologue, weights.patterns)):
        patterns = constant_patterns(block, i, pairs, stream, key_mask, spec, shared)
        hook_points = run_hooks.of_block(i, 0)
        stream = run_block(block, stream, key_mask, spec, hook_points, patterns)
        points.append(run_hooks.stored(hook_points))
    scanned, blocks = split_steps(model)
    first_step = blocks([leaf if leaf is None else leaf[0] for leaf in scanned])
    every_step = [
        constant_patterns(block, i, pairs, stream, key_mask, spec, shared)
        for i, block in enumerate(first_step, first)
    ]
    start, carry = stream, stream
    if not run_hooks.change_steps(first):  # a hook may change any slot
        carry = loop_carried_slots(weights.steps, stream)

    def step(carry: Stream, inputs: tuple[list[Any], jax.Array]) -> tuple[Stream, Any]:
        leaves, index = inputs
        stream, points = start | carry, []
        for i, (block, patterns) in enumerate(zip(blocks(leaves), every_step, strict=True), first):
            hook_points = run_hooks.of_block(i, index)
            stream = run_block(block, stream, key_mask, spec, hook_points, patterns)
            points.append(run_hooks.stored(hook_points))
        return {slot: stream[slot] for slot in carry}, (observe(stream), points)

    # recomputing the other values of a step for the gradient is faster than storing them
    policy = partial(stores_product, model.steps) if store_products else None
    step = jax.checkpoint(step, prevent_cse=False, policy=policy)
    carry, (path, step_points) = jax.lax.scan(step, carry, (scanned, jnp.arange(model.steps)))
    run_hooks.check_points()
    observed = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), observe(start), path)
    return Pass(jax.tree.map(jnp.asarray, start | carry), observed, points + step_points)


STORED = 2**25
"""Bytes of the factors, in all steps, of which a gradient may store the product with weights."""


def stores_product(steps: int, primitive: Any, *factors: Any, **parameters: Any) -> bool:
    """Whether an operation is a product with weights that a gradient may store for every step.

    Products of attention, which are larger, have the heads as batch dimension.
    """
    weights = jax.checkpoint_policies.dots_with_no_batch_dims_saveable
    if not weights(primitive, *factors, **parameters):
        return False
    return steps * factors[0].size * factors[0].dtype.itemsize < STORED
