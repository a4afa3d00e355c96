"""What `icl-krr identify` reads, writes and prints: files of predictions, records and tables."""

import io
import itertools
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from .._core.files import to_markdown
from .._core.text_tables import TextTable
from ..experiments._shared.arrays import read_arrays, require, task_of
from ..experiments._shared.draws import draw_tasks
from ..experiments._shared.recipe import Recipe
from ..experiments._shared.runs import family
from ..experiments.identify import _trained_model as trained_model
from ..experiments.identify._trained_model import Findings
from ..plots import identification_figure
from ..probes import Identification
from ..probes._naming.distances import NAMES, Distance, StreamResult
from ..probes._naming.identification import total
from ..probes._naming.layer_predictions import roll_outputs
from ..tasks import Task


def identification_record(result: Identification) -> dict[str, Any]:
    """An identification as a record for JSON."""
    return {
        "status": result.status,
        "verdict": result.verdict,
        "remain": result.remain,
        "tied": result.tied,
        "strata of the condition number": result.strata,
        "candidates": [
            {
                "candidate": one.fit.candidate,
                "kernel": one.fit.kernel,
                "values": one.fit.values,
                "alignment": one.fit.alignment,
                "regular": one.regular,
                "limit of steps": one.limit,
                "ruled out": one.reason,
                **distances(one.distances),
                **_stream_record(one.stream_result),
            }
            for one in result.candidates
        ],
        "baselines": {name: distances(spaces) for name, spaces in result.baselines.items()},
        "nested models": [
            {"name": one.name, "kernel": one.kernel, "values": one.values}
            | distances(one.distances)
            for one in result.nested_models
        ],
        "tasks left out": result.num_excluded,
    }


def _stream_record(result: StreamResult | None) -> dict[str, Any]:
    """What is known of a candidate in streams besides its distances; nothing for predictions."""
    if result is None:
        return {}
    return {
        "controls": {name: distances(spaces) for name, spaces in result.controls.items()},
        "independent steps": result.ranks,
        "supports": {name: distances(spaces) for name, spaces in result.supports.items()},
        "effects": result.effects,
    }


def distances(spaces: dict[str, Distance]) -> dict[str, Any]:
    rows = {space: d._asdict().items() for space, d in spaces.items()}
    return {space: {k: v for k, v in row if k != "matrix"} for space, row in rows.items()}


def distance_files(result: Identification, title: str, start: str = "") -> dict[str, Any]:
    """The distances of a result as rows and as heatmaps, in files whose names have this start."""
    return {
        f"{start}heatmaps.csv": trained_model.distance_rows(result),
        f"{start}heatmaps": partial(identification_figure, result, title),
    }


def distance_pages(result: Identification) -> str:
    spaces = result.best.distances
    return "\n".join(to_markdown(trained_model.distance_table(result, one)) for one in spaces)


def findings_record(findings: Findings) -> dict[str, Any]:
    return {"layers": findings.layers} | identification_record(findings.identification)


def summary(of: str, result: Identification, verdict: str = "") -> list[str]:
    """The verdict, and the distances of the nearest candidate and of its nearest control."""
    fit = result.best.fit
    control = min(result.baselines, key=lambda name: total(result.baselines[name]))
    each = {
        f"distance: {fit.candidate}, {fit.kernel} kernel": result.best.distances,
        f"control: {control}": result.baselines[control],
    }
    words = [f"{of}: {verdict or result.verdict}"]
    for name, one in each.items():
        cells = (f"{d.mean:.3g} in {NAMES[space]}" for space, d in one.items())
        words.append(f"{name}: {', '.join(cells)}")
    return words


def printed(result: Identification) -> list[TextTable | str]:
    parts = [*result.tables]
    for space in result.best.distances:
        title = f"Relative distance at every layer, {NAMES[space]} (95 % interval)"
        parts.append(TextTable.of(title, trained_model.distance_table(result, space)))
    return parts


def printed_findings(name: str, findings: Findings) -> list[TextTable | str]:
    title = f"{name}: mean squared error after every layer, and the nearest hyperparameters"
    return [
        TextTable.of(title, trained_model.layer_table(findings)),
        "error: mean squared error of the linear probe, and of the model after the last layer.\n"
        "lens: error of the model's own readout, without a probe. shuffled: error of a probe that "
        "is fitted to the outputs of other tasks. other family: error of a probe that is fitted to "
        "another family of tasks. untrained: error of a probe of an untrained model.\n"
        f"exact: error of exact KRR with {findings.kernel!r} and ridge {findings.ridge:.3g}. "
        "zero: error of the prediction 0.\n"
        "The other columns are hyperparameters. Kernel ridge regression, or a Nadaraya-Watson "
        "smoother, with these hyperparameters has the hat matrix d prediction / d y nearest to "
        "that of the layer. distance: relative distance of the two hat matrices.\n",
        *printed(findings.identification),
    ]


TASK_FIELDS = ("x", "y", "x_query", "mask")
KINDS = {
    ("layer_predictions", "hats"): ("other_hats",),
    ("streams", "stream_jacobians"): ("control_streams", "control_jacobians"),
}
"""The arrays of one kind that a file must have, and those that it may have."""


def read_file(path: Path) -> tuple[Task, dict[str, dict[str, Any]]]:
    """The tasks of a file, and arguments of `identify_arrays` for predictions and for streams."""
    if not path.exists():
        raise ValueError(
            f"{path} does not exist; write tasks to it with --tasks-of RUN, then add predictions"
        )
    hint = (
        "; add the predictions of every layer as layer_predictions [b, layers + 1, q], and their "
        "derivatives in y as hats [b, layers + 1, q, n], or the hidden states of the queries as "
        "streams [b, layers + 1, q, d], and their derivatives as stream_jacobians "
        "[b, layers + 1, q, d, n]"
    )
    kinds = {names: (*names, *more) for names, more in KINDS.items()}
    arrays = read_arrays(path, (), (*TASK_FIELDS, *itertools.chain(*kinds.values())))
    present = [names for names, every in kinds.items() if not arrays.keys().isdisjoint(every)]
    for names in present or [*KINDS][:1]:
        more = () if arrays.keys().isdisjoint(KINDS[names]) else KINDS[names]
        require(path, arrays, (*TASK_FIELDS[:3], *names, *more), hint)
    tasks = task_of(path, {name: arrays[name] for name in TASK_FIELDS if name in arrays})
    return tasks, {
        names[0]: {k: arrays[k] for k in kinds[names] if k in arrays} for names in present
    }


def tasks_file(recipe: str, *, num_queries: int, count: int, seed: int) -> bytes:
    """A file with x, y, x_query and y_query of tasks of a recipe's family, and outputs y_other."""
    drawn: Any = family(Recipe.read(recipe).task)
    tasks = draw_tasks(jax.random.key(seed), count, replace(drawn, num_queries=num_queries))
    fields = {name: getattr(tasks, name) for name in (*TASK_FIELDS, "y_query")}
    arrays: Any = {name: np.asarray(x) for name, x in fields.items() if x is not None}
    stream = io.BytesIO()
    np.savez(stream, **arrays, y_other=np.asarray(roll_outputs(tasks).y))
    return stream.getvalue()
