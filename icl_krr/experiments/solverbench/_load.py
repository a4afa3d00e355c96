"""Read SolverBench from its folders, which others may have changed or made."""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import Any, NamedTuple, TypedDict

import numpy as np

from ..._core.files import read_record
from ..._core.messages import short_repr
from ...tasks import Task
from .._shared.arrays import read_arrays, task_of
from ._folder import FORMAT, MANIFEST, digest, task_file
from ._models import Answers
from ._settings import BenchConfig


class Named(TypedDict):
    """The name of a model, and the family of its tasks."""

    model: str
    tasks: str


class Row(Named, total=False):
    """A model in the manifest, see `write_model`."""

    layers: int
    steps: tuple[int, ...] | None
    weights: bool
    probed: bool
    t5: bool


class Record(TypedDict):
    """What the manifest and the labels share."""

    format: int
    config: BenchConfig
    dtype: str
    sha256: dict[str, str]


class Manifest(Record):
    """The models that a participant may see, and the checksums of their files."""

    models: tuple[Row, ...]


class Label(TypedDict):
    """The truth of a model, see `Truth`."""

    variant: str
    about: str
    solver: str
    names: tuple[str, ...]
    tasks: str


class Labels(Record):
    """The truth of every model by its name."""

    models: dict[str, Label]


class Submitted(NamedTuple):
    """What a participant may see of a model: its tasks and answers."""

    name: str
    tasks: Task  # tasks of the answers; the first half is to fit, the second to score
    answers: Answers


def read_models(models: Path) -> tuple[Manifest, list[Submitted]]:
    """Read the folder `models` and check it against its manifest, which gives the order."""
    manifest: Manifest = _read_bench(models / MANIFEST, Manifest)
    sums, rows = manifest["sha256"], manifest["models"]
    named = [row["model"] for row in rows]
    for name in (*sums, *named, *(row["tasks"] for row in rows)):
        if PurePath(name).is_absolute() or ".." in PurePath(name).parts:
            raise ValueError(f"{models / MANIFEST}: names must stay in its folder, got {name!r}")
    if not named or len({*named}) < len(named):
        got = ", ".join(name for name in dict.fromkeys(named) if named.count(name) > 1) or "none"
        raise ValueError(f"{models / MANIFEST}: models must be at least one, each once, got {got}")
    for name, checksum in sums.items():
        path = models / name
        if not path.is_file() or digest(path.read_bytes()) != checksum:
            raise ValueError(f"{path} must be as its manifest says; write SolverBench anew")

    def sealed(path: Path) -> Path:
        if (name := path.relative_to(models).as_posix()) not in sums:
            raise ValueError(f"{models / MANIFEST} must have the checksum of {name}, got none")
        return path

    tasks = {}
    for name in {row["tasks"] for row in rows}:
        path = sealed(task_file(models, name))
        tasks[name] = task_of(path, read_arrays(path, ("x", "y", "x_query")))
    submitted = []
    for i, row in enumerate(rows):
        path = sealed(models / row["model"] / "answers.npz")
        answers = Answers(**read_arrays(path, Answers._fields))
        _check_row(f"{models / MANIFEST}: models[{i}]", row, answers)
        submitted.append(Submitted(row["model"], tasks[row["tasks"]], answers))
    return manifest, submitted


def _check_row(where: str, row: Row, answers: Answers) -> None:
    """Raise ValueError unless a row of the manifest has as many layers as the answers."""
    count, steps = np.shape(answers.answers)[1:2], row.get("steps")
    if "layers" in row and (row["layers"] + 1,) != count:
        raise ValueError(f"{where}.layers must be that of its answers, got {row['layers']}")
    if steps is not None and ((len(steps),) != count or min(steps) < 0):
        raise ValueError(
            f"{where}.steps must be one number >= 0 for layer 0 and each layer of its answers, "
            f"got {short_repr(steps)}"
        )


def read_labels(path: Path) -> Labels:
    """Read the labels of SolverBench; ValueError if the file is something else."""
    return _read_bench(path, Labels)


def _read_bench(path: Path, hint: Any) -> Any:
    """The manifest or the labels; ValueError if the file is something else."""
    if not path.is_file():
        raise ValueError(
            f"{path} must exist, because icl-krr solverbench write writes it last; run this command"
        )
    record = read_record(hint, path)
    if record["format"] != FORMAT:
        raise ValueError(
            f"{path} must have format {FORMAT}, got {short_repr(record['format'])}; "
            "write SolverBench anew"
        )
    return record
