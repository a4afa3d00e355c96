r"""Transformers: weights as one pytree, the forward pass, caches, hooks and memory estimates.

Axis names: T tokens, H heads, L steps. A task with n supports and q queries has T = 1 + n + q
tokens, or 1 + 2n + q in the format "interleaved".

**Several devices.** A mesh whose axis is called `tasks` divides a batch of tasks: every device has
all weights and runs its own tasks. A mesh whose axis is called `context` divides the supports of
each task, so that the longest context grows with the number of devices. A mesh can have both axes.

>>> import jax
>>> import icl_krr as ik
>>> family = ik.tasks.LinearRegression(num_features=2, num_supports=64)
>>> task = ik.tasks.sample(jax.random.key(0), family)
>>> model = ik.constructions.conjugate_gradient(ik.Linear(), num_features=2, ridge=0.1, steps=2)
>>> mesh = jax.make_mesh((jax.device_count(),), ("context",))
>>> bool(abs(ik.predict(model, task, mesh=mesh) - ik.predict(model, task)).max() < 1e-5)
True

The results and the gradients are those of one device, to rounding. A batch and a context may have
any size: they are padded. Arrays that are divided already stay as they are, over axes of any name,
so a context may be larger than the memory of one device (`jax.make_array_from_callback` makes such
arrays). Only inside of your own `jax.jit` on a mesh with automatic axes, where nothing tells how
arrays are divided, you must give `mesh=`; without it the compiler may copy the context to all
devices. `jax.set_mesh` divides all batches over the axis `tasks`: of `predict_batch`, of
`icl_krr.map_tasks`, and of training and probes. For probes and for your own functions the axes must
be automatic (`jax.sharding.AxisType.Auto`), because JAX does not divide functions that close over
arrays of a mesh with explicit axes. A gradient through `icl_krr.map_tasks` needs the model as one
of its arguments `shared`. Inside of your own `jax.shard_map`, set `check_vma=False`.

Each device holds its supports, and its own copy of the aggregator and of the queries. For linear
attention, the devices add up the states $\sum_j k_j v_j^T$ of a head. For softmax attention, keys
and values go around a ring: in each of as many rounds as there are devices, a device adds what it
holds to its running sums, and passes it to the next device. The backward pass is a ring, too.
Points inside of blocks and hooks need one device; `jax.jvp` needs linear attention.

Source: Liu, Zaharia, Abbeel, Ring attention with blockwise transformers for near-infinite context,
2023.
"""

from .._core.devices import Placement
from ._cache import Cache
from ._cost import Cost, Sent, step_cost, step_sent
from ._dense import dense
from ._forward import forward
from ._hook_points import Where
from ._init import Architecture, init
from ._memory import Memory, memory
from ._read_outs import operand_bounds, predictive, read_outs
from ._resume import resume, tail
from ._run import predict, predict_along, predict_batch, run_with_cache, run_with_hooks
from ._stack import stack
from ._tying import untie
from ._weights import Block, Heads, Norm, Problem, Spec, Transformer, Unit, Weights, Write

__all__ = [
    "Architecture",
    "Block",
    "Cache",
    "Cost",
    "Heads",
    "Memory",
    "Norm",
    "Placement",
    "Problem",
    "Sent",
    "Spec",
    "Transformer",
    "Unit",
    "Weights",
    "Where",
    "Write",
    "dense",
    "forward",
    "init",
    "memory",
    "operand_bounds",
    "predict",
    "predict_along",
    "predict_batch",
    "predictive",
    "read_outs",
    "resume",
    "run_with_cache",
    "run_with_hooks",
    "stack",
    "step_cost",
    "step_sent",
    "tail",
    "untie",
]
