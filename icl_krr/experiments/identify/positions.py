"""Identify a trained model at several positions of the context, each after so many supports."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ... import checks
from ...files import Lines
from ...probes.naming.distances import SPACES
from ...probes.naming.identification import distance_cell
from ..shared.runs import Run
from .trained_model import Findings, IdentifyConfig, Show, examine

Positions = Mapping[int, Findings]
"""What `examine` found, by the number of supports before the query."""


def examine_positions(
    run: Run,
    config: IdentifyConfig,
    positions: tuple[int, ...] = (),
    progress: Show = lambda words: None,
) -> Positions:
    """Examine a model after each number of supports in `positions`, and after all n of its tasks.

    A causal model of interleaved tokens answers at the x token of a support as it answers a query
    after the supports before it. So its answers at position i are those to tasks of i supports.
    Probes and candidates are fitted anew at every position.

    Args:
        run: model, task family and recipe.
        config: settings of every identification.
        positions: numbers of supports, from 1 to n; default: only n.
        progress: function that is called with words about the current stage. The default does
            nothing.

    Returns:
        {number of supports: `Findings`}, in increasing order; the last has all n supports.

    Raises:
        ValueError: a position is not from 1 to n.
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
    found = {}
    for count in sorted({*positions, longest}):
        there = run._replace(family=dataclasses.replace(family, num_supports=count))
        words = f"{count} of {longest} supports: " if positions else ""
        found[count] = examine(there, config, lambda what, words=words: progress(words + what))
    return found


def verdict_table(found: Positions) -> Lines:
    """A line for every position: errors, the verdict, the nearest candidate and the baselines."""
    header = ["supports", "error", "exact", "zero", "status", "remain", "nearest"]
    header += [*SPACES, "step at each layer", *(f"baseline, {space}" for space in SPACES)]
    lines = []
    for count, findings in found.items():
        last, best = findings.layers[-1], findings.found.best
        cells = [f"{last[name]:.3g}" for name in ("error", "exact", "zero")]
        cells += [findings.found.status, ", ".join(findings.found.remain) or "-"]
        cells += [f"{best.fit.candidate}, {best.fit.kernel}"]
        cells += [distance_cell(best.distances[space]) for space in SPACES]
        cells += [" ".join(map(str, best.fit.alignment))]
        for space in SPACES:
            known = findings.found.baselines
            name = min(known, key=lambda name: known[name][space].mean)
            cells.append(f"{name}, {distance_cell(known[name][space])}")
        lines.append([str(count), *cells])
    return header, lines
