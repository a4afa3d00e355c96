"""The training loop: compiled steps, metrics, checkpoints, and a stop if the loss diverges."""

from __future__ import annotations

import csv
import io
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from .._core.devices import automatic_mesh, check_mesh, explicit_mesh, off_explicit_meshes
from .._core.files import replace, to_csv
from ..tasks import Sampler, Task
from ..transformer import Transformer, predict_batch
from . import _checkpoint
from ._batches import draw, draw_observed
from ._reference import likelihoods, optimal, reference, scale_of
from ._settings import LIKELIHOOD, Training
from ._step import advance, check, mean_loss, start

FILE = "checkpoint.msgpack"
Row = dict[str, Any]


class Diverged(ArithmeticError):
    """The loss is NaN or infinite.

    `train` keeps the last checkpoint that it wrote before the divergence.
    """


def train(
    model: Transformer,
    family: Sampler,
    settings: Training,
    *,
    folder: str | Path | None = None,
    progress: Callable[[int, Row | None], None] = lambda step, row: None,
    mesh: Mesh | None = None,
) -> tuple[Transformer, list[Row]]:
    """Train a model on freshly drawn tasks of a family.

    If `folder` contains a checkpoint, training continues from it, also on other devices. On the
    same machine and the same number of devices, the final weights are then bit for bit equal to
    those of an uninterrupted run.

    Args:
        folder: folder for the rows in `metrics.csv` and the state in `checkpoint.msgpack`. Both
            files are written every `settings.log_every` steps and are replaced atomically, by the
            first process if there are several. Default: no files.
        progress: function that is called as `progress(step, row)` after every step; `row` is None
            if the step has no row.
        mesh: mesh whose axis `tasks` divides the tasks of every step; default: the mesh of
            `jax.set_mesh`, or one device. Every device has all weights.

    Returns:
        The trained model and a list of rows, one before the first step, one every
        `settings.log_every` steps and one at the end:

        - "step": number of updates;
        - "loss": mean loss of the batches since the last row, against the targets of training,
          which are the predictions of exact regression if `settings.target` is "exact"; NaN at step
          0;
        - "validation": mean squared error against y at the queries of validation tasks with all
          supports;
        - "ratio": "validation" divided by "exact";
        - "exact", "nadaraya_watson", "mean", "zero": errors of the reference predictors on the same
          tasks (see `Reference`);
        - "nll", "exact_nll", "constant_nll", for the objective "gaussian": minus the log density of
          an output with noise at the queries of validation tasks, of the model, of exact regression
          with its variance, and of the Gaussian that fits all these outputs best;
        - "steps_per_second": speed since the last row; NaN at step 0.

    Raises:
        Diverged: the loss is NaN or infinite; the message contains the step.
        Mismatch: `folder` contains the checkpoint of another run; the message names every
            difference.

    >>> import icl_krr as ik
    >>> family = ik.tasks.LinearRegression(num_features=2, num_supports=8)
    >>> spec = ik.Architecture(num_features=2, width=8, depth=1, heads=1)
    >>> settings = Training(steps=4, batch=2, log_every=2, validation=4)
    >>> model, rows = train(ik.init(jax.random.key(0), spec), family, settings)
    >>> [row["step"] for row in rows]
    [0, 2, 4]
    """
    check(model, family, settings)
    if mesh is not None:
        check_mesh(mesh)
    if (mesh := mesh or explicit_mesh()) is not None:
        with jax.set_mesh(automatic_mesh(mesh)):
            model, family = off_explicit_meshes((model, family))
            return train(model, family, settings, folder=folder, progress=progress)
    state, rows = start(model, settings), []
    config = {
        **_checkpoint.describe(family, "family"),
        **_checkpoint.describe(model.spec, "model"),
        "model.steps": model.steps,
        **_checkpoint.describe(settings, "training"),
    }
    losses: list[jax.Array] = []
    folder = None if folder is None else Path(folder)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        if saved := _checkpoint.restore(folder / FILE, state, config):
            state = saved
            rows = read_metrics(folder / "metrics.csv", int(state.step))
    tasks, observed, baselines = validation(family, settings)
    best = optimal(family) if settings.target == "exact" else None
    since, before = time.perf_counter(), int(state.step)

    def measured(step: int, loss: float, speed: float) -> Row:
        squares = float(jnp.mean((predict_batch(state.model, tasks) - tasks.y_query) ** 2))
        likelihood = {} if observed is None else {"nll": float(unlikelihood(state.model, observed))}
        return {
            "step": step,
            "loss": loss,
            "validation": squares,
            "ratio": squares / baselines["exact"] if baselines["exact"] else math.inf,
            **likelihood,
            **baselines,
            "steps_per_second": speed,
        }

    def record(row: Row) -> None:
        rows.append(row)
        if folder is not None and jax.process_index() == 0:
            replace(folder / "metrics.csv", to_csv(rows))

    if not before:
        first = measured(0, math.nan, math.nan)
        if not math.isfinite(error := first.get("nll", first["validation"])):
            raise Diverged(
                f"validation of the initial weights must be finite, got {error}: their predictions "
                "overflow; use LayerNorm, softmax attention, fewer blocks or fewer supports"
            )
        record(first)
        progress(0, first)
    for step in range(before + 1, settings.steps + 1):
        state, loss = advance(state, family, settings, best)
        losses.append(loss)
        row = None
        if step % settings.log_every == 0 or step == settings.steps:
            values = np.asarray(jnp.stack(losses))
            speed = (step - before) / (time.perf_counter() - since)
            row = measured(step, float(values.mean()), speed)
            last = row.get("nll", row["validation"])
            refuse_divergence(np.append(values, last), step, settings, folder)
            record(row)
            if folder is not None:
                _checkpoint.save(folder / FILE, state, config)
            losses, since, before = [], time.perf_counter(), step
        progress(step, row)
    return state.model, rows


