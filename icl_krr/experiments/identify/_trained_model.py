"""Run `identify` on a trained model, with probes, controls, filters and effective parameters."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from ... import Kernel
from ..._core import checks
from ..._core.files import Lines, to_markdown
from ...kernels import name_of
from ...probes import Filter, Identification, effective, spectral_filter
from ...probes._naming.comparison import Options, compare
from ...probes._naming.identification import distance_cell
from ...probes._naming.layer_predictions import flatten, run_model
from .._shared.rows import Rows, Show
from .._shared.runs import Run
from ._probe_controls import controls, family_of, subject_of
from ._settings import IdentifyConfig


class Findings(NamedTuple):
    """What `examine` found."""

    identification: Identification
    layers: Rows  # a row for every layer
    filter: Filter  # spectral filters of the layers
    kernel: Kernel  # that of the exact predictor of the tasks
    ridge: float  # likewise


def examine(run: Run, config: IdentifyConfig, progress: Show = lambda words: None) -> Findings:
    """Probe every layer of a model on tasks of its training family, and identify its solver."""
    of = subject_of(run, config, progress)
    losses, control_rows = of.best.losses(of.scored), []
    if of.probe is not None:
        family = family_of(run, config)
        control_rows = controls(of.model, of.probing, of.scored, family, of.control_key)
    progress("computing hat matrices and filters")
    arrays = run_model(of.layers, of.fitted, of.scored)
    errors = jnp.mean((arrays.predictions - of.scored.y_query[:, None]) ** 2, axis=(0, 2))
    rows: Rows = [
        {"layer": layer, "error": error, "exact": losses["exact"], "zero": losses["zero"]}
        | (control_rows[layer] if control_rows else {})
        for layer, error in enumerate(errors.tolist())
    ]
    name, hats = name_of(of.best.kernel), arrays.hats
    for layer, row in enumerate(rows):
        if layer and np.any(hats[:, layer]):
            row |= effective("regression", name, of.scored, hats[:, layer])
            if of.best.kernel.bandwidth is not None:
                smooth = effective("smoother", name, of.scored, hats[:, layer])
                row |= {f"smoother's {key}": value for key, value in smooth.items()}
    ridge = float(of.best.ridge)
    options = Options(
        candidates=config.candidates or None,
        kernels=config.kernels,
        steps=8 * (hats.shape[1] - 1) if config.steps is None else config.steps,
        system=(of.best.kernel, ridge),
        seed=config.seed,
        progress=progress,
    )
    result = compare(flatten(of.fitted, of.scored, arrays), options)
    filtered = spectral_filter(of.best.kernel, of.scored, hats, seed=config.seed)
    return Findings(result, rows, filtered, of.best.kernel, ridge)


def layer_table(findings: Findings) -> Lines:
    """A table with the error of every layer and the parameters of its nearest predictors."""
    keys = list(findings.layers[-1])
    lines = [[f"{row[key]:.3g}" if key in row else "-" for key in keys] for row in findings.layers]
    return keys, lines


def distance_table(result: Identification, space: str) -> Lines:
    """A table of relative distances of layers to candidates in a space, such as "hat"."""
    named = {
        f"{s.fit.candidate}, {s.fit.kernel}": (s.distances[space], s.fit.alignment)
        for s in result.candidates
    }
    best_alignment = result.best.fit.alignment
    named |= {name: (spaces[space], best_alignment) for name, spaces in result.baselines.items()}
    layers = len(best_alignment)
    header = [space, *(f"layer {i + 1}" for i in range(layers)), "mean"]
    lines = []
    for name, (distance, steps) in named.items():
        values = (*distance.by_layer, distance.mean), (*distance.layer_intervals, distance.interval)
        each = zip(*values, strict=True)
        cells = [f"{value:.2g} ({low:.2g}, {high:.2g})" for value, (low, high) in each]
        none = layers + 1 - len(cells)  # layers before the first step, or after the last
        late = [""] * min(none, steps.count(0))
        lines.append([name, *late, *cells[:-1], *[""] * (none - len(late)), cells[-1]])
    return header, lines


def distance_rows(result: Identification) -> Rows:
    """One row per candidate, layer and step, with the distances in all spaces that have them."""
    return [
        {"candidate": s.fit.candidate, "kernel": s.fit.kernel}
        | {"layer": layer + (s.stream_result is None), "step": step + (s.stream_result is not None)}
        | {k: float(d.matrix[layer, step]) for k, d in s.distances.items() if d.matrix.size}
        for s in result.candidates
        for layer, step in np.ndindex(next(iter(s.distances.values())).matrix.shape)
    ]


def filter_rows(findings: Findings) -> Rows:
    """One row per layer and bin of eigenvalues, with the filter, its interval and exact KRR."""
    spectral = findings.filter
    return [
        {
            "layer": layer,
            "sigma": float(sigma),
            **{name: float(getattr(spectral, name)[layer, i]) for name in ("q", "low", "high")},
            "exact": float(1 / (sigma + findings.ridge)),
        }
        for layer in range(1, len(spectral.q))
        for i, sigma in enumerate(spectral.sigma)
    ]


def markdown(findings: Findings) -> str:
    """The table of layers and the tables of distances, in Markdown."""
    result = findings.identification
    parts = [layer_table(findings), *(distance_table(result, one) for one in result.best.distances)]
    return "\n".join(map(to_markdown, parts))


Positions = Mapping[int, Findings]
"""What `examine` found, by the number of supports before the query."""


def examine_positions(
    run: Run, config: IdentifyConfig, positions: tuple[int, ...] = (), show: Show = lambda _: None
) -> Positions:
    """Examine a model after each number of supports in `positions`, and after all n of its tasks.

    A causal model of interleaved tokens predicts at the x token of a support as it would for a
    query after the earlier supports. So its predictions at position i are those for tasks of i
    supports. Probes and candidates are fitted anew at every position.
    """
    family: Any = run.family
    longest = family.num_supports
    for position in positions:
        checks.count("positions", position)
        if position > longest:
            raise ValueError(
                f"positions must be <= {longest}, the number of supports of the tasks, "
                f"got {position}"
            )
    findings = {}
    for count in sorted({*positions, longest}):
        shorter = run._replace(family=dataclasses.replace(family, num_supports=count))
        words = f"{count} of {longest} supports: " if positions else ""
        findings[count] = examine(shorter, config, lambda what, words=words: show(words + what))
    return findings


def verdict_table(positions: Positions) -> Lines:
    """A line for every position: errors, the verdict, the nearest candidate and the baselines."""
    header = ["supports", "error", "exact", "zero", "status", "remain", "nearest"]
    spaces = [*next(iter(positions.values())).identification.best.distances]
    header += [*spaces, "step at each layer", *(f"baseline, {space}" for space in spaces)]
    lines = []
    for count, findings in positions.items():
        last, best = findings.layers[-1], findings.identification.best
        cells = [f"{last[name]:.3g}" for name in ("error", "exact", "zero")]
        cells += [findings.identification.status, ", ".join(findings.identification.remain) or "-"]
        cells += [f"{best.fit.candidate}, {best.fit.kernel}"]
        cells += [distance_cell(best.distances[space]) for space in spaces]
        cells += [" ".join(map(str, best.fit.alignment))]
        for space in spaces:
            baselines = findings.identification.baselines
            name = min(baselines, key=lambda name: baselines[name][space].mean)
            cells.append(f"{name}, {distance_cell(baselines[name][space])}")
        lines.append([str(count), *cells])
    return header, lines
