"""Estimates of the memory that a run needs and of the work of a step, before the run starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.sharding import Mesh

from .. import capacity, checks
from ..devices import Placement
from ..readable import readable
from ..residual import num_tokens
from ..tasks import Task
from ..tasks.placement import own_part, placement
from .communication import step_sent
from .cost import step_cost
from .divided import check_points, evaluate_batch_divided, evaluate_divided
from .evaluate import check_compatible, chunk_for, evaluate, evaluate_batch
from .heads import is_mean
from .liveness import lasting_slots
from .tiled_attention import uses_tiles
from .weights import Block, Transformer

SMALL_RUN = 2**26
"""Bytes of a run that is never refused. For more, the compiler tells the exact size."""


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
        step_flops: additions and multiplications of one step, in the products of reads, heads and
            MLP units. Attention patterns that are the same in all steps are not counted.
        step_bytes: bytes that one step must move, if every block reads each slot that it uses and
            writes each slot that it changes, once, and reads its weights and the attention patterns
            that are the same in all steps.
        step_sent: bytes that a device hands to the others in one step: states of linear heads and
            sums of means in all-reduces (each counts the size of its array once; a ring sends
            2 (D - 1) / D times as much), and keys and values of softmax heads, which are passed on
            by collective-permutes in D rounds. The formula is that of
            `icl_krr.transformer.communication.step_sent`. Default 0: one device.
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
        model: the model to run.
        task: one task (measures `run_with_cache`) or a batch of tasks (measures `predict_batch`).
        names: slots that `run_with_cache` stores; default (): none. Not used for a batch.
        everything: whether `run_with_cache` stores all points of all blocks; default False. Not
            used for a batch.
        gradient: whether to measure the gradient of the prediction with respect to all weights,
            instead of the prediction; default False.
        mesh: mesh whose axis `context` divides the supports, and whose axis `tasks` divides the
            tasks of a batch; default None: as the arrays are divided.

    Returns:
        A `Memory`.

    Raises:
        ValueError: the task does not fit the model, or `everything` is given for divided supports.
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
    for name in set(names) - {"prediction"}:
        model.layout[name]
    checks.flag("everything", everything)
    checks.flag("gradient", gradient)
    checks.instance("task", task, Task, "an icl_krr.Task")
    batch = task.x.ndim - 2
    check_compatible(model, task, batch)
    place = placement(task, mesh)
    run: Any = evaluate_batch if batch else evaluate
    options: dict[str, Any] = {"names": names, "keep": everything}
    if batch:
        options = {"chunk": chunk_for(model, task)}
    if place is not None:
        run = evaluate_batch_divided if batch else evaluate_divided
        check_points(place, options.pop("keep", False))
        options["place"] = place
    work, sent = step_cost(model, task, place), step_sent(model, task, place, gradient, names)
    passes = 3 if gradient else 1
    step = passes * work.flops, passes * work.bytes, *sent
    if not gradient:
        return Memory(*sizes(run, model, task, options), *step)
    loss = lambda model, task: jnp.sum(jax.tree.leaves(run(model, task, **options))[0])  # noqa: E731
    return Memory(*sizes(jax.jit(jax.grad(loss)), model, task, {}, place), *step)


def run_if_it_fits(run: Callable, model: Transformer, task: Task, **options: Any) -> Any:
    """Run, but raise MemoryError for a large run that does not fit into memory."""
    if is_small(model, task, **options) and not isinstance(task.x, Tracer):
        return run(model, task, **options)
    check_run(model, task, **options)
    if not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((task, model))):
        *parts, free = sizes(run, model, task, options)
        if sum(parts) > free:
            raise MemoryError(capacity.refusal("run", sum(parts), free, mend(model, options)))
    return run(model, task, **options)


def is_small(model: Transformer, task: Task, **options: Any) -> bool:
    """Whether a run is small by an upper bound that takes no time: no block is looked at."""
    task = own_part(task, options.get("place"))
    tokens, width = num_tokens(task, model.spec.tokens), model.layout.width
    if kept := options.get("keep", ()):
        kept = model.blocks_per_step * (10 if kept is True else len(kept)) * (width + tokens)
    stored = model.steps * (width * (1 + len(options.get("names", ()))) + (kept or 0))
    numbers = tokens * (width * (2 + 3 * tokens) + stored)
    runs = task.num_outputs * options.get("chunk", 1)
    return numbers * runs * task.x.dtype.itemsize <= SMALL_RUN


def check_run(model: Transformer, task: Task, copies: float = 1, **options: Any) -> None:
    """Raise MemoryError if so many runs at once do not fit, by arithmetic on shapes."""
    like = next((leaf for leaf in jax.tree.leaves((task, model)) if isinstance(leaf, Tracer)), None)
    if like is None:
        like = task.x
    gradient = capacity.reach(like).differentiated
    numbers = copies * least_numbers(model, task, options, gradient)
    numbers *= sharing(local_devices(options.get("place")))
    capacity.check("run", numbers, like, mend(model, options))


def mend(model: Transformer, options: dict[str, Any]) -> str:
    if options.get("place"):
        return "divide the task over more devices (mesh=), or use fewer tokens, tasks or outputs"
    over = ", or divide the supports over devices (mesh=)" if jax.device_count() > 1 else ""
    if model.spec.attention == "softmax" and model.spec.streaming is False:
        return f"use streaming=None, which computes long contexts in tiles, or fewer tokens{over}"
    return (
        "keep fewer slots (names=), avoid everything=True, or use fewer tokens, tasks or outputs "
        f"at once{over}"
    )


def least_numbers(
    model: Transformer, task: Task, options: dict[str, Any], gradient: bool = False
) -> float:
    """How many numbers a device holds at least: the stream, patterns and what it stores."""
    divided = bool((place := options.get("place")) and place.context)
    task = own_part(task, place)
    tokens, width, layout = num_tokens(task, model.spec.tokens), model.layout.width, model.layout
    kept = options.get("keep", ())
    hooked = tuple(name for name, _ in options.get("hooks", ()))
    pattern = 0 if divided else tokens**2 * largest_pattern(model, tokens, hooked)
    rows: dict[tuple[str, ...], int] = {
        ("aggregator",): 1,
        ("support",): task.num_supports,
        ("query",): task.num_queries,
    }
    stored = sum(
        rows.get(layout[name].at, tokens) * layout[name].width
        for name in options.get("names", ())
        if name != "prediction"
    )
    # without a mask the weights replace the logits; the gradient stores the weights of one step
    numbers = tokens * width + (2 if gradient else 1) * pattern + (model.steps + 1) * stored
    for blocks, times in ((model.weights.prologue, 1), (model.weights.steps, model.steps)):
        numbers += times * sum(numbers_of_points(block, kept, tokens, width) for block in blocks)
    if gradient:  # it stores what each step passes to the next
        lasting = lasting_slots(model.weights.steps) & set(layout.names)
        numbers += model.steps * tokens * sum(layout[slot].width for slot in lasting)
    together = options.get("chunk", 1) if task.x.ndim > 2 else 1
    separate = task.num_outputs if model.spec.num_outputs != task.num_outputs else 1
    return numbers * min(together, len(task.x)) * separate


def largest_pattern(model: Transformer, tokens: int, hooked: tuple[str, ...]) -> int:
    """The largest number of heads whose patterns [T, T] exist at the same time."""
    spec = model.spec
    formed = spec.attention == "softmax" and not uses_tiles(tokens, spec.streaming)
    if not formed and not any(name.endswith("pattern") for name in hooked):
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


def sizes(
    run: Callable,
    model: Transformer,
    task: Task,
    options: dict[str, Any],
    place: Placement | None = None,
) -> tuple[int, int, int, int]:
    """Bytes of arguments, results and scratch of a compiled run, and the free bytes."""
    # the run afterwards uses the same compiled program: nothing is compiled twice
    told = run.lower(model, task, **options).compile().memory_analysis()  # pyright: ignore[reportFunctionMemberAccess]
    local = local_devices(options.get("place", place))
    return (
        told.argument_size_in_bytes,
        told.output_size_in_bytes,
        told.temp_size_in_bytes,
        capacity.free(local[0]) // sharing(local),
    )


def local_devices(place: Placement | None) -> list[Any]:
    """The devices of this process on which a run is."""
    if place is None or not isinstance(place.mesh, Mesh):
        return jax.devices()[:1]
    return [*place.mesh.local_devices]


def sharing(devices: list[Any]) -> int:
    """How many devices share one memory: on a CPU, all of a process."""
    return len(devices) if devices[0].platform == "cpu" else 1
