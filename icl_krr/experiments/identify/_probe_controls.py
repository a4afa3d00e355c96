"""Tasks for a trained model, its streams on them, and errors of probes beside those of controls."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ... import Architecture, Gaussian, Linear, Transformer, init, probes
from ...probes import Identification, fit_probe
from ...tasks import GaussianProcess, LinearRegression, Sampler, Task, map_tasks, shifted
from ...tasks._batches import task_shapes
from ...training import Reference, reference
from .._shared.draws import draw_tasks
from .._shared.rows import Rows, Show
from .._shared.runs import Run
from ._settings import IdentifyConfig


def family_of(run: Run, config: IdentifyConfig) -> Any:
    return dataclasses.replace(run.family, num_queries=config.num_queries)  # pyright: ignore


def tasks_of(run: Run, config: IdentifyConfig) -> list[Task]:
    """Tasks for linear probes, tasks to score, and tasks to fit."""
    family, key = family_of(run, config), jax.random.key(config.seed)
    tested = family if config.shift is None else shifted(config.shift, family)
    drawn = ((config.probe_tasks, family), (config.tasks, tested), (config.tasks, family))
    return [draw_tasks(jax.random.fold_in(key, i), *one) for i, one in enumerate(drawn)]


class Subject(NamedTuple):
    """A model to examine: its probe, unless it has a readout at every layer, and its tasks."""

    model: Transformer
    probe: probes.Probe | None
    probing: Task
    scored: Task
    fitted: Task
    best: Reference  # exact regression on tasks of the family
    control_key: jax.Array

    @property
    def layers(self) -> Callable[[Task], jax.Array]:
        """The predictions after every layer."""
        return partial(probes.layerwise, self.model, probe=self.probe)


def subject_of(run: Run, config: IdentifyConfig, progress: Show) -> Subject:
    key, (probing, scored, fitted) = jax.random.key(config.seed), tasks_of(run, config)
    progress("finding the exact predictor of the tasks")
    best = reference(family_of(run, config), jax.random.fold_in(key, 4))
    progress("fitting linear probes and their controls")
    model = in_dtype_of_tasks(run.model, fitted)
    probe = None if probes.has_slot(model) else fit_probe(model, probing)
    return Subject(model, probe, probing, scored, fitted, best, jax.random.fold_in(key, 3))


def in_dtype_of_tasks(model: Transformer, tasks: Task) -> Transformer:
    """The model with its weights cast to the dtype of the tasks."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, tasks.x.dtype), model)


def examine_streams(run: Run, config: IdentifyConfig, progress: Show) -> Identification | None:
    """Identify a model through its streams; None where `identify_streams` does not apply."""
    drawn = tasks_of(run, dataclasses.replace(config, shift=None))
    scored, fitted = (one.replace(y_query=None) for one in drawn[1:])
    steps, other = run.model.steps, fitted.y.ndim > 2 or fitted.mask is not None
    if steps < 2 or config.tasks < 4 or (config.steps or steps) < steps or other:
        return None
    model = in_dtype_of_tasks(run.model, fitted)
    options: Any = {"kernels": config.kernels, "steps": config.steps, "seed": config.seed}
    options["candidates"] = config.candidates or None
    return probes.identify_streams(model, fitted, scored, **options, progress=progress)


def untrained(model: Transformer, tasks: Task, key: jax.Array) -> Transformer | None:
    """A model of the same architecture with random weights, or None without an architecture."""
    if not isinstance(model.spec, Architecture):
        return None
    return in_dtype_of_tasks(init(jax.random.fold_in(key, 1), model.spec), tasks)


def read_by_probe(model: Transformer, probing: Task, targets: Any = None) -> Callable:
    """A probe's predictions [L + 1, q]. After the last layer, a random model has one of its own."""
    probe = fit_probe(model, probing, targets)
    return lambda task: probe(probes.streams(model, task))[..., 0]


def controls(model: Transformer, data: Task, scored: Task, family: Sampler, key: jax.Array) -> Rows:
    """Errors of the model's own readout and of three controls after every layer.

    A low error of a probe is evidence about the model only if its controls have larger errors. The
    controls are probes fitted to shuffled outputs, probes of an untrained model, and probes that
    are fitted to tasks of another family.
    """
    order = jax.random.permutation(jax.random.fold_in(key, 0), len(data.y_query))
    others = draw_tasks(jax.random.fold_in(key, 2), len(data.x), other_family(family))
    errors = {
        "lens": mean_squares(partial(probes.layerwise, model), scored),
        "shuffled": mean_squares(read_by_probe(model, data, data.y_query[order]), scored),
        "other family": mean_squares(read_by_probe(model, others), scored),
    }
    if (random := untrained(model, data, key)) is not None:
        errors["untrained"] = mean_squares(read_by_probe(random, data), scored)
    return [dict(zip(errors, values, strict=True)) for values in np.stack([*errors.values()], 1)]


def other_family(family: Sampler) -> Sampler:
    """Another family, linear regression or a Gaussian process, with the same sizes and inputs."""
    one, inputs = task_shapes(family), getattr(family, "inputs", "normal")
    names = ("num_features", "num_supports", "num_queries")
    sizes: Any = {name: getattr(one, name) for name in names}
    sizes |= {"noise": getattr(family, "noise", 0.1), "inputs": inputs}
    if isinstance(family, LinearRegression):
        return GaussianProcess(Gaussian(one.num_features**0.5), **sizes)
    if inputs == "sphere":
        return GaussianProcess(Linear(), **sizes)
    return LinearRegression(**sizes)


def mean_squares(layer_predictions: Any, scored: Task) -> np.ndarray:
    predictions = jax.jit(partial(map_tasks, layer_predictions))(scored)
    return np.asarray(jnp.mean((predictions - scored.y_query[:, None]) ** 2, axis=(0, 2)), float)
