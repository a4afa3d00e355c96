"""Build the task family and the model of a recipe, and load the weights of a finished run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import jax

from ... import Architecture, Transformer, catalogue, init, tasks, untie
from ..._core.messages import suggestion
from ...catalogue import FAMILIES, SOLVERS, taken
from ...kernels import make_kernel
from ...tabular._build import build_model
from ...tasks import GaussianProcess, Rows, Sampler, diabetes, read_table
from ...training import _checkpoint
from ...training._settings import LIKELIHOOD
from . import recipe as recipes
from .recipe import DIGEST, WEIGHTS, ModelRecipe, Recipe, TaskRecipe, run_names


class Run(NamedTuple):
    """A model, the task family it was trained on, and the recipe of both."""

    model: Transformer
    family: Sampler
    recipe: Recipe


def load(where: str | Path) -> Run:
    """Load a finished run: a reference run by its name, or a folder of `icl-krr train`.

    Raises:
        ValueError: `where` is not a run, or the run has no weights.

    >>> load("gp-encoder").model.depth
    6
    """
    folder = find(where)
    recipe = Recipe.read(where)
    drawn = family(recipe.task)
    like = jax.eval_shape(lambda: blank(recipe, drawn))
    return Run(_checkpoint.load_weights(weights_of(folder, where), like), drawn, recipe)


def weights_of(folder: Path, where: str | Path) -> Path:
    """The file with the weights of a run."""
    for name in WEIGHTS:
        if (folder / name).exists():
            return folder / name
    raise ValueError(f"{where} must hold weights, got only a recipe; run icl-krr train {where}")


def find(where: str | Path, *others: str, name: str = "model") -> Path:
    """The folder of a run; the error for an unknown run lists `others` as valid values, too."""
    folder = recipes.folder_of(where)
    if not recipes.holds_run(folder):
        runs = [run for run in run_names() if (recipes.RUNS / run / WEIGHTS[0]).exists()]
        empty = ", which holds no recipe.json" if folder.is_dir() else ""
        raise ValueError(
            f"{name} must be a run's folder or one of {', '.join([*runs, *others])}; "
            f"got {str(where)!r}{empty or suggestion(str(where), [*runs, *others])}"
        )
    return folder


def first_model(recipe: Recipe, drawn: Sampler) -> Transformer:
    """The model before training: random, a construction, or the model of another run."""
    start = recipe.model.start
    if start is None or start in SOLVERS:
        return blank(recipe, drawn)
    if start.startswith(DIGEST):
        raise ValueError(
            f"start must be given again, as --model.start FOLDER, because a recipe has only the "
            f"checksum of such weights, got {start!r}"
        )
    folder = find(start, *SOLVERS, name="start")
    like = jax.eval_shape(lambda: blank(recipe, drawn))
    there = load(start).model
    theirs, ours = (_checkpoint.describe(one.spec, "model") for one in (there, like))
    _checkpoint.compare(theirs, ours, folder)
    return there


def recorded(recipe: Recipe) -> Recipe:
    """The recipe as its file has it: weights to start from by their checksum, not by their path."""
    start = recipe.model.start
    if start is None or start.startswith(DIGEST) or start in (*SOLVERS, *run_names()):
        return recipe
    content = weights_of(find(start, *SOLVERS, name="start"), start).read_bytes()
    named = DIGEST + sha256(content).hexdigest()
    return dataclasses.replace(recipe, model=dataclasses.replace(recipe.model, start=named))


def blank(recipe: Recipe, drawn: Sampler) -> Transformer:
    """The model with random or constructed weights."""
    m, seed = recipe.model, recipe.training.seed
    key = jax.random.key(seed)
    task = tasks.sample(jax.random.fold_in(key, 4), drawn)
    if m.start is None or m.start not in SOLVERS:
        if m.ridge is not None:
            raise ValueError(
                f"ridge must be None unless start is a solver, got ridge {m.ridge} "
                f"and start {m.start!r}"
            )
        unsure = recipe.training.objective == LIKELIHOOD
        return init(key, architecture(m, task.num_features, task.num_supports, unsure))
    takes = taken(m.start)
    if recipe.task.kernel not in takes:
        raise ValueError(
            f"kernel must be one of {', '.join(takes)} to start from {m.start}, "
            f"got {recipe.task.kernel}"
        )
    ridge = recipe.task.noise if m.ridge is None else m.ridge
    if m.ridge is None and not ridge > 0:
        rule = f"ridge must be given to start from {m.start}, because the tasks have no noise"
        raise ValueError(rule)
    kernel = make_kernel(recipe.task.kernel, vars(recipe.task))
    model = build_model(m.start, kernel, task, ridge, m.depth)
    return model if m.tied else untie(model)


def architecture(m: ModelRecipe, p: int, n: int, variance: bool = False) -> Architecture:
    decoder = m.style == "decoder"
    same = ("attention", "width", "depth", "heads", "hidden", "activation", "layer_norm", "tied")
    return Architecture(
        num_features=p,
        causal=decoder,
        tokens="interleaved" if decoder else "pairs",
        max_tokens=2 + 2 * n if decoder else None,
        variance=variance,
        **{name: getattr(m, name) for name in same},
    )


def family(task: TaskRecipe) -> Sampler:
    """The sampler that a recipe describes."""
    entry = catalogue.find("family", FAMILIES, task.family)
    if entry.name != "table" and task.table is not None:
        raise ValueError(f"table must be None for family {entry.name!r}, got {str(task.table)!r}")
    shared = ("num_supports", "num_queries", "num_features", "inputs", "noise")
    kwargs: dict[str, Any] = {name: getattr(task, name) for name in shared}
    sampler = entry.sampler or SAMPLERS[entry.name]
    if not entry.fields:
        return sampler(task, **kwargs)
    return sampler(**{to: getattr(task, name) for name, to in entry.fields.items()}, **kwargs)


def gaussian_process(task: TaskRecipe, **kwargs: Any) -> GaussianProcess:
    kernel = make_kernel(task.kernel, vars(task))
    return GaussianProcess(kernel, spread=task.spread, noise_spread=task.noise_spread, **kwargs)


def table(task: TaskRecipe, num_supports: int, num_queries: int, num_features: int, **_) -> Rows:
    """Tasks whose rows are drawn from a table; by default from the diabetes table."""
    if (task.table is None) != (task.target is None):
        raise ValueError(
            f"table and target must be given together, got table {task.table} "
            f"and target {task.target!r}"
        )
    rows = diabetes() if task.table is None else read_table(task.table, task.target or "")
    if num_features != len(rows.features):
        rule = f"num_features must be {len(rows.features)}, as in the table, got {num_features}"
        raise ValueError(rule)
    return Rows.of(rows, num_supports=num_supports, num_queries=num_queries)


SAMPLERS: dict[str, Callable[..., Sampler]] = {
    "gaussian_process": gaussian_process,
    "linear": tasks.LinearRegression,
    "relu_network": tasks.ReLUNetwork,
    "decision_tree": tasks.DecisionTree,
    "sinusoids": tasks.Sinusoids,
    "table": table,
}
"""{family of the catalogue: its sampler}."""
