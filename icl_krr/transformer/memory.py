"""What a run needs of memory, known before it starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import psutil
from jax.core import Tracer

from ..tasks import Task
from ..tasks.batches import chunk_of
from .evaluate import check_compatible, evaluate, evaluate_batch
from .weights import Transformer

FEW_ENTRIES, SMALL_RUN = 2**16, 2**28
"""Entries of x, and bytes, below which a run is not worth an estimate."""


class Memory(NamedTuple):
    """Bytes: what goes in, what comes out, what lives in between; what the device has free."""

    arguments: int
    results: int
    scratch: int
    free: int

    @property
    def peak(self) -> int:
        """All that is held at once: arguments, results and scratch."""
        return self.arguments + self.results + self.scratch


def memory(
    model: Transformer,
    task: Task,
    *,
    names: tuple[str, ...] = (),
    everything: bool = False,
    gradient: bool = False,
) -> Memory:
    """The memory that a run would need, as the compiler lays it out; nothing is run.

    Of `run_with_cache` with these `names` and `everything`, of `predict_batch` for a batch of
    tasks, with `gradient` of the gradient of a prediction in all weights. Only shapes and
    dtypes count: `jax.ShapeDtypeStruct` in place of arrays will do.

    Raises as `predict` does.

    >>> import icl_krr as ik
    >>> config = ik.tasks.LinearRegression(num_features=2)
    >>> task = jax.eval_shape(lambda: ik.tasks.sample(jax.random.key(0), config))
    >>> model = ik.constructions.conjugate_gradient(ik.Linear(), num_features=2, ridge=0.1, steps=4)
    >>> memory(model, task).peak < memory(model, task, everything=True).peak
    True
    """
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
    """Run, but for a large run that does not fit."""
    large = task.x.size > FEW_ENTRIES or options.get("keep")
    if large and not isinstance(task.x, Tracer) and rough_size(model, task, options) > SMALL_RUN:
        need = measure(run, model, task, options)
        if need.peak > need.free:
            raise MemoryError(
                f"run must fit into memory, got {gigabytes(need.peak)} to hold (results "
                f"{gigabytes(need.results)}, scratch {gigabytes(need.scratch)}) and "
                f"{gigabytes(need.free)} free; keep fewer slots (names=), not everything, or "
                "take fewer tasks at once"
            )
    return run(model, task, **options)


def rough_size(model: Transformer, task: Task, options: dict[str, Any]) -> float:
    """Bytes of a few streams, of what is kept of them, of patterns that are kept."""
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
    # the compiled program is the one that runs afterwards: nothing is compiled twice
    sizes = run.lower(model, task, **options).compile().memory_analysis()  # pyright: ignore[reportFunctionMemberAccess]
    return Memory(
        sizes.argument_size_in_bytes,
        sizes.output_size_in_bytes,
        sizes.temp_size_in_bytes,
        free(jax.devices()[0]),
    )


def free(device: Any) -> int:
    """Of the device that runs by default; a CPU's is the machine's."""
    if device.platform == "cpu":
        return psutil.virtual_memory().available
    stats = device.memory_stats()
    return stats["bytes_limit"] - stats["bytes_in_use"]


def gigabytes(count: int) -> str:
    return f"{count / 1e9:.3g} GB"
