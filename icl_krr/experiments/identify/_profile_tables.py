"""Tables, records and curves of an error profile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..._core.files import Lines
from ..._core.text_tables import TextTable
from .._shared.rows import Rows
from ._error_profile import ErrorReading, Profile, ProfileCandidate, ProfileFindings
from ._profile_paths import ALIGNMENTS, MEASURES, NULLS

SHOWN = 3
"""Number of solvers in a panel of the figure."""


def reading_table(reading: ErrorReading) -> Lines:
    """A line for every candidate, the nearest first."""
    header = ["candidate", "kernel", "distance, log10", "nearest in resamples", "tied"]
    header += ["step at each layer", "parameters"]
    lines = []
    for one in reading.candidates:
        low, high = one.interval
        steps, share = " ".join(map(str, one.fit.alignment)), f"{one.share:.0%}"
        if one.is_null:
            steps, share = "its own value", "null"
        values = ", ".join(f"{name} {value:.2g}" for name, value in one.fit.values.items())
        distance = f"{one.distance:.2g} ({low:.2g}, {high:.2g})"
        is_tied = "yes" if one.tied else "no"
        lines.append([one.name, one.fit.kernel, distance, share, is_tied, steps, values])
    return header, lines


def verdict_table(findings: ProfileFindings) -> Lines:
    """A line for every measure and alignment: the verdict, and that on the untrained model."""
    header, lines = ["measure", "alignment", "verdict", "verdict on an untrained model"], []
    others = findings.untrained.readings if findings.untrained else [None] * 4
    for one, other in zip(findings.profile.readings, others, strict=True):
        lines.append([one.measure, one.alignment, one.verdict, other.verdict if other else "-"])
    return header, lines


def layer_rows(findings: ProfileFindings) -> Rows:
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
                "tied": one.tied,
                "verdict": one.verdict,
                "candidates": [*map(_rival_record, one.candidates)],
            }
            for one in profile.readings
        ],
    }


def _rival_record(one: ProfileCandidate) -> dict[str, Any]:
    return {
        "candidate": one.name,
        "kernel": one.fit.kernel,
        "distance": one.distance,
        "interval": one.interval,
        "nearest in resamples": one.share,
        "tied": one.tied,
        "steps": one.fit.alignment,
        "values": one.fit.values,
    }


def panels(findings: ProfileFindings, measure: str) -> dict[str, dict[str, Any]]:
    """Curves of the model, its nearest solvers and its nearest null, a panel per alignment."""
    model_curve, curves_by_panel = findings.profile.curves[measure], {}
    layers = np.arange(len(model_curve))
    for reading in findings.profile.readings:
        if reading.measure == measure:
            solvers = [one for one in reading.candidates if not one.is_null][:SHOWN]
            null = next(one for one in reading.candidates if one.is_null)
            curves: dict[str, Any] = {"model": (layers, 10**model_curve)}
            curves |= {one.name: (layers[1:], 10**one.curve) for one in (*solvers, null)}
            if findings.untrained:
                curves["untrained model"] = (layers, 10 ** findings.untrained.curves[measure])
            curves_by_panel[f"layer ({reading.alignment})"] = curves
    return curves_by_panel


def printed(name: str, findings_of_seeds: Sequence[ProfileFindings]) -> list[TextTable | str]:
    """What a person reads of one model: verdicts, the candidates of one reading, and the names."""
    first, verdicts = findings_of_seeds[0], verdict_table(findings_of_seeds[0])
    reading = first.profile.readings[0]
    names = {f"{one.measure}, {one.alignment}": [] for one in first.profile.readings}
    for findings in findings_of_seeds:
        for one in findings.profile.readings:
            names[f"{one.measure}, {one.alignment}"].append(one.nearest.name)
    header, lines = reading_table(reading)
    title = f"Candidates: {MEASURES[reading.measure]}, {ALIGNMENTS[reading.alignment]}"
    return [
        TextTable(f"{name}: the solver with the nearest errors", verdicts[0], [verdicts[1]]),
        TextTable(title, header, [lines]),
        "distance: root mean square over layers of the difference of both logarithms, with its "
        "95 % interval over tasks. tied: not farther than the nearest solver beyond chance. "
        "A null takes no steps: " + "; ".join(f"{k} is {one.words}" for k, one in NULLS.items()),
        f"nearest solver with each of {len(findings_of_seeds)} seeds: "
        + "; ".join(f"{words}: {', '.join(findings)}" for words, findings in names.items()),
        "A name is the nearest one, also for a model that runs no solver, and a linear probe can "
        f"hide the solver that runs (icl-krr verify C48). Compare with icl-krr identify {name}.",
    ]
