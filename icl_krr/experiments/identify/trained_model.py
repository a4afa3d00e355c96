"""Run `identify` on a trained model, with probes, controls, filters and effective parameters."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ... import checks
from ...catalogue import BATTERIES, find, name_of
from ...files import Lines, to_markdown
from ...kernels import Kernel
from ...probes import (
    Filter,
    Identification,
    effective,
    fit_probe,
    has_slot,
    hat_matrix,
    identify,
    layerwise,
    spectral_filter,
)
from ...probes.naming.distances import SPACES
from ...tasks import battery, map_tasks
from ...training import reference
from ..shared.draws import draw_tasks
from ..shared.rows import Rows
from ..shared.runs import Run
from .probe_controls import controls, in_dtype_of_tasks, state_rows, state_table

Show = Callable[[str], None]


@dataclass(frozen=True)
class IdentifyConfig:
    """Settings of an identification.

    Args:
        tasks: number of tasks that fit the candidates, >= 2; default 64. The same number
            of other tasks scores the candidates.
        probe_tasks: number of tasks that fit the linear probes, >= 2; default 512.
        num_queries: number of queries of a task, >= 1; default 8.
        kernels: kernels of the candidates; default: all.
        steps: largest number of steps of a candidate, >= 1; default: 8 per layer, and 32 where no
            candidate fits.
        per_layer: whether to refine the parameters of the candidates for each layer; default False.
        battery: name of a battery (see `icl_krr.tasks.battery`) whose tasks score probes and
            candidates; default None: the training family.
        seed: seed of the tasks and of the bootstrap; default 0.

    Raises:
        ValueError: a number is out of range.
    """

    tasks: int = 64
    probe_tasks: int = 512
    num_queries: int = 8
    kernels: tuple[str, ...] | None = None
    steps: int | None = None
    per_layer: bool = False
    battery: str | None = None
    seed: int = 0

    def __post_init__(self):
        for name, least in (("tasks", 2), ("probe_tasks", 2), ("num_queries", 1)):
            checks.count(name, getattr(self, name), least)
        if self.battery is not None:
            find("battery", BATTERIES, self.battery)
        if self.steps is not None:
            checks.stored("steps", self.steps)


class Findings(NamedTuple):
    """What `examine` found.

    Attributes:
        found: the identification.
        layers: a row for every layer.
        filter: spectral filters of the layers.
        kernel: kernel of the exact predictor of the tasks.
        ridge: ridge of the exact predictor of the tasks.
        states: a row for every state and layer, with R^2 of its probe and of the controls.
    """

    found: Identification
    layers: Rows
    filter: Filter
    kernel: Kernel
    ridge: float
    states: Sequence[dict[str, Any]] = ()


def examine(run: Run, config: IdentifyConfig, progress: Show = lambda words: None) -> Findings:
    """Probe every layer of a model on tasks of its training family, and identify its solver."""
    family: Any = dataclasses.replace(run.family, num_queries=config.num_queries)  # pyright: ignore
    tested = family if config.battery is None else battery(config.battery, family)
    key = jax.random.key(config.seed)
    probing, scored, fitted = (
        draw_tasks(jax.random.fold_in(key, i), count, sampler)
        for i, (count, sampler) in enumerate(
            ((config.probe_tasks, family), (config.tasks, tested), (config.tasks, family))
        )
    )
    model = in_dtype_of_tasks(run.model, fitted)
    progress("fitting linear probes and their controls")
    if has_slot(model):
        layer_answers, layers = partial(layerwise, model), []
    else:
        probe = fit_probe(model, probing)
        layer_answers = partial(layerwise, model, probe=probe)
        layers = controls(model, probing, scored, family, jax.random.fold_in(key, 3))
    answers = jax.jit(partial(map_tasks, layer_answers))(scored)
    errors = jnp.mean((answers - scored.y_query[:, None]) ** 2, axis=(0, 2))
    progress("finding the exact predictor of the tasks")
    best = reference(family, jax.random.fold_in(key, 4))
    known = best.losses(scored)
    progress("computing hat matrices and filters")
    hats = jax.jit(partial(map_tasks, partial(hat_matrix, layer_answers)))(scored)
    steps = 8 * (hats.shape[1] - 1) if config.steps is None else config.steps
    name = name_of(best.kernel)
    rows = []
    for layer, error in enumerate(errors.tolist()):
        row = {"layer": layer, "error": error, "exact": known["exact"], "zero": known["zero"]}
        row |= layers[layer] if layers else {}
        own = hats[:, layer]
        if layer and float(jnp.max(jnp.abs(own))) > 0:
            row |= effective("regression", name, scored, own)
            if best.kernel.bandwidth is not None:
                smooth = effective("smoother", name, scored, own)
                row |= {f"smoother's {key}": value for key, value in smooth.items()}
        rows.append(row)
    filtered = spectral_filter(best.kernel, scored, hats, seed=config.seed)
    found = identify(
        layer_answers,
        fitted,
        scored,
        kernels=config.kernels,
        steps=steps,
        system=(best.kernel, float(best.ridge)),
        per_layer=config.per_layer,
        seed=config.seed,
        progress=progress,
    )
    progress("probing the states of the nearest solver")
    states = state_rows(model, found, probing, scored, jax.random.fold_in(key, 3), config.seed)
    return Findings(found, rows, filtered, best.kernel, float(best.ridge), states)


def layer_table(findings: Findings) -> Lines:
    """A table with the error of every layer and the parameters of its nearest predictors."""
    header = list(findings.layers[-1])
    lines = [
        [f"{row[key]:.3g}" if key in row else "-" for key in header] for row in findings.layers
    ]
    return header, lines


def distance_table(found: Identification, space: str) -> Lines:
    """A table of relative distances of layers to candidates, in "prediction" or "hat" space."""
    named = {f"{s.fit.candidate}, {s.fit.kernel}": s.distances[space] for s in found.suspects}
    named |= {name: spaces[space] for name, spaces in found.baselines.items()}
    header = [space, *(f"layer {i + 1}" for i in range(len(found.best.fit.alignment))), "mean"]
    lines = []
    for name, near in named.items():
        values = [
            *zip(near.by_layer, near.layer_intervals, strict=True),
            (near.mean, near.interval),
        ]
        cells = [f"{value:.2g} ({low:.2g}, {high:.2g})" for value, (low, high) in values]
        lines.append([name, *cells])
    return header, lines


def distance_rows(found: Identification) -> Rows:
    """One row per candidate, layer and step, with the distances in both spaces."""
    return [
        {"candidate": s.fit.candidate, "kernel": s.fit.kernel, "layer": layer + 1, "step": step}
        | {space: float(s.distances[space].matrix[layer, step]) for space in SPACES}
        for s in found.suspects
        for layer, step in np.ndindex(s.distances[SPACES[0]].matrix.shape)
    ]


def filter_rows(findings: Findings) -> Rows:
    """One row per layer and bin of eigenvalues, with the filter, its interval and exact KRR."""
    seen = findings.filter
    return [
        {
            "layer": layer,
            "sigma": float(sigma),
            **{name: float(getattr(seen, name)[layer, i]) for name in ("q", "low", "high")},
            "exact": float(1 / (sigma + findings.ridge)),
        }
        for layer in range(1, len(seen.q))
        for i, sigma in enumerate(seen.sigma)
    ]


def markdown(findings: Findings) -> str:
    """The table of layers and the tables of distances, in Markdown."""
    tables = [layer_table(findings), *(distance_table(findings.found, space) for space in SPACES)]
    tables += [state_table(findings.states)] if findings.states else []
    return "\n".join(map(to_markdown, tables))
