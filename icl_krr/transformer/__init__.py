r"""Transformers: weights as one pytree, the forward pass, caches, hooks and memory estimates.

Axis names: T tokens, H heads, L steps. A task with n supports and q queries has T = 1 + n + q
tokens, or 1 + 2n + q in the format "interleaved".

**The way of a task.** From `predict` to a head, a task with x [n, p], y [n] and x_query [q, p]
passes six functions:

1. `predict` (in `_predict.py`) calls `prepare_run`, which checks that the task fits the model and
   the memory, and returns a `RunPlan`: program, task and options. Then it calls the program.
2. `evaluate` (`_evaluate.py`) is that program, compiled once for each structure of model and task.
   It divides y [n] by a power of two, if the size of y is extreme and the model is homogeneous in
   y, embeds the task as a stream {slot: [T, width]}, calls `forward`, reads the prediction [q] out
   of the last stream, and multiplies it by the scale. `rescaled` has the derivatives.
3. `forward` (`_forward.py`) runs the blocks of the prologue once, then all steps as one scan, from
   a stream {slot: [T, width]} and the key mask [T] to the last stream. Softmax patterns [H, T, K]
   that no step changes are computed here, by `constant_patterns`, before the scan: such a head has
   its queries and keys there, and only its values in `run_heads`.
4. `step` (`_forward.py`) is the body of the scan. It runs the blocks of one step. The slots that
   pass from step to step go in and come out, and what is stored of each step comes out.
5. `run_block` (`_block.py`) adds to the stream what its heads write, then what its MLP units write.
6. `run_heads` (`_heads.py`) computes a group of H heads: from queries and keys [T, H, d_k] and
   values [T, H, d_v] to mixed values [T, H, d_v], and to what they write, {slot: [T, width]}. The
   patterns [H, T, T], and their products with values, are those of `attend` (`_attention.py`).

Each of the six calls the next; all else that they call returns before. There are a few more
functions on the way if a model with one output runs on a task with several (`evaluate_task`, which
runs `evaluate` on each output), for a batch (`evaluate_batch`, which runs `evaluate_task` on each
task) and on several devices (`evaluate_sharded`).

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

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
