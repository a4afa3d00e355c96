"""`icl-krr identify`: find the solver that a model runs; tables, heatmaps and filters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
from rich.console import Console

from ... import checks
from ...experiments.identify.probe_controls import state_table
from ...experiments.identify.settings import IdentifyConfig
from ...experiments.identify.trained_model import (
    Findings,
    Positions,
    distance_rows,
    examine_positions,
    filter_rows,
    layer_table,
    markdown,
    verdict_table,
)
from ...experiments.shared.runs import load
from ...files import to_csv, to_markdown
from ...plots import filter_figure, identification_figure, images
from ...probes import agreement
from ...text_tables import Table
from .. import output
from ..answers_file import identify_file, write_tasks
from ..confusion_matrix import identify_constructions
from ..identification_tables import identification_record, print_identification
from ..settings.identify import CONSTRUCTIONS, Identify


def run(settings: Identify) -> int:
    """Return 1 if a constructed solver is not identified, else 0."""
    folder = settings.out or Path(f"icl-krr-identify-{Path(settings.model).stem}")
    if settings.seeds is not None:
        checks.count("seeds", settings.seeds)
    if settings.tasks_of is not None:
        return write_tasks(settings)
    if settings.is_file:
        return identify_file(settings, folder)
    if settings.model == CONSTRUCTIONS:
        return identify_constructions(settings, folder)
    trained = load(settings.model)
    seeds = range(settings.first_seed, settings.last_seed + 1)
    configs = [IdentifyConfig(**settings.options, seed=seed) for seed in seeds]
    output.prepare(folder)
    with Console(stderr=True).status("") as status, jax.enable_x64(True):

        def examined(config: IdentifyConfig, positions: tuple[int, ...]) -> Positions:
            start = f"{settings.model}, seed {config.seed}: "
            return examine_positions(
                trained, config, positions, lambda words: status.update(start + words)
            )

        positions = examined(configs[0], settings.positions)
        *_, findings = positions.values()
        others = [next(iter(examined(config, ()).values())).found for config in configs[1:]]
    together = agreement([findings.found, *others])
    meta = {
        **output.surroundings(settings),
        "dtype": "float64",
        "kernel": repr(findings.kernel),
        "ridge": findings.ridge,
    }
    record = {"meta": meta, "layers": findings.layers, "states": findings.states}
    record |= identification_record(findings.found)
    record["together"] = together._asdict()
    record["seeds"] = [
        {"seed": config.seed, **identification_record(found)}
        for config, found in zip(configs, [findings.found, *others], strict=True)
    ]
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
        if others:
            print(f"with {len(configs)} seeds: {together.verdict}")
    return 0


def position_record(count: int, findings: Findings) -> dict[str, Any]:
    """The findings after this number of supports as a record for JSON."""
    known = {"kernel": repr(findings.kernel), "ridge": findings.ridge}
    known |= {"layers": findings.layers, "states": findings.states}
    return {"num_supports": count, **known, **identification_record(findings.found)}


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
