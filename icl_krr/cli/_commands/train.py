"""`icl-krr train`: start or continue training; metrics as a table and a figure."""

import sys
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import tyro

from ..._core.text_tables import TextTable, format_number
from ...catalogue import FAMILIES, SOLVERS
from ...experiments._shared import recipe as recipes
from ...experiments._shared.recipe import ModelRecipe, Recipe, TaskRecipe
from ...training._settings import Training
from .. import _output
from .._options import ONE_DEVICE, Command, OnDevices, refuse_unused
from .._output import Outcome, working

ARCHITECTURE = ("style", "attention", "width", "heads", "hidden", "activation", "layer_norm")
"""Settings of a model with random weights that a construction determines itself."""

COLUMNS = ("step", "loss", "validation", "ratio", "steps_per_second")
DENSITY_COLUMNS = ("step", "loss", "nll", "validation", "ratio", "steps_per_second")
"""Columns of the table, without and with a predictive distribution."""


@dataclass(frozen=True)
class Train(Command):
    """Train a transformer on new random tasks in every step. RECIPE sets the defaults of all other
    settings. If training is interrupted, the same command continues from the last checkpoint and
    reaches the same weights as an uninterrupted run."""

    recipe: tyro.conf.Positional[Annotated[str | None, tyro.conf.arg(metavar="RECIPE")]] = None
    """A recipe of the package (such as gp-encoder), the folder of an icl-krr train run, or a JSON
    file.
    If None, built-in defaults are used."""
    task: TaskRecipe = field(default_factory=TaskRecipe)
    """Family of tasks to draw from."""
    model: ModelRecipe = field(default_factory=ModelRecipe)
    """Architecture with random weights, or the weights to start from."""
    training: Training = field(default_factory=Training)
    """AdamW with warm-up and cosine decay of the learning rate."""
    json: bool = False
    """Print JSON instead of a table."""
    out: Path | None = None
    """Folder for the weights, the checkpoint, metrics.csv, recipe.json, meta.json and the figure.
    If None, icl-krr-train-RECIPE, or RECIPE itself if RECIPE is the folder of a run."""
    devices: OnDevices = ONE_DEVICE

    @property
    def folder(self) -> Path:
        """The folder of the run: RECIPE itself if RECIPE is a folder, else icl-krr-train-RECIPE."""
        recipe = Path(self.recipe or "run")
        if self.out is None and self.recipe not in (None, *recipes.run_names()) and recipe.is_dir():
            return recipe
        return self.out or Path(f"icl-krr-train-{recipe.stem}")

    @property
    def first_seed(self) -> int:
        return self.training.seed

    def refuse_options_without_effect(self) -> None:
        """Each family takes its own settings; a construction has an architecture of its own."""
        solver = self.model.start in SOLVERS
        taken = {*FAMILIES[self.task.family].takes, *(["kernel"] if solver else [])}
        if "kernel" in taken:
            from ...kernels import kernel_class

            taken |= {kernel_class(self.task.kernel).bandwidth}
            owner = f"family {self.task.family!r} and kernel {self.task.kernel!r}"
        else:
            owner = f"family {self.task.family!r}"
        named = {name for entry in FAMILIES.values() for name in entry.takes}
        others = {*named, "temperature", "lengthscale"} - taken
        refuse_unused(self.task, others, f"for {owner}", "task.")
        if solver:
            refuse_unused(self.model, ARCHITECTURE, f"for start {self.model.start!r}", "model.")


