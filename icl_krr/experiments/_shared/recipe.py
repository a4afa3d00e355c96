"""Recipes: the settings of a training run, as dataclasses and as a JSON file, without JAX."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass, field
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Literal

from ..._core import files, messages
from ..._core.files import NO_CHECKSUM, convert_record, parse_json, verify_checksum, with_checksum
from ..._core.messages import suggestion
from ...catalogue import FAMILIES, KERNELS, SOLVERS, find, spelled
from ...catalogue._choices import AttentionName, FamilyName, KernelName
from ...training._settings import Training

RUNS = Path(str(resources.files("icl_krr"))) / "runs"
"""Folder of the reference runs: each has a recipe, most have weights and metrics."""

USES = {
    "gp-decoder-12": "claim C49, on decoders of several depths",
    "gp-decoder-4": "claim C49, and a first decoder: it trains fastest",
    "gp-decoder-8": "claim C49",
    "gp-decoder-gpu": "a decoder of published size",
    "gp-encoder": "the usual subject of identify, fit and ablate",
    "gp-encoder-2d": "a second subject, with two features",
    "gp-encoder-hard": "a subject with little noise and short contexts, too",
    "linear": "claim C24, one block that learns one step of gradient descent",
    "linear-decoder-gpu": "a decoder for linear tasks, of published size",
}
"""What each reference run is for."""

FILE, WEIGHTS = "recipe.json", ("model.msgpack", "checkpoint.msgpack")
"""Files of a run: its recipe, and its weights (the first of these files that exists counts)."""

CHECKSUM, DIGEST = "checksum", "sha256:"
"""The entry of a file that seals it, and how the checksum of weights begins."""


@dataclass(frozen=True)
class TaskRecipe:
    """The task family."""

    family: FamilyName = "gaussian_process"
    """Kind of function that generates the outputs."""
    num_features: int = 1
    """Number of features p of an input."""
    num_supports: int = 24
    """Number of supports n of a task."""
    num_queries: int = 8
    """Number of queries q of a task."""
    inputs: Literal["normal", "uniform", "sphere"] = "normal"
    """Distribution of the inputs: standard normal, uniform in (-1, 1) or on the unit sphere."""
    noise: float = 0.05
    """Variance of the noise on the supports' outputs."""
    kernel: KernelName = "gaussian"
    """Kernel of the Gaussian process."""
    lengthscale: float = 1.0
    """Lengthscale of a kernel that has one, in units of x."""
    temperature: float = 1.0
    """Temperature of the exponential kernel."""
    spread: float = 1.0
    """Each task multiplies its lengthscale or temperature by a random factor from 1 / spread to
    spread."""
    noise_spread: float = 1.0
    """Each task of a Gaussian process multiplies its noise variance by a random factor from
    1 / noise_spread to noise_spread."""
    condition: float = 1.0
    """Condition number of the covariance of the features, for linear regression."""
    conditions: tuple[float, ...] | None = None
    """Condition numbers, one of which each task of linear regression draws; default: `condition`
    for all."""
    sparsity: int | None = None
    """Number of nonzero weights, for linear regression; default: all."""
    hidden: int = 100
    """Number of hidden units of ReLU networks."""
    tree_depth: int = 4
    """Depth of decision trees."""
    frequency: float = 3.0
    """Scale of the frequencies of sinusoids, in radians per unit of x."""
    table: Path | None = None
    """Comma-separated file whose rows are drawn; default: the diabetes table of the package."""
    target: str | None = None
    """Column of `table` to predict."""

    def __post_init__(self):
        object.__setattr__(self, "family", find("family", FAMILIES, self.family).name)
        object.__setattr__(self, "kernel", find("kernel", KERNELS, self.kernel).name)


@dataclass(frozen=True)
class ModelRecipe:
    """The model: an architecture with random weights, or with weights to start from."""

    style: Literal["encoder", "decoder"] = "encoder"
    """Style of the model. "encoder": one token for each support, and supports attend to each
    other. "decoder": like GPT-2, with x and y interleaved, a causal mask and learned positions."""
    attention: AttentionName = "softmax"
    """Kind of attention."""
    width: int = 64
    """Number of channels of the residual stream."""
    depth: int = 6
    """Number of blocks, or of solver steps if `start` is a solver."""
    heads: int = 4
    """Number of heads of a block."""
    hidden: int | None = None
    """Number of MLP units of a block; default: 4 times the width; 0 means no MLP."""
    activation: Literal["gelu", "relu", "identity"] = "gelu"
    """Activation of the MLP."""
    layer_norm: bool = True
    """Whether there is a LayerNorm before each sublayer and before the readout."""
    tied: bool = False
    """Whether all blocks share their weights."""
    start: str | None = None
    """Initial weights; default: random. Give the name or the folder of a run with the same
    architecture, or the name of a solver. For a solver, the weights, width, heads and MLP are those
    of its construction on the task's kernel."""
    ridge: float | None = None
    """Ridge of the solver in `start`; default: the variance `noise` of the task."""

    def __post_init__(self):
        object.__setattr__(self, "start", solver_of(self.start) or self.start)