@jax.jit
def unlikelihood(model: Transformer, tasks: Task) -> jax.Array:
    return mean_loss(model, tasks, "queries", LIKELIHOOD)


def validation(family: Sampler, settings: Training) -> tuple[Task, Task | None, dict[str, float]]:
    """Tasks that are never trained on, and the losses of the reference predictors on them.

    For the objective "gaussian", the second batch has outputs with noise at the queries.
    """
    key = jax.random.key(settings.seed)
    tasks = jax.jit(draw, static_argnums=2)(jax.random.fold_in(key, 2), family, settings.validation)
    best = reference(family, jax.random.fold_in(key, 3))
    losses = best.losses(tasks)
    if settings.objective != LIKELIHOOD:
        return tasks, None, losses
    keys = (jax.random.split(jax.random.fold_in(key, i), settings.validation) for i in (5, 6))
    observed, others = (jax.jit(draw_observed)(each, family) for each in keys)
    return tasks, observed, losses | likelihoods(best, scale_of(best, family, others), observed)


def refuse_divergence(losses: np.ndarray, step: int, settings: Training, folder: Any) -> None:
    bad = np.flatnonzero(~np.isfinite(losses))
    if len(bad):
        # the last entry is the validation loss after the last step
        first = min(step - len(losses) + 2 + int(bad[0]), step)
        last = (first - 1) // settings.log_every * settings.log_every
        note = f"; the checkpoint of step {last} is kept in {folder}" if folder and last else ""
        raise Diverged(
            f"loss must be finite, got {losses[bad[0]]} at step {first} with learning_rate = "
            f"{settings.learning_rate}, clip = {settings.clip}{note}; lower the learning rate"
        )


def read_metrics(path: Path, step: int) -> list[Row]:
    """The rows up to a step. A killed run may have written rows after its last checkpoint."""
    text = path.read_text() if path.exists() else ""
    try:
        rows = [
            {name: int(cell) if name == "step" else float(cell) for name, cell in row.items()}
            for row in csv.DictReader(io.StringIO(text))
        ]
        return [row for row in rows if row["step"] <= step]
    except (ValueError, TypeError, KeyError):
        raise ValueError(
            f"{path} must hold the metrics of this run, but cannot be read; "
            "delete the file to continue"
        ) from None
