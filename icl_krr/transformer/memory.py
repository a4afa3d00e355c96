"""Estimates of the memory that a run needs and of the work of a step, before the run starts."""

from __future__ import annotations

from typing import NamedTuple

from jax.sharding import Mesh

from .. import checks
from ..readable import readable
from ..tasks import Task
from .admission import admit
from .cost import step_cost, step_sent
from .evaluate import Request
from .weights import Transformer


@readable
class Memory(NamedTuple):
    """Memory of a run in bytes, and the work of one of its steps.

    If the supports or the tasks are divided over devices, all numbers are those of one device.

    Attributes:
        arguments: bytes of the inputs (weights and task).
        results: bytes of the outputs.
        scratch: bytes of temporary arrays.
        free: bytes that are free on the device; on a CPU, the available system memory, of which
            each of several devices of one process has its share.
        step_flops: additions and multiplications of one step, as
            `icl_krr.transformer.cost.step_cost` counts them.
        step_bytes: bytes that one step must move, counted there too.
        step_sent: bytes that a device hands to the others in one step, as
            `icl_krr.transformer.cost.step_sent` counts them (a ring sends 2 (D - 1) / D times as
            much in an all-reduce). Default 0: one device.
        step_arrays: the number of arrays in which it does so; default 0.
    """

    arguments: int
    results: int
    scratch: int
    free: int
    step_flops: int
    step_bytes: int
    step_sent: int = 0
    step_arrays: int = 0

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
    """Estimate the memory that a run needs and the work of one step, without running it.

    The run is compiled, and the compiler reports the sizes. The work is counted from the shapes of
    the weights, for all tasks together; a gradient counts as three forward steps, because each
    product has two products in its derivative. Only shapes and dtypes matter, so
    `jax.ShapeDtypeStruct` can replace the arrays.

    Args:
        model: as in `predict`, which also says what is raised.
        task: one task (measures `run_with_cache`) or a batch of tasks (measures `predict_batch`).
        names: slots that `run_with_cache` stores; default (): none. Not used for a batch.
        everything: as in `run_with_cache`. Not used for a batch.
        gradient: whether to measure the gradient of the prediction with respect to all weights,
            instead of the prediction; default False.
        mesh: as in `predict_batch`.

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
    admitted = admit(model, task, request, batch=task.x.ndim - 2, mesh=mesh)
    place, passes = admitted.place, 3 if gradient else 1
    work, sent = step_cost(model, task, place), step_sent(model, task, place, gradient, names)
    step = passes * work.flops, passes * work.bytes, *sent
    return Memory(*admitted.sizes(gradient), *step)
