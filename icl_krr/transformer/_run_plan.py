"""Before a run: whether a task fits a model, where the two run, and how much memory that takes."""

from __future__ import annotations

import logging
from copy import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.sharding import Mesh

from .._core import checks, memory_limit
from .._core.devices import Placement
from .._core.readable import readable
from ..residual import Stream, num_tokens
from ..residual._tokens import role_slice
from ..tasks import Task
from ..tasks._batches import chunk_size, device_shard, placement
from ..tasks._task import check_axes, check_is_task
from ._blockwise_softmax import is_blockwise
from ._cost import step_cost
from ._evaluate import evaluate_batch, evaluate_batch_sharded, evaluate_sharded, program
from ._hook_points import PREDICTION, Request
from ._weights import Transformer, check_model


@dataclass(frozen=True, eq=False)
class RunPlan:
    """How a model runs on a task that fits it: `program(model, task, **options)`.

    `place` is None for one device, and `chunk` for one task. `prepare_run` makes it.
    """

    program: Any
    model: Transformer
    task: Task
    options: dict[str, Any]
    request: Request = PREDICTION
    place: Placement | None = None
    chunk: int | None = None

    def check_memory(self, copies: int = 1) -> None:
        """Raise MemoryError if so many runs at once cannot fit: what each device holds at least.

        That is the stream, one pattern [T, T] if any is formed, and what is stored of every step.
        """
        model, task = self.model, device_shard(self.task, self.place)
        spec, layout = model.spec, model.layout
        tokens = num_tokens(task, spec.tokens)
        slots = [layout[name] for name in self.request.names if name != "prediction"]
        rows = [len(range(tokens)[role_slice(slot.at, task, spec.tokens)]) for slot in slots]
        stored = sum(slot.width * n for slot, n in zip(slots, rows, strict=True))
        points = ALL_POINTS if self.request.keep is True else self.request.keep or ()
        streams = model.blocks_per_step * sum(point.startswith("resid") for point in points)
        in_blocks = streams * tokens * layout.width
        in_blocks += tokens**2 * sum(point.endswith("pattern") for point in points)
        whole = spec.attention == "softmax" and not is_blockwise(tokens, spec.streaming)
        hooked = any(name.endswith("pattern") for name, _ in self.request.hooks)
        sharded = self.place is not None and self.place.context
        formed = tokens**2 if (whole or hooked) and not sharded else 0
        runs = 1 if self.chunk is None else min(self.chunk, len(task.x))
        runs *= copies * (task.num_outputs // spec.num_outputs)
        each = tokens * layout.width + formed
        each += (model.steps + 1) * stored + model.steps * in_blocks
        memory_limit.check("run", runs * each, self.task.x, HELP)

    def announce_time(self) -> None:
        """Log how long the run takes on a CPU, if that is more than a minute."""
        model, task = self.model, self.task
        tokens = num_tokens(task, model.spec.tokens)
        channels = tokens if model.spec.attention == "softmax" else model.layout.width
        runs = task.x.size // (task.num_supports * task.num_features) * task.num_outputs
        small = runs * tokens * channels * model.depth < 1e8  # a fraction of a second
        if small or isinstance(task.x, Tracer) or jax.default_backend() != "cpu":
            return
        seconds = model.steps * step_cost(model, task, self.place).seconds
        if seconds > LONG:
            unit, name = (60, "minutes") if seconds < 7200 else (3600, "hours")
            logging.getLogger("icl_krr").warning(
                "this run takes about %.0f %s on two cores of a CPU: %d steps with %d tokens (an "
                "estimate, to a factor of five; fewer supports or linear attention take less)",
                *(seconds / unit, name, model.steps, tokens),
            )


LONG = 60
"""Seconds of a run that is announced."""

ALL_POINTS = ("resid_pre", "resid_mid", "resid_post", "heads.0.pattern")
"""What `everything=True` stores in every block, at least."""

HELP = (
    "use fewer tokens, tasks or outputs at once, keep fewer slots (names=) and points, leave "
    "streaming=None, or divide the supports over devices (mesh=)"
)


def prepare_run(
    model: Transformer,
    task: Task,
    request: Request = PREDICTION,
    *,
    batch: int = 0,
    mesh: Mesh | None = None,
    chunk: int | None = None,
    stream: Stream | None = None,
    copies: int = 1,
) -> RunPlan:
    """Check that a task fits a model and the memory, and choose the program and the devices.

    The task has `batch` leading axes. `mesh` divides it; without, arrays that are divided stay as
    they are. `chunk` tasks of a batch run at a time; by default as many as suit the device. The
    run starts from `stream`, by default from the embedding of its task. The memory is checked for
    so many `copies` of the run at once, with 0 not at all.
    """
    check_compatible(model, task, batch)
    for name in request.names:
        if name != "prediction":
            model.layout[name]
    if request.along and not model.spec.causal:
        raise ValueError(
            "model must be causal to predict along the supports, got causal=False; use a causal "
            "construction, such as delta_rule, or build the model with causal=True"
        )
    task = copy(task)  # `replace` would check it again, and take longer than the other checks
    object.__setattr__(task, "y_query", None)  # one program for tasks with and without it
    place = placement(task, mesh) if stream is None else None
    if place is not None and not batch and (request.keep or request.hooks):
        raise ValueError(
            "task must be on one device for points and hooks inside of blocks, got supports that "
            f"are divided over {place.parts(place.context)} devices; use jax.device_put(task, "
            "jax.devices()[0]), or names= without points"
        )
    options: dict[str, Any] = {} if place is None else {"place": place}
    if batch:
        run = evaluate_batch if place is None else evaluate_batch_sharded
        options["chunk"] = chunk = chunk_size(task, chunk)
    else:
        run = program(model, task, request) if place is None else evaluate_sharded
        options["request"] = request
        if stream is not None:
            options["stream"] = stream
    plan = RunPlan(run, model, task, options, request, place, chunk)
    if copies:
        plan.check_memory(copies)
        plan.announce_time()
    return plan


def check_compatible(model: Transformer, task: Task, batch: int = 0) -> None:
    """Raise an error unless a task, or a batch of tasks, fits the model."""
    check_model(model)
    check_axes(task, batch)
    fits = {
        "num_features": task.num_features == model.spec.num_features,
        "num_outputs": model.spec.num_outputs in (1, task.num_outputs),
    }
    for name, fit in fits.items():
        if not fit:
            needed, got = getattr(model.spec, name), getattr(task, name)
            raise ValueError(
                f"task must have {name} = {needed} to fit the model, got {got}; "
                f"build the model with {name}={got}"
            )
    most = model.spec.max_supports
    if most is not None and task.num_supports > most:
        raise ValueError(
            f"task must have at most {most} supports to fit the model, got {task.num_supports}; "
            "build the model for more supports (`steps` or `max_supports`)"
        )
    for table in model.weights.positions.values():
        # all queries share one position
        needed = num_tokens(task, model.spec.tokens) - task.num_queries + 1
        if needed > table.shape[0]:
            raise ValueError(
                f"task must have at most {table.shape[0]} positions to fit the model, got {needed} "
                "(aggregator, support tokens and one for all queries); draw the model with "
                f"max_tokens={needed}"
            )
    if task.x.dtype == jnp.float16:
        raise TypeError(
            "task must not be float16, whose largest value is 65504; use bfloat16 or float32"
        )
    if not jnp.can_cast(task.x.dtype, model.dtype):
        raise TypeError(
            f"dtype of task must not be wider than the model's {model.dtype} weights, got "
            f"{task.x.dtype}; build the model with dtype={task.x.dtype}"
        )


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
    check_is_task(task)
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
    parts = (getattr(sizes, f"{name}_size_in_bytes") for name in ("argument", "output", "temp"))
    counts = (int(work.get(name, 0)) for name in ("flops", "bytes accessed"))
    numbers = [*parts, memory_limit.free_bytes(), *counts]
    return Memory(*numbers)
