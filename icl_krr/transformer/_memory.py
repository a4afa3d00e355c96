"""What the compiler says of a run: its memory and its work, before the run starts."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from .._core import checks, memory_limit
from .._core.readable import readable
from ..tasks import Task
from ._request import Request
from ._run_plan import prepare_run
from ._weights import Transformer


@readable
class Memory(NamedTuple):
    """Memory and work of a run on one device, as the compiler of JAX states them.

    Attributes:
        arguments: bytes of the inputs (weights and task).
        results: bytes of the outputs.
        scratch: bytes of temporary arrays.
        free: bytes that are free on the device; on a CPU, the available memory of the system.
        flops: operations on numbers. The compiler takes each loop once: the start, one step and the
            readout; of a batch those of one chunk.
        moved: bytes that all operations read and write, counted in the same way.
    """

    arguments: int
    results: int
    scratch: int
    free: int
    flops: int
    moved: int

    @property
    def peak(self) -> int:
        """The largest memory of the run in bytes: arguments, results and scratch."""
        return self.arguments + self.results + self.scratch


def memory(
    model: Transformer,
    task: Task,
    *,
    names: tuple[str, ...] = (),
    everything: bool = False,
    gradient: bool = False,
    mesh: Mesh | None = None,
) -> Memory:
    """Ask the compiler for the memory and the work of a run, without running it.

    Only shapes and dtypes matter, so `jax.ShapeDtypeStruct` can replace the arrays.

    Args:
        task: one task (measures `run_with_cache`) or a batch of tasks (measures `predict_batch`).
        names: slots that `run_with_cache` stores; none by default. Not used for a batch.
        everything: as in `run_with_cache`. Not used for a batch.
        gradient: whether to measure the gradient of the prediction with respect to all weights.

    >>> import jax
    >>> import icl_krr as ik
    >>> config = ik.tasks.LinearRegression(num_features=2)
    >>> task = jax.eval_shape(lambda: ik.tasks.sample(jax.random.key(0), config))
    >>> model = ik.constructions.conjugate_gradient(ik.Linear(), num_features=2, ridge=0.1, steps=4)
    >>> memory(model, task).peak < memory(model, task, everything=True).peak
    True
    """
    checks.names("names", names)
    checks.flag("everything", everything)
    checks.flag("gradient", gradient)
    checks.instance("task", task, Task, "an icl_krr.Task")
    request = Request(names=tuple(names), keep=everything)
    plan = prepare_run(model, task, request, batch=task.x.ndim - 2, mesh=mesh, copies=0)
    if gradient:

        def loss(model: Transformer, task: Task) -> jax.Array:
            return jnp.sum(jax.tree.leaves(plan.program(model, task, **plan.options))[0])

        lowered = jax.jit(jax.grad(loss)).lower(model, plan.task)
    else:
        lowered = plan.program.lower(model, plan.task, **plan.options)
    compiled = lowered.compile()
    sizes: Any = compiled.memory_analysis()
    work: Any = compiled.cost_analysis()
    return Memory(
        sizes.argument_size_in_bytes,
        sizes.output_size_in_bytes,
        sizes.temp_size_in_bytes,
        memory_limit.free_bytes(),
        int(work.get("flops", 0)),
        int(work.get("bytes accessed", 0)),
    )
