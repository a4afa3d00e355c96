"""The door: whether a task fits a model, where the two run, and whether that fits into memory."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.sharding import Mesh

from .. import capacity
from ..devices import Placement
from ..residual import Stream, num_tokens
from ..tasks import Task
from ..tasks.batches import chunk_of, own_part, placement
from ..tasks.task import check_axes
from .divided import evaluate_batch_divided, evaluate_divided
from .evaluate import PREDICTION, Request, evaluate, evaluate_batch
from .footprint import how_to_need_less, least_numbers, most_numbers
from .weights import Transformer, check_model

SMALL_RUN = 2**26
"""Bytes of a run that is never refused. For more, the compiler tells the exact size."""


@dataclass(frozen=True, eq=False)
class Admission:
    """A model, a task that fits it, and how they run; `admit` makes it, `run` starts the forward.

    `place` is None for one device, `chunk` for one task, and `stream` where a run starts from the
    embedding of its task.
    """

    model: Transformer
    task: Task
    request: Request
    place: Placement | None
    chunk: int | None
    stream: Stream | None

    @cached_property
    def own(self) -> Task:
        """The shapes of what each device has of the task."""
        return own_part(self.task, self.place)

    @cached_property
    def tokens(self) -> int:
        """The number of tokens of a task on each device."""
        return num_tokens(self.own, self.model.spec.tokens)

    def run(self) -> Any:
        """Run the program, but raise MemoryError if it is large and does not fit into memory."""
        most = self.runs * most_numbers(self.model, self.request, self.tokens)
        small = most * self.task.x.dtype.itemsize <= SMALL_RUN
        if isinstance(self.task.x, Tracer) or not small:
            self.check_memory()
            if not self.tracers:
                *parts, free = self.sizes()
                if sum(parts) > free:
                    raise MemoryError(capacity.refusal("run", sum(parts), free, self.mend))
        return self.program(self.model, self.task, **self.settings)

    @property
    def program(self) -> Callable[..., Any]:
        if self.place is None:
            return evaluate if self.chunk is None else evaluate_batch
        return evaluate_divided if self.chunk is None else evaluate_batch_divided

    @property
    def settings(self) -> dict[str, Any]:
        """What the program takes beside the model and the task."""
        single = {"request": self.request, "stream": self.stream}
        given = {"place": self.place, **(single if self.chunk is None else {"chunk": self.chunk})}
        return {name: value for name, value in given.items() if value is not None}

    @property
    def tracers(self) -> list[Tracer]:
        leaves = jax.tree.leaves((self.task, self.model))
        return [leaf for leaf in leaves if isinstance(leaf, Tracer)]

    @property
    def runs(self) -> int:
        """How many runs of one task a device does at a time."""
        together = 1 if self.chunk is None else min(self.chunk, len(self.own.x))
        return together * (self.task.num_outputs // self.model.spec.num_outputs)

    def check_memory(self, copies: float = 1) -> None:
        """Raise MemoryError if so many runs at once do not fit, by arithmetic on shapes."""
        like = next(iter(self.tracers), self.task.x)
        numbers = copies * self.least_numbers(capacity.reach(like).differentiated)
        capacity.check("run", numbers * self.sharing, like, self.mend)

    def least_numbers(self, gradient: bool = False) -> float:
        """How many numbers a device holds at least."""
        divided = self.place is not None and bool(self.place.context)
        one = least_numbers(self.model, self.own, self.request, self.tokens, divided, gradient)
        return self.runs * one

    def sizes(self, gradient: bool = False) -> tuple[int, int, int, int]:
        """Bytes of arguments, results and scratch of the compiled run, and the free bytes."""
        program, settings = self.program, self.settings
        if gradient:

            def loss(model: Transformer, task: Task) -> jax.Array:
                return jnp.sum(jax.tree.leaves(program(model, task, **settings))[0])

            lowered = jax.jit(jax.grad(loss)).lower(self.model, self.task)
        else:  # the run afterwards uses the same compiled program: nothing is compiled twice
            lowered = program.lower(self.model, self.task, **settings)  # pyright: ignore[reportFunctionMemberAccess]
        found: Any = lowered.compile().memory_analysis()
        return (
            found.argument_size_in_bytes,
            found.output_size_in_bytes,
            found.temp_size_in_bytes,
            capacity.free(self.devices[0]) // self.sharing,
        )

    @property
    def devices(self) -> list[Any]:
        """The devices of this process on which the run is."""
        if self.place is None or not isinstance(self.place.mesh, Mesh):
            return jax.devices()[:1]
        return [*self.place.mesh.local_devices]

    @property
    def sharing(self) -> int:
        """How many devices share one memory: on a CPU, all of a process."""
        return len(self.devices) if self.devices[0].platform == "cpu" else 1

    @property
    def mend(self) -> str:
        return how_to_need_less(self.model, self.place is not None)


def admit(
    model: Transformer,
    task: Task,
    request: Request = PREDICTION,
    *,
    batch: int = 0,
    mesh: Mesh | None = None,
    chunk: int | None = None,
    stream: Stream | None = None,
) -> Admission:
    """Check that a task fits a model, and find where and how they run (see `Admission`).

    The task has `batch` leading axes. `mesh` divides it; without, arrays that are divided stay as
    they are. `chunk` tasks of a batch run at a time; by default as many as suit the device.
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
    task = copy(task)  # `replace` would check it again, and take longer than the door
    object.__setattr__(task, "y_query", None)  # one program for tasks with and without it
    place = placement(task, mesh) if stream is None else None
    if place is not None and not batch and (request.keep or request.hooks):
        raise ValueError(
            "task must be on one device for points and hooks inside of blocks, got supports that "
            f"are divided over {place.parts(place.context)} devices; use jax.device_put(task, "
            "jax.devices()[0]), or names= without points"
        )
    together = chunk_of(task, chunk) if batch else None
    return Admission(model, task, request, place, together, stream)


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
            f"dtype of task must not be wider than the model's {model.dtype} weights, "
            f"got {task.x.dtype}; "
            f"build the model with dtype={task.x.dtype}"
        )
