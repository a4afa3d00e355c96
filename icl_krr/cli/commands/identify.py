"""`icl-krr identify`: find the solver that a model runs; tables, heatmaps and filters."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
from rich.console import Console

from ...experiments.identify.positions import Positions, examine_positions, verdict_table
from ...experiments.identify.trained_model import (
    Findings,
    IdentifyConfig,
    distance_rows,
    distance_table,
    filter_rows,
    layer_table,
    markdown,
)
from ...experiments.shared.runs import load
from ...files import to_csv, to_markdown
from ...plots import filter_figure, identification_figure, images
from ...probes import Identification
from ...probes.distances import SPACES, TITLES, Distance
from ...probes.identification import LAST_ROWS, candidate_table
from ...text_tables import Table
from .. import output
from ..confusion_matrix import identify_constructions
from ..settings.identify import CONSTRUCTIONS, Identify


def run(settings: Identify) -> int:
    """Return 1 if a constructed solver is not identified, else 0."""
    folder = settings.out or Path(f"icl-krr-identify-{Path(settings.model).name}")
    if settings.model == CONSTRUCTIONS:
        return identify_constructions(settings, folder)
    trained = load(settings.model)
    config = IdentifyConfig(
        **{f.name: getattr(settings, f.name) for f in dataclasses.fields(IdentifyConfig)}
    )
    output.prepare(folder)
    with Console(stderr=True).status("") as status, jax.enable_x64(True):
        positions = examine_positions(
            trained,
            config,
            settings.positions,
            lambda words: status.update(f"{settings.model}: {words}"),
        )
    *_, findings = positions.values()
    meta = {
        **output.surroundings(settings),
        "dtype": "float64",
        "kernel": repr(findings.kernel),
        "ridge": findings.ridge,
    }
    record = {"meta": meta, "layers": findings.layers, **identification_record(findings.found)}
    if settings.positions:
        record["positions"] = [position_record(*one) for one in positions.items()]
    title = f"{settings.model}, seed {settings.seed}, float64"
    files = {
        "identify.json": (output.to_json(record) + "\n").encode(),
        "layers.csv": to_csv(findings.layers),
        "heatmaps.csv": to_csv(distance_rows(findings.found)),
        "filter.csv": to_csv(filter_rows(findings)),
        "identify.md": markdown(findings).encode(),
        **images("heatmaps", identification_figure(findings.found, title)),
        **images("filter", filter_figure(findings, title)),
    }
    if settings.positions:
        files["positions.md"] = to_markdown(verdict_table(positions)).encode()
    output.write(folder, files)
    if settings.json:
        print(output.to_json(record))
    else:
        print_findings(settings.model, findings)
        if settings.positions:
            print_positions(settings.model, positions)
    return 0


def position_record(count: int, findings: Findings) -> dict[str, Any]:
    """The findings after this number of supports as a record for JSON."""
    known = {"kernel": repr(findings.kernel), "ridge": findings.ridge, "layers": findings.layers}
    return {"num_supports": count, **known, **identification_record(findings.found)}


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
                "ruled out": suspect.because,
                **{space: distance_record(d) for space, d in suspect.distances.items()},
            }
            for suspect in found.suspects
        ],
        "baselines": {
            name: {space: distance_record(d) for space, d in spaces.items()}
            for name, spaces in found.baselines.items()
        },
    }


def distance_record(d: Distance) -> dict[str, Any]:
    return {name: value for name, value in d._asdict().items() if name != "matrix"}


def print_findings(name: str, findings: Findings) -> None:
    console, found = output.wide(), findings.found
    title = f"{name}: mean squared error after every layer, and the nearest hyperparameters"
    header, lines = layer_table(findings)
    console.print(Table(title, header, [lines]))
    console.print(
        "error: mean squared error of the linear probe, and of the model after the last layer.\n"
        "shuffled: error of a probe that is fitted to the outputs of other tasks. untrained: error "
        "of a probe of an untrained model.\n"
        f"exact: error of exact KRR with {findings.kernel!r} and ridge {findings.ridge:.3g}. "
        "zero: error of the prediction 0.\n"
        "The other columns are hyperparameters. Kernel ridge regression, or a Nadaraya-Watson "
        "smoother, with these hyperparameters has the hat matrix d prediction / d y nearest to "
        "that of the layer. distance: relative distance of the two hat matrices.\n"
    )
    console.print(candidate_table(found), LAST_ROWS, sep="\n")
    for space in SPACES:
        title = f"Relative distance at every layer, {TITLES[space]} (95 % interval)"
        header, lines = distance_table(found, space)
        console.print(Table(title, header, [lines], tuple(header[2:-1]), where="identify.md"))
    console.print(found.verdict)


def print_positions(name: str, positions: Positions) -> None:
    header, lines = verdict_table(positions)
    title = f"{name}: error, verdict, nearest candidate and nearest baseline after some supports"
    console = output.wide()
    console.print(Table(title, header, [lines], tuple(header[-3:]), where="positions.md"))
