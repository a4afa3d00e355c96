"""The tables and the record of an identification."""

from __future__ import annotations

from typing import Any

from ..experiments.identify.trained_model import distance_table
from ..probes import Identification
from ..probes.naming.distances import SPACES, TITLES, Distance
from ..probes.naming.identification import LAST_ROWS, STEPS_OF_LADDER, candidate_table, ladder_table
from ..text_tables import Table
from . import output


def identification_record(found: Identification) -> dict[str, Any]:
    """An identification as a record for JSON."""
    return {
        "status": found.status,
        "verdict": found.verdict,
        "remain": found.remain,
        "as near": found.as_near,
        "strata of the condition number": found.strata,
        "candidates": [
            {
                "candidate": suspect.fit.candidate,
                "kernel": suspect.fit.kernel,
                "values": suspect.fit.values,
                "values of each layer": suspect.fit.per_layer,
                "alignment": suspect.fit.alignment,
                "regular": suspect.regular,
                "limit of steps": suspect.limit,
                "ruled out": suspect.because,
                **distances(suspect.distances),
            }
            for suspect in found.suspects
        ],
        "baselines": {name: distances(spaces) for name, spaces in found.baselines.items()},
        "ladder": [
            {"name": one.name, "kernel": one.kernel, "values": one.values}
            | distances(one.distances)
            for one in found.ladder
        ],
        "tasks left out": found.left_out,
    }


def distances(spaces: dict[str, Distance]) -> dict[str, Any]:
    return {space: distance_record(d) for space, d in spaces.items()}


def distance_record(d: Distance) -> dict[str, Any]:
    return {name: value for name, value in d._asdict().items() if name != "matrix"}


def print_identification(found: Identification) -> None:
    console = output.wide()
    console.print(candidate_table(found), LAST_ROWS, sep="\n")
    console.print(ladder_table(found), STEPS_OF_LADDER, sep="\n")
    for space in SPACES:
        title = f"Relative distance at every layer, {TITLES[space]} (95 % interval)"
        header, lines = distance_table(found, space)
        console.print(Table(title, header, [lines], tuple(header[2:-1]), where="identify.md"))