def run(settings: Train) -> Outcome:
    """The exit status is 1 if the loss diverged."""
    import jax
    import jax.numpy as jnp

    from ...experiments._shared.runs import family, first_model, recorded
    from ...plots import training_figure
    from ...training import Diverged, check, save_weights, train
    from ...training._checkpoint import compare

    recipe = Recipe(settings.task, settings.model, settings.training)
    folder, steps = settings.folder, recipe.training.steps
    sealed = recorded(recipe)
    drawn = family(recipe.task)
    model = first_model(recipe, drawn)
    check(model, drawn, recipe.training)
    with working(settings) as show:
        if (folder / "recipe.json").exists() and recipes.beside_weights(folder / "recipe.json"):
            there, here = described(Recipe.read(folder)), described(sealed)
            compare(there, here, folder, another_out(folder, there, here))
        _output.save(folder, {"recipe.json": sealed.to_json().encode()})
        show("compiling", 0, steps)
        words, target = "training", target_of(recipe.training)

        def progress(step: int, row: dict[str, Any] | None) -> None:
            nonlocal words
            words = words_of(row, target) if row else words
            if sys.stderr.isatty():
                show(words, step, steps)
            elif row:
                print(f"step {step} of {steps}: {words}", file=sys.stderr, flush=True)

        try:
            model, rows = train(model, drawn, recipe.training, folder=folder, progress=progress)
        except Diverged as error:
            return Outcome({}, notes=[f"icl-krr: {error}"], status=1)
    if jax.process_index() == 0:
        save_weights(folder / "model.msgpack", model)
    dtype = str(jnp.result_type(float))
    files = dict.fromkeys(("recipe.json", *recipes.WEIGHTS, "metrics.csv")) | {"meta.json": {}}
    if rows:
        title = f"{folder.name}, seed {recipe.training.seed}, {dtype}"
        files |= {"training": partial(training_figure, rows, title, target)}
    parts = summary(rows, recipe.training.seed, target) if rows else []
    return Outcome({"rows": rows}, parts, files, {"dtype": dtype, "recipe": asdict(recipe)})


def described(recipe: Recipe) -> dict[str, Any]:
    from ...training._checkpoint import describe

    parts = (describe(getattr(recipe, f.name), f.name) for f in fields(recipe))
    return {name: value for part in parts for name, value in part.items()}


def another_out(folder: Path, there: dict[str, Any], here: dict[str, Any]) -> str:
    """What helps if a folder has a run of other settings, which may start from its weights."""
    changed = {name for name in {**there, **here} if there.get(name) != here.get(name)}
    if any(name.startswith("model.") for name in changed - {"model.start"}):
        return "choose another --out"
    return f"choose another --out, and add --model.start {folder} to train on from its weights"


def target_of(training: Training) -> str:
    """What the predictions of the training tasks are compared with; validation tasks have y."""
    return "exact KRR" if training.target == "exact" else "y"


def words_of(row: dict[str, Any], target: str) -> str:
    gap = f"{row['nll'] - row['exact_nll']:.3f} nats above exact KRR, " if "nll" in row else ""
    words = f"{gap}{row['ratio']:.4g} x the error of exact KRR, "
    if not row["step"]:
        return f"{words}compiling"
    loss = f"loss {row['loss']:.3g}"
    if "nll" not in row:
        loss += f" (against {target}), validation {row['validation']:.3g} (against y)"
    return f"{loss}, {words}{row['steps_per_second']:.1f} steps/s"


def summary(rows: list[dict[str, Any]], seed: int, target: str) -> list[TextTable | str]:
    density = "nll" in rows[-1]
    columns = DENSITY_COLUMNS if density else COLUMNS
    title = "mean squared error against y; ratio: this error / that of exact KRR on the same tasks"
    loss = f"loss: mean squared error of training tasks against {target}"
    if density:
        loss = "loss, nll: minus the log density of an output, in nats"
    title = f"{loss}; validation: {title}"
    lines = [
        [str(row["step"]), *(format_number(row[name]) for name in columns[1:])]
        for row in [*rows[: -1 : -(-len(rows) // 12)], rows[-1]]
    ]
    last = rows[-1]
    baselines = ("exact", "nadaraya_watson", "mean", "zero")
    words = ", ".join(f"{name.replace('_', '-')} {last[name]:.4g}" for name in baselines)
    words = f"mean squared errors of other predictors on the validation tasks: {words}; seed {seed}"
    if density:
        words = (
            f"nll of exact KRR {last['exact_nll']:.4g}, of one Gaussian for all outputs "
            f"{last['constant_nll']:.4g}\n{words}"
        )
    return [TextTable(title, [name.replace("_", " ") for name in columns], [lines]), words]
