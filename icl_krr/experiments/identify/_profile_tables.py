"""Tables, records and curves of an error profile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..._core.files import Lines
from ..._core.text_tables import TextTable
from .._shared.rows import Rows
from ._error_profile import Findings, Profile, Reading, Rival
from ._profile_paths import ALIGNMENTS, MEASURES, NULLS

SHOWN = 3
"""Number of solvers in a panel of the figure."""


def reading_table(reading: Reading) -> Lines:
    """A line for every candidate, the nearest first."""
    header = ["candidate", "kernel", "distance, log10", "nearest in resamples", "as near"]
    header += ["step at each layer", "parameters"]
    lines = []
    for one in reading.rivals:
        low, high = one.interval
        steps, share = " ".join(map(str, one.fit.alignment)), f"{one.share:.0%}"
        if one.is_null:
            steps, share = "its own value", "null"
        values = ", ".join(f"{name} {value:.2g}" for name, value in one.fit.values.items())
        far, near = f"{one.far:.2g} ({low:.2g}, {high:.2g})", "yes" if one.as_near else "no"
        lines.append([one.name, one.fit.kernel, far, share, near, steps, values])
    return header, lines


def verdict_table(findings: Findings) -> Lines:
    """A line for every measure and alignment: the verdict, and that on the untrained model."""
    header, lines = ["measure", "alignment", "verdict", "verdict on an untrained model"], []
    others = findings.untrained.readings if findings.untrained else [None] * 4
    for one, other in zip(findings.profile.readings, others, strict=True):
        lines.append([one.measure, one.alignment, one.verdict, other.verdict if other else "-"])
    return header, lines


def layer_rows(findings: Findings) -> Rows:
    """A row for every layer: its error and gap, and those of the untrained model."""
    rows = []
    for layer in range(len(findings.profile.curves["error"])):
        row: dict[str, Any] = {"layer": layer}
        for name in MEASURES:
            row[name] = float(10 ** findings.profile.curves[name][layer])
            if findings.untrained:
                row[f"untrained, {name}"] = float(10 ** findings.untrained.curves[name][layer])
        rows.append(row)
    return rows


def record(profile: Profile) -> dict[str, Any]:
    """A profile as a record for JSON."""
    return {
        "log10 after layers": {name: curve.tolist() for name, curve in profile.curves.items()},
        "readings": [
            {
                "measure": one.measure,
                "alignment": one.alignment,
                "nearest": one.nearest.name,
                "as near": one.as_near,
                "verdict": one.verdict,
                "candidates": [*map(rival_record, one.rivals)],
            }
            for one in profile.readings
        ],
    }


def rival_record(one: Rival) -> dict[str, Any]:
    return {
        "candidate": one.name,
        "kernel": one.fit.kernel,
        "distance": one.far,
        "interval": one.interval,
        "nearest in resamples": one.share,
        "as near": one.as_near,
        "steps": one.fit.alignment,
        "values": one.fit.values,
    }


def panels(findings: Findings, measure: str) -> dict[str, dict[str, Any]]:
    """Curves of the model, its nearest solvers and its nearest null, a panel per alignment."""
    own, found = findings.profile.curves[measure], {}
    layers = np.arange(len(own))
    for reading in findings.profile.readings:
        if reading.measure == measure:
            solvers = [one for one in reading.rivals if not one.is_null][:SHOWN]
            null = next(one for one in reading.rivals if one.is_null)
            curves: dict[str, Any] = {"model": (layers, 10**own)}
            curves |= {one.name: (layers[1:], 10**one.curve) for one in (*solvers, null)}
            if findings.untrained:
                curves["untrained model"] = (layers, 10 ** findings.untrained.curves[measure])
            found[f"layer ({reading.alignment})"] = curves
    return found


def printed(name: str, every: Sequence[Findings]) -> list[TextTable | str]:
    """What a person reads of one model: verdicts, the candidates of one reading, and the names."""
    first, verdicts = every[0], verdict_table(every[0])
    reading = first.profile.readings[0]
    names = {f"{one.measure}, {one.alignment}": [] for one in first.profile.readings}
    for found in every:
        for one in found.profile.readings:
            names[f"{one.measure}, {one.alignment}"].append(one.nearest.name)
    header, lines = reading_table(reading)
    return [
        TextTable(f"{name}: the solver with the nearest errors", verdicts[0], [verdicts[1]]),
        TextTable(
            f"Candidates: {MEASURES[reading.measure]}, {ALIGNMENTS[reading.alignment]}",
            header,
            [lines],
        ),
        "distance: root mean square over layers of the difference of both logarithms, with its "
        "95 % interval over tasks. as near: not farther than the nearest solver beyond chance. "
        "A null takes no steps: " + "; ".join(f"{k} is {one.words}" for k, one in NULLS.items()),
        f"nearest solver with each of {len(every)} seeds: "
        + "; ".join(f"{words}: {', '.join(found)}" for words, found in names.items()),
        "A name is the nearest one, also for a model that runs no solver, and a linear probe can "
        "hide the solver that runs (icl-krr verify C48). Compare with "
        f"icl-krr identify {name}.",
    ]
