"""Write SolverBench: models, tasks and answers to one folder, labels to another."""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ... import export, map_tasks
from ..._core.files import replace
from ._candidate_models import candidate_models
from ._models import Answers, Model, run_on_tasks
from ._open_set import open_models
from ._settings import LINEAR, PROCESS, BenchConfig, bench_family

FORMAT = 1
"""Version of the files and of the models in them."""
MODELS, LABELS = "models", "labels"
"""Folders: what a participant may see, and the truth."""
MANIFEST, TRUTHS = "manifest.json", "labels.json"


def all_models(config: BenchConfig) -> list[Model]:
    """Every model of SolverBench, in an order that says nothing about the truth."""
    names = (LINEAR,) if config.quick else (LINEAR, PROCESS)
    families = {name: bench_family(name, config) for name in names}
    models = [*candidate_models(families, config), *open_models(families, config)]
    return [models[i] for i in np.random.default_rng(config.seed).permutation(len(models))]


def write_bench(
    folder: Path, config: BenchConfig, progress: Callable[[str], None] = lambda words: None
) -> dict[str, Any]:
    """Write SolverBench to the folders `models` and `labels` of a folder; return the labels.

    The manifest, with the checksums of all other files that a participant may see, is written last:
    a folder without a manifest is incomplete.
    """
    for name, last in ((LABELS, TRUTHS), (MODELS, MANIFEST)):
        (folder / name).mkdir(exist_ok=True)
        (folder / name / last).unlink(missing_ok=True)
    progress("drawing and training models")
    models = all_models(config)
    for one in {model.family.name: model.family for model in models}.values():
        tasks = one.tasks
        path = task_file(folder / MODELS, one.name)
        _write_arrays(path, x=tasks.x, y=tasks.y, x_query=tasks.x_query)
    rows, labels = [], {}
    for i, model in enumerate(models):
        name = f"m{i:03d}"
        progress(f"{name}, {i + 1} of {len(models)}")
        answers = run_on_tasks(model)
        rows.append({"model": name, **write_model(folder / MODELS / name, model, answers)})
        labels[name] = {**model.truth._asdict(), "tasks": model.family.name}
        labels[name] |= write_truth(folder / LABELS / f"{name}.npz", model, answers)
    about = {
        "format": FORMAT,
        "config": dataclasses.asdict(config),
        "dtype": str(models[0].family.tasks.x.dtype),
        "versions": {package: version(package) for package in ("icl_krr", "jax", "numpy")},
    }
    sums = checksums(folder / MODELS, {MANIFEST})
    manifest = as_json({**about, "models": rows, "sha256": sums})
    truths = {**about, "manifest": digest(manifest), "models": labels}
    sums = checksums(folder / LABELS, {TRUTHS})
    replace(folder / LABELS / TRUTHS, as_json({**truths, "sha256": sums}))
    replace(folder / MODELS / MANIFEST, manifest)
    return truths


def task_file(models: Path, family: str) -> Path:
    return models / "tasks" / f"{family}.npz"


def write_model(folder: Path, model: Model, answers: Answers) -> dict[str, Any]:
    """Write answers and weights of a model; return its row of the manifest."""
    _write_arrays(folder / "answers.npz", **answers._asdict())
    weights = model.weights
    row: dict[str, Any] = {
        "tasks": model.family.name,
        "layers": answers.answers.shape[1] - 1,
        "steps": model.layers,
        "weights": weights is not None,
        "probed": model.probed,
        "t5": False,
    }
    if weights is not None:
        export.save(folder / "model.safetensors", weights)
        try:
            export.to_t5(folder / "t5", weights)
            row["t5"] = True
        except ValueError:  # a T5 encoder cannot represent it
            pass
    return row


def write_truth(path: Path, model: Model, answers: Answers) -> dict[str, Any]:
    """Write the states of the oracle; return the distance of the model to it."""
    if model.solution is None:
        return {}
    solve = jax.jit(partial(map_tasks, model.solution))
    states = {name: np.asarray(value) for name, value in solve(model.family.tasks).items()}
    _write_arrays(path, **states)
    truth = states["prediction"][:, 1:]
    gap = np.sqrt(np.sum((answers.answers[:, 1:] - truth) ** 2, axis=(0, 2)))
    return {"distance to truth": float(np.mean(gap / np.sqrt(np.sum(truth**2, axis=(0, 2)))))}


def _write_arrays(path: Path, **arrays: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = io.BytesIO()
    plain: dict[str, Any] = {name: np.asarray(value) for name, value in arrays.items()}
    np.savez(content, **plain)
    replace(path, content.getvalue())


def as_json(record: dict[str, Any]) -> bytes:
    return (json.dumps(record, indent=1, default=float) + "\n").encode()


def digest(content: bytes) -> str:
    return sha256(content).hexdigest()


def checksums(folder: Path, but: set[str]) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name not in but)
    return {str(path.relative_to(folder)): digest(path.read_bytes()) for path in files}
