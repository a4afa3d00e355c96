"""The work of one step, and what devices send to each other in it, counted from shapes."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._core.devices import Placement
from .._core.numerics import accumulation_dtype
from ..residual import Read, num_tokens
from ..tasks import Task
from ..tasks._batches import chunk_size, device_shard
from . import _weights
from ._heads import precomputed_heads
from ._tying import erases, is_mean, token_invariant_slots


class Cost(NamedTuple):
    """The work of one step.

    Attributes:
        flops: number of additions and multiplications.
        bytes: number of bytes that are read and written.
        exponentials: number of entries of softmax patterns that are computed.
    """

    flops: int
    bytes: int
    exponentials: int

    @property
    def seconds(self) -> float:
        """How long two cores of a CPU take: a fifth of that, or five times as long."""
        return self.flops / 2e10 + self.bytes / 1e10 + self.exponentials * 3.5e-9


def step_cost(model: _weights.Transformer, task: Task, place: Placement | None = None) -> Cost:
    """Count the work of one step, for one task or for a batch; with `place`, that of one device.

    With T tokens, of which K precede the queries, a matrix of a read, a head or an MLP unit takes
    2 T for each of its entries, and a scalar T for each channel. A softmax head takes 2 T K for
    each channel of its queries and of its values, a linear one 4 T for each pair of them; patterns
    that are the same in all steps are not counted. Products of MLP units and sums take T for each
    channel, but 1 in a slot that is the same at all tokens. Erasing a slot and functions of one
    number take nothing.

    Bytes are those of a program that keeps nothing else between blocks: a block reads each slot
    that it uses and writes each slot that it changes, once, and reads its weights, which all tasks
    share, and the attention patterns that are the same in all steps.

    Of D devices along `place.context`, each has n / D supports, an aggregator and all queries. Its
    softmax heads read the keys of all devices, and no pattern is computed before the first step.

    Args:
        place: the axes of a mesh that divide the tasks and the supports; None for one device.

    >>> import icl_krr as ik
    >>> task = ik.tasks.split(ik.tasks.diabetes(), 300, seed=0)
    >>> cg = ik.constructions.conjugate_gradient
    >>> model = cg(ik.Linear(), num_features=10, ridge=1.0, steps=3)
    >>> step_cost(model, task).flops
    57590
    """
    task, parts = device_shard(task, place), place.parts(place.context) if place else 1
    tokens, size = num_tokens(task, model.spec.tokens), jnp.dtype(task.x.dtype).itemsize
    keys = parts * (tokens - task.num_queries)
    copies = task.num_outputs // model.spec.num_outputs
    copies *= len(task.x) if task.x.ndim > 2 else 1
    flops, stream, weights, entries = 0, 0, 0, 0
    rows = dict.fromkeys(token_invariant_slots(model), 1)
    pairs = [] if place and place.context else precomputed_heads(model, tokens)
    first = len(model.weights.prologue)
    steps = jax.tree.map(lambda w: jax.ShapeDtypeStruct(w.shape[1:], w.dtype), model.weights.steps)
    for b, block in enumerate(_weights.with_patterns(steps, model.weights.patterns)):
        constant = {j for at, j in pairs if at == first + b}
        each = enumerate(block.attention)
        flops += sum(flops_of_heads(h, model, tokens, keys, j in constant) for j, h in each)
        if model.spec.attention == "softmax":
            formed = [h for j, h in enumerate(block.attention) if j not in constant]
            entries += tokens * keys * sum(h.heads for h in formed if not is_mean(h, model.spec))
        flops += sum(rows.get(unit.to, tokens) * flops_of_unit(unit) for unit in block.mlp)
        stream += numbers(block, constant, tokens, rows)
        stream += tokens * keys * sum(block.attention[j].heads for j in constant)
        weights += sum(leaf.size for leaf in jax.tree.leaves(block))
    return Cost(copies * flops, size * (copies * stream + weights), copies * entries)


def flops_of_heads(
    heads: _weights.Heads, model: _weights.Transformer, tokens: int, keys: int, constant: bool
) -> int:
    q, v = heads.query.width, sum(write.value.width for write in heads.writes)
    outs = (flops_of_out(write.out, write.value.width) for write in heads.writes)
    flops = tokens * (sum(flops_of_read(write.value) for write in heads.writes) + sum(outs))
    if is_mean(heads, model.spec):
        return flops + tokens * v
    if not constant:
        flops += tokens * sum(map(flops_of_read, heads.reads))
    if model.spec.attention == "linear":
        return flops + 4 * tokens * q * v // heads.heads
    return flops + 2 * tokens * keys * (v if constant else q + v)


def flops_of_unit(unit: _weights.Unit) -> int:
    """For one token."""
    if erases(unit):
        return 0
    reads = _weights.expressions(unit)
    product = _weights.width(unit) * (len(reads) - 1)
    return sum(map(flops_of_read, reads)) + product + flops_of_out(unit.out, _weights.width(unit))


def flops_of_read(read: Read) -> int:
    """For one token: the products, and the sum over slots."""
    products = sum(2 * b.size if np.ndim(b) else read.width for b in read.blocks.values())
    return products + max(len(read.blocks) - 1, 0) * read.width


def flops_of_out(out: Any, hidden: int) -> int:
    """For one token: the product, and the sum with the slot."""
    return hidden if out is None else 2 * out.size + out.shape[-1]


def numbers(block: _weights.Block, constant: set[int], tokens: int, rows: dict[str, int]) -> int:
    """How many numbers a block reads and writes, each slot once, `tokens` rows or those given."""
    reads = [read for unit in block.mlp for read in _weights.expressions(unit)]
    for j, heads in enumerate(block.attention):
        reads += _weights.expressions(heads)[len(heads.reads) if j in constant else 0 :]
    written = {slot: size for part in block.layers for slot, size in _weights.widths(part).items()}
    used = written | {slot: read.rows(slot) for read in reads for slot in read.blocks}
    each = [*used.items(), *written.items()]
    return sum(rows.get(slot, tokens) * size for slot, size in each)


class Sent(NamedTuple):
    """What one device sends to the others.

    Attributes:
        bytes: number of bytes.
        arrays: number of arrays.
    """

    bytes: int
    arrays: int


def step_sent(
    model: _weights.Transformer, task: Task, place: Placement | None, gradient: bool = False
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

    Heads on which the prediction does not depend are left out. A gradient counts linear attention
    and means three times. Of softmax attention it counts the forward part twice, and $D$ rounds of
    keys, values, their gradients, what is visible, and positions.

    Args:
        place: the axes of a mesh that divide the tasks and the supports; None for one device.
        gradient: whether to count the step of a gradient, which has a backward pass, too.

    >>> import icl_krr as ik
    >>> from jax.sharding import AbstractMesh
    >>> task = ik.tasks.split(ik.tasks.diabetes(), 300, seed=0)
    >>> cg = ik.constructions.conjugate_gradient
    >>> model = cg(ik.Linear(), num_features=10, ridge=1.0, steps=3)
    >>> step_sent(model, task, Placement(AbstractMesh((2,), ("context",)), context=("context",)))
    Sent(bytes=60, arrays=6)
    """
    devices = place.parts(place.context) if place else 1
    if devices == 1:
        return Sent(0, 0)
    shard = device_shard(task, place)
    live = slots_of_prediction(model)
    steps = model.blocks[len(model.weights.prologue) :]
    groups = [heads for block in steps for heads in block.attention]
    groups = [heads for heads in groups if not live.isdisjoint(_weights.widths(heads))]
    each = (sent_by_heads(heads, model.spec, shard, devices, gradient) for heads in groups)
    sizes = [size for part in each for size in part]
    outputs = task.num_outputs // model.spec.num_outputs
    tasks, chunk = (len(shard.x), chunk_size(shard, None)) if shard.x.ndim > 2 else (1, 1)
    return Sent(outputs * tasks * sum(sizes), -(-tasks // chunk) * len(sizes))


def slots_of_prediction(model: _weights.Transformer) -> set[str]:
    """The slots on which the prediction depends."""
    live, before = {*model.weights.readout.blocks}, set()
    while live != before:
        before = set(live)
        for block in model.blocks:
            for heads in block.attention:
                writes = [write for write in heads.writes if write.to in live]
                reads = [*heads.reads, *(write.value for write in writes)]
                live |= {slot for read in reads for slot in read.blocks if writes}
            for unit in block.mlp:
                reads = _weights.expressions(unit) if unit.to in live else []
                live |= {slot for read in reads for slot in read.blocks}
    return live


def sent_by_heads(
    heads: _weights.Heads, spec: _weights.Spec, task: Task, devices: int, gradient: bool
) -> list[int]:
    """The bytes of every array that one device sends for one group of heads."""
    q, v = heads.query.width, sum(write.value.width for write in heads.writes)
    size, wide = jnp.dtype(task.x.dtype).itemsize, accumulation_dtype(task.x.dtype).itemsize
    states, passes = q * v // heads.heads, 3 if gradient else 1
    if is_mean(heads, spec):
        return [size * v] * passes
    if spec.attention == "linear" and spec.causal:
        return [wide * states] * (2 + (devices - 2).bit_length()) * passes
    if spec.attention == "linear":
        return [size * states] * passes
    keys = num_tokens(task, spec.tokens) - task.num_queries
    positions = [keys * jnp.dtype(jnp.result_type(int)).itemsize] if spec.causal else []
    arrays = [keys * wide * q, keys * wide * v]
    column = keys * wide * heads.heads
    forward = [wide * v, *[arrays[0], arrays[1] + column, keys, *positions] * devices]
    return 2 * forward + [*arrays, *arrays, keys, *positions] * devices if gradient else forward
