"""The tables and the records of an identification."""

from __future__ import annotations

from typing import Any

from ..experiments.identify.probe_controls import state_table
from ..experiments.identify.trained_model import (
    Findings,
    Positions,
    distance_table,
    layer_table,
    verdict_table,
)
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


def findings_record(findings: Findings) -> dict[str, Any]:
    """The findings of a trained model as a record for JSON."""
    known = {"layers": findings.layers, "states": findings.states}
    return known | identification_record(findings.found)


def position_record(count: int, findings: Findings) -> dict[str, Any]:
    """The findings after this number of supports as a record for JSON."""
    known = {"num_supports": count, "kernel": repr(findings.kernel), "ridge": findings.ridge}
    return known | findings_record(findings)


def print_identification(found: Identification) -> None:
    console = output.wide()
    console.print(candidate_table(found), LAST_ROWS, sep="\n")
    console.print(ladder_table(found), STEPS_OF_LADDER, sep="\n")
    for space in SPACES:
        title = f"Relative distance at every layer, {TITLES[space]} (95 % interval)"
        header, lines = distance_table(found, space)
        console.print(Table(title, header, [lines], tuple(header[2:-1]), where="identify.md"))


def print_findings(name: str, findings: Findings) -> None:
    console, found = output.wide(), findings.found
    title = f"{name}: mean squared error after every layer, and the nearest hyperparameters"
    header, lines = layer_table(findings)
    console.print(Table(title, header, [lines]))
    console.print(
        "error: mean squared error of the linear probe, and of the model after the last layer.\n"
        "lens: error of the model's own read-out, without a probe. shuffled: error of a probe that "
        "is fitted to the outputs of other tasks. other family: error of a probe that is fitted to "
        "another family of tasks. untrained: error of a probe of an untrained model.\n"
        f"exact: error of exact KRR with {findings.kernel!r} and ridge {findings.ridge:.3g}. "
        "zero: error of the prediction 0.\n"
        "The other columns are hyperparameters. Kernel ridge regression, or a Nadaraya-Watson "
        "smoother, with these hyperparameters has the hat matrix d prediction / d y nearest to "
        "that of the layer. distance: relative distance of the two hat matrices.\n"
    )
    print_states(name, findings)
    print_identification(found)
    console.print(found.verdict)


def print_states(name: str, findings: Findings) -> None:
    if findings.states:
        header, lines = state_table(findings.states)
        title = f"{name}: R^2 of linear probes of the support tokens for the states of a solver"
        console = output.wide()
        console.print(Table(title, header, [lines]))
        console.print(
            "step: step of the solver that the layer is aligned with. start: R^2 of a probe of the "
            "stream before the first layer. shuffled: R^2 for the states of other tasks. random: "
            "R^2 for random functions of x. untrained: R^2 of a probe of an untrained model. "
            "selectivity: R^2 minus the largest of these.\n"
        )


def print_positions(name: str, positions: Positions) -> None:
    header, lines = verdict_table(positions)
    title = f"{name}: error, verdict, nearest candidate and nearest baseline after some supports"
    console = output.wide()
    console.print(Table(title, header, [lines], tuple(header[-3:]), where="positions.md"))
