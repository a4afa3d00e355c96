"""What `benchmarks.ablations` measures of a model: predictions without a part of each layer."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.ablations_models import exact_of, outputs_of
from icl_krr.experiments.identify.probe_controls import in_dtype_of_tasks
from icl_krr.experiments.solverbench.settings import Setting
from icl_krr.probes import fit_probe, layerwise
from icl_krr.probes.changing.interventions import (
    SiteCodes,
    point_names,
    role_means,
    run_interventions,
)
from icl_krr.residual import ROLES
from icl_krr.tasks import Task, map_tasks
from icl_krr.training.reference import regression
from icl_krr.transformer import Transformer

PARTS = ("heads", "units", "layer")
"""What is removed from a layer: all heads, all MLP units, or both."""
REPLACED = ("zero", "mean")
EFFECTS = ("change", "target", "exact")
"""Distance of the predictions to those of the intact model, to the targets, and to exact KRR."""

Record = dict[str, Any]


def places_of(model: Transformer, part: str) -> set[tuple[int, str]]:
    """All (position, point) pairs of a part of one step; blocks of the prologue are no step."""
    first, found = len(model.weights.prologue), set()
    for position, block in enumerate(model.weights.steps, start=first):
        if part != "units":
            found |= {(position, f"heads.{j}.mixed") for j in range(len(block.attention))}
        if part != "heads":
            found |= {(position, f"units.{j}.hidden") for j in range(len(block.mlp))}
    return found


def without_parts(model: Transformer, tasks: Task) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Predictions [b, q] intact, and [parts, L, b, q] without each part of each layer.

    Zeros replace the part, or its means over tasks and tokens of the same role. The first of all
    sites has no place, so that one program computes everything.
    """
    places = [set(), *(places_of(model, part) for part in PARTS)]
    ids = tuple(sorted(places[-1]))
    layers = np.arange(model.steps)
    counts = [1] + [len(layers)] * len(PARTS)
    hits = [[one in part for one in ids] for part in places]
    total = sum(counts)
    codes = SiteCodes(
        jnp.asarray(np.repeat(hits, counts, axis=0)),
        jnp.asarray(np.concatenate([np.arange(count) for count in counts])),
        jnp.tile(jnp.array([0, jnp.iinfo(jnp.int32).max]), (total, 1)),
        jnp.ones((total, len(ROLES)), bool),
    )
    means = role_means(model, tasks, point_names(ids))
    sources = {"zero": jax.tree.map(jnp.zeros_like, means), "mean": means}
    answers = {
        name: np.asarray(run_interventions(model, tasks, codes, source, ids, 16))
        for name, source in sources.items()
    }
    shape = (len(PARTS), len(layers), *answers["zero"].shape[1:])
    return answers["zero"][0], {name: one[1:].reshape(shape) for name, one in answers.items()}


@jax.jit
def exact_predictions(kernel: Any, ridge: Any, tasks: Task) -> jax.Array:
    return map_tasks(lambda task: regression(kernel, task, ridge), tasks)


@jax.jit
def layer_errors(model: Transformer, probe: Any, tasks: Task) -> jax.Array:
    """Squared errors of a linear probe after every layer, summed over queries [b, L + 1]."""
    found = map_tasks(lambda task: layerwise(model, task, probe), tasks)
    return jnp.sum((found - outputs_of(tasks)[:, None]) ** 2, axis=-1)


def measure(model: Transformer, one: Setting, profile: bool = False) -> Record:
    """Squares, summed over queries, of every effect: [parts, L, b] without a part, [b] intact."""
    began, tasks = time.process_time(), one.tasks
    model = in_dtype_of_tasks(model, tasks)
    intact, without = without_parts(model, tasks.replace(y_query=None))
    best = np.asarray(exact_predictions(*exact_of(one.family), tasks))
    others = {"change": intact, "target": np.asarray(outputs_of(tasks)), "exact": best}
    sums = partial(np.sum, axis=-1)
    sizes = {name: sums((intact - other) ** 2) for name, other in others.items()}
    sizes["change"] = sums(intact**2)
    found: Record = {"layers": model.steps, "intact": rounded(sizes), "removed": {}}
    found["exact error"] = rounded(sums((best - others["target"]) ** 2))
    for replace, changed in without.items():
        squares = {name: sums((changed - other) ** 2) for name, other in others.items()}
        found["removed"][replace] = rounded(squares)
    if profile:
        probe = fit_probe(model, one.probing)
        found["profile"] = rounded(layer_errors(model, probe, tasks))
    return found | {"cpu_seconds": time.process_time() - began}


def rounded(values: Any) -> Any:
    """Nested lists of 6 significant digits; what is not finite, or larger, becomes 1e30."""
    if isinstance(values, dict):
        return {name: rounded(one) for name, one in values.items()}
    values = np.nan_to_num(np.asarray(values, float), nan=1e30, posinf=1e30).clip(max=1e30)
    text = np.vectorize(lambda value: float(f"{value:.6g}"), otypes=[float])
    return text(values).tolist()
