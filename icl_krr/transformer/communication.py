"""What the devices of a divided context send to each other in one step, counted from shapes."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from ..devices import Placement
from ..numerics import accumulator
from ..residual import num_tokens
from ..tasks import Task
from ..tasks.batches import chunk_of
from ..tasks.placement import own_part
from .heads import is_mean
from .liveness import wanted_slots
from .weights import Heads, Spec, Transformer


class Sent(NamedTuple):
    """Bytes that one device hands to the others, and the number of arrays in which it does."""

    bytes: int
    arrays: int


def step_sent(
    model: Transformer,
    task: Task,
    place: Placement | None,
    gradient: bool = False,
    names: tuple[str, ...] = (),
) -> Sent:
    r"""Count what each device sends in one step: of its tasks, all outputs included.

    Let $D$ devices hold the supports of a task, $K$ tokens each of which attention may read as
    keys. An all-reduce counts the size of its array once, and a collective-permute the size of what
    it passes on. Numbers have $s$ bytes, sums over many tokens $a = \max(s, 4)$ bytes. A group of
    $H$ heads with $k$ channels of queries and $d$ channels of values each sends

    - a mean: one all-reduce of $s H d$ bytes;
    - linear attention: one all-reduce of the states, $s H k d$ bytes;
    - causal linear attention: $1 + \lceil \log_2 (D - 1) \rceil$ permutes and one all-reduce of the
      states, $a H k d$ bytes each;
    - softmax attention: one all-reduce of the largest values, $a H d$ bytes, and $D$ rounds of
      permutes of the keys, of the values with a column of ones, and of what is visible,
      $K (a H (k + d + 1) + 1)$ bytes each; if it is causal, also of positions, 4 bytes for a token
      (8 with `jax_enable_x64`).

    MLPs, norms and reads send nothing, nor does a device that holds the whole context. Heads that
    write only what neither the prediction nor the slots `names` depend on are left out.

    A gradient counts linear attention and means three times: forward, once more where the step is
    computed again, and backward. Of softmax attention it counts the forward part twice, and $D$
    rounds of keys, values, their gradients, what is visible, and positions. The sum of the
    gradients at the weights over all devices is sent once, after all steps, and is not counted.
    """
    devices = place.parts(place.context) if place else 1
    if devices == 1:
        return Sent(0, 0)
    own = own_part(task, place)
    wanted = wanted_slots(model, names)
    groups = [
        heads
        for block in model.weights.steps
        for heads in block.attention
        if not wanted.isdisjoint(write.to for write in heads.writes)
    ]
    sizes = [
        size for heads in groups for size in of_heads(heads, model.spec, own, devices, gradient)
    ]
    outputs = task.num_outputs // model.spec.num_outputs
    tasks, chunk = (len(own.x), chunk_of(own, None)) if own.x.ndim > 2 else (1, 1)
    return Sent(outputs * tasks * sum(sizes), -(-tasks // chunk) * len(sizes))


def of_heads(heads: Heads, spec: Spec, task: Task, devices: int, gradient: bool) -> list[int]:
    """The bytes of every array that one device sends for one group of heads."""
    q, v = heads.query.width, sum(write.value.width for write in heads.writes)
    size, wide = jnp.dtype(task.x.dtype).itemsize, accumulator(task.x.dtype).itemsize
    states, passes = q * v // heads.heads, 3 if gradient else 1
    if is_mean(heads, spec):
        return [size * v] * passes
    if spec.attention == "linear" and spec.causal:
        return [wide * states] * (2 + (devices - 2).bit_length()) * passes
    if spec.attention == "linear":
        return [size * states] * passes
    keys = num_tokens(task, spec.tokens) - task.num_queries
    positions = [keys * jnp.dtype(jnp.result_type(int)).itemsize] * spec.causal
    held = [keys * wide * q, keys * wide * v]
    column = keys * wide * heads.heads
    forward = [wide * v, *[held[0], held[1] + column, keys, *positions] * devices]
    return 2 * forward + [*held, *held, keys, *positions] * devices if gradient else forward