@dataclass(frozen=True)
class Recipe:
    """All settings that a training run depends on: task family, model and training.

    `Recipe.read(where)` reads the recipe of a reference run by its name, of a run's folder or of
    a JSON file. Missing fields have their defaults.

    Raises:
        ValueError: the file is not a recipe, names a folder to start from, or is not as it was
            written: beside weights, recipe and weights must match their checksums.

    >>> Recipe.read("gp-encoder").task.family
    'gaussian_process'
    """

    task: TaskRecipe = field(default_factory=TaskRecipe)
    model: ModelRecipe = field(default_factory=ModelRecipe)
    training: Training = field(default_factory=Training)

    @classmethod
    def read(cls, where: str | Path) -> Recipe:
        path = folder_of(where)
        path = path / FILE if path.is_dir() else path
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            raise ValueError(
                f"recipe must be a JSON file, a run's folder or one of {', '.join(run_names())}; "
                f"got {str(where)!r}{suggestion(str(where), run_names())}"
            ) from None
        entries = parse_json(path, content)
        sealed = isinstance(entries, dict) and CHECKSUM in entries
        if sealed or beside_weights(path):
            try:
                verify_checksum(content)
            except ValueError as error:
                raise ValueError(
                    f"{path} must be as icl-krr train wrote it, but has {error}; for other "
                    f"settings, use a copy in another folder without the entry {CHECKSUM}"
                ) from None
        if sealed:
            del entries[CHECKSUM]
        recipe = convert_record(cls, entries, path)
        for part, settings in vars(recipe).items():
            for name, value in vars(settings).items():
                most = 2**31 if isinstance(value, int) else math.inf
                if isinstance(value, (int, float)) and not 0 <= value < most:
                    rule = f"{part}.{name} must be >= 0 and < {most}"
                    raise ValueError(f"{path}: {rule}, got {messages.short_repr(value)}")
        start = recipe.model.start
        if not (start in (None, *SOLVERS, *run_names()) or start.startswith(DIGEST)):
            raise ValueError(
                f"{path}: model.start must be the name of a solver or a run of the package, got "
                f"{messages.short_repr(start)}; give the folder of another run as --model.start "
                "FOLDER"
            )
        return recipe

    def to_json(self) -> str:
        """The JSON text with its checksum."""
        record = {CHECKSUM: NO_CHECKSUM, **dataclasses.asdict(self)}
        return with_checksum((json.dumps(record, indent=2, default=str) + "\n").encode()).decode()


def beside_weights(path: Path) -> bool:
    return path.name == FILE and any((path.parent / name).exists() for name in WEIGHTS)


def folder_of(where: str | Path) -> Path:
    """The path, or the folder of a reference run if it is its name and neither file nor run."""
    path = Path(where)
    there = path.is_file() or holds_run(path)
    return RUNS / str(where) if str(where) in run_names() and not there else path


def solver_of(name: str | None) -> str | None:
    """The solver with this name, or None; a run's folder goes before a short name."""
    if name is None or name in SOLVERS:
        return name
    solver = spelled(name)
    return solver if solver in SOLVERS and not holds_run(Path(name)) else None


def holds_run(folder: Path) -> bool:
    return (folder / FILE).exists()


def recipe_table() -> str:
    """For each reference run: minutes of training, use, task and model."""
    lines = [" recipes, with the minutes of the recorded training on 2 cores", f" {'-' * 78}"]
    for name in run_names():
        recipe, metrics = Recipe.read(name), RUNS / name / "metrics.csv"
        task, model = recipe.task, recipe.model
        minutes = f"{training_minutes(metrics):.0f} min" if metrics.exists() else "GPU"
        lines += [
            f"  {name} ({minutes}): {USES[name]}",
            f"      {task.family}, p = {task.num_features}, n = {task.num_supports}",
            f"      {model.style}, {model.attention} attention, depth {model.depth}, "
            f"width {model.width}",
        ]
    return "\n".join(lines)


def training_minutes(metrics: Path) -> float:
    """The minutes that the training steps of a run took, from its file `metrics.csv`."""
    pairs = pairwise(files.from_csv(metrics))
    seconds = ((row["step"] - last["step"]) / row["steps_per_second"] for last, row in pairs)
    return sum(seconds) / 60


def run_names() -> list[str]:
    return sorted(path.parent.name for path in RUNS.glob("*/recipe.json"))
