"""Estimates of the memory that a run needs, before the run starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import psutil
from jax.core import Tracer

from .. import checks
from ..tasks import Task
from ..tasks.batches import chunk_of
from .evaluate import check_compatible, evaluate, evaluate_batch
from .weights import Transformer

FEW_ENTRIES, SMALL_RUN = 2**16, 2**28
"""No estimate is made for fewer entries of x, or for a run of fewer bytes."""


class Memory(NamedTuple):
    """Memory of a run in bytes.

    Attributes:
        arguments: bytes of the inputs (weights and task).
        results: bytes of the outputs.
        scratch: bytes of temporary arrays.
        free: bytes that are free on the default device; on a CPU, the available system memory.
    """

    arguments: int
    results: int
    scratch: int
    free: int

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
) -> Memory:
    """Estimate the memory that a run needs, without running it.

    The run is compiled, and the compiler reports the sizes. Only shapes and dtypes matter, so
    `jax.ShapeDtypeStruct` can replace the arrays.

    Args:
        model: the model to run.
        task: one task (measures `run_with_cache`) or a batch of tasks (measures `predict_batch`).
        names: slots that `run_with_cache` stores; default (): none. Not used for a batch.
        everything: whether `run_with_cache` stores all points of all blocks; default False. Not
            used for a batch.
        gradient: whether to measure the gradient of the prediction with respect to all weights,
            instead of the prediction; default False.

    Returns:
        A `Memory`.

    Raises:
        ValueError: the task does not fit the model.
        TypeError: an argument has the wrong type, or the dtype of the task is float16 or wider than
            the dtype of the weights.

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
    batch = task.x.ndim - 2
    check_compatible(model, task, batch)
    run = evaluate_batch if batch else evaluate
    options: dict[str, Any] = {"names": names, "keep": everything}
    if batch:
        options = {"chunk": chunk_of(task, None)}
    if not gradient:
        return measure(run, model, task, options)
    loss = lambda model, task: jnp.sum(jax.tree.leaves(run(model, task, **options))[0])  # noqa: E731
    return measure(jax.jit(jax.grad(loss)), model, task, {})


def run_if_it_fits(run: Callable, model: Transformer, task: Task, **options: Any) -> Any:
    """Run, but raise MemoryError for a large run that does not fit into memory."""
    large = task.x.size > FEW_ENTRIES or options.get("keep")
    if large and not isinstance(task.x, Tracer) and rough_size(model, task, options) > SMALL_RUN:
        need = measure(run, model, task, options)
        if need.peak > need.free:
            raise MemoryError(
                f"run must fit into memory, but needs {gigabytes(need.peak)} (results "
                f"{gigabytes(need.results)}, scratch {gigabytes(need.scratch)}) and "
                f"only {gigabytes(need.free)} are free; keep fewer slots (names=), avoid "
                "everything=True, or run fewer tasks at once"
            )
    return run(model, task, **options)


def rough_size(model: Transformer, task: Task, options: dict[str, Any]) -> float:
    """Bytes of a few streams, of the values to store, and of the patterns to store."""
    tokens = task.x.size // task.num_features + task.x_query.size // task.num_features
    slots = model.layout.slots
    kept = sum(slot.width for slot in slots if slot.name in options.get("names", ()))
    channels = 8 * model.layout.width + model.steps * kept
    if keep := options.get("keep"):
        channels += model.depth * 4 * model.layout.width
        patterns = keep is True or any(point.endswith("pattern") for point in keep)
        channels += model.depth * tokens * model.num_heads * patterns
    return float(tokens) * channels * task.x.dtype.itemsize


def measure(run: Callable, model: Transformer, task: Task, options: dict[str, Any]) -> Memory:
    # the run afterwards uses the same compiled program: nothing is compiled twice
    sizes = run.lower(model, task, **options).compile().memory_analysis()  # pyright: ignore[reportFunctionMemberAccess]
    return Memory(
        sizes.argument_size_in_bytes,
        sizes.output_size_in_bytes,
        sizes.temp_size_in_bytes,
        free(jax.devices()[0]),
    )


def free(device: Any) -> int:
    """Free bytes of a device; for a CPU, the available memory of the machine."""
    if device.platform == "cpu":
        return psutil.virtual_memory().available
    stats = device.memory_stats()
    return stats["bytes_limit"] - stats["bytes_in_use"]


def gigabytes(count: int) -> str:
    return f"{count / 1e9:.3g} GB"
