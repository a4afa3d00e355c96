"""The door: whether a task fits a model, where the two run, and whether that fits into memory."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jax.sharding import Mesh

from .._core import memory_limit
from .._core.devices import Placement
from ..residual import Stream, num_tokens
from ..residual._tokens import role_slice
from ..tasks import Task
from ..tasks._batches import chunk_size, device_shard, placement
from ..tasks._task import check_axes
from ._divided import evaluate_batch_divided, evaluate_divided
from ._evaluate import PREDICTION, Request, evaluate, evaluate_batch
from ._tiled_attention import uses_tiles
from ._weights import Transformer, check_model


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

    def run(self) -> Any:
        self.check_memory()
        return self.program(self.model, self.task, **self.settings)

    @property
    def program(self) -> Any:
        if self.place is None:
            return evaluate if self.chunk is None else evaluate_batch
        return evaluate_divided if self.chunk is None else evaluate_batch_divided

    @property
    def settings(self) -> dict[str, Any]:
        """What the program takes beside the model and the task."""
        single = {"request": self.request, "stream": self.stream}
        given = {"place": self.place, **(single if self.chunk is None else {"chunk": self.chunk})}
        return {name: value for name, value in given.items() if value is not None}

    def check_memory(self, copies: int = 1) -> None:
        """Raise MemoryError if so many runs at once cannot fit: what each device holds at least.

        That is the stream, one pattern [T, T] if any is formed, and what is stored of every step.
        """
        model, own = self.model, device_shard(self.task, self.place)
        spec, layout = model.spec, model.layout
        tokens = num_tokens(own, spec.tokens)
        slots = [layout[name] for name in self.request.names if name != "prediction"]
        stored = sum(
            slot.width * len(range(tokens)[role_slice(slot.at, own, spec.tokens)]) for slot in slots
        )
        points = ALL_POINTS if self.request.keep is True else self.request.keep or ()
        streams = model.blocks_per_step * sum(point.startswith("resid") for point in points)
        kept = streams * tokens * layout.width
        kept += tokens**2 * sum(point.endswith("pattern") for point in points)
        whole = spec.attention == "softmax" and not uses_tiles(tokens, spec.streaming)
        hooked = any(name.endswith("pattern") for name, _ in self.request.hooks)
        divided = self.place is not None and self.place.context
        formed = tokens**2 if (whole or hooked) and not divided else 0
        together = 1 if self.chunk is None else min(self.chunk, len(own.x))
        together *= copies * (own.num_outputs // spec.num_outputs)
        each = tokens * layout.width + formed + (model.steps + 1) * stored + model.steps * kept
        memory_limit.check("run", together * each, self.task.x, HELP)


ALL_POINTS = ("resid_pre", "resid_mid", "resid_post", "heads.0.pattern")
"""What `everything=True` stores in every block, at least."""

HELP = (
    "use fewer tokens, tasks or outputs at once, keep fewer slots (names=) and points, leave "
    "streaming=None, or divide the supports over devices (mesh=)"
)


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
    together = chunk_size(task, chunk) if batch else None
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
