"""Recipes: what a training run is made of, as settings and as a JSON file; no JAX here."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

from ...catalogue import ATTENTIONS, FAMILIES, KERNELS, spelled
from ...training.settings import Training

if TYPE_CHECKING:
    Family = KernelName = Attention = str
else:
    Family, KernelName, Attention = (Literal[tuple(n)] for n in (FAMILIES, KERNELS, ATTENTIONS))

RUNS = Path(str(resources.files("icl_krr"))) / "runs"
"""The reference runs that ship: a recipe each, most with weights and metrics."""


@dataclass(frozen=True)
class TaskRecipe:
    """The family that tasks are drawn from."""

    family: Family = "gaussian_process"
    """What the outputs are a function of."""
    num_features: int = 1
    """Features p of an input."""
    num_supports: int = 24
    """Supports n of a task."""
    num_queries: int = 8
    """Queries of a task."""
    inputs: Literal["normal", "uniform", "sphere"] = "normal"
    """Distribution of the inputs: standard normal, uniform in (-1, 1), on the unit sphere."""
    noise: float = 0.05
    """Variance of the noise on the supports' outputs."""
    kernel: KernelName = "gaussian"
    """Kernel of a Gaussian process."""
    lengthscale: float = 1.0
    """Lengthscale of its Gaussian kernel, in units of x."""
    temperature: float = 1.0
    """Temperature of its exponential kernel."""
    spread: float = 1.0
    """Largest factor by which a task's lengthscale or temperature differs."""
    noise_spread: float = 1.0
    """Largest factor by which a Gaussian process' noise differs."""
    condition: float = 1.0
    """Condition number of the features' covariance, of linear tasks."""
    sparsity: int | None = None
    """Weights that are not 0, of linear tasks; all if absent."""
    hidden: int = 100
    """Hidden units of ReLU networks."""
    tree_depth: int = 4
    """Depth of decision trees."""
    frequency: float = 3.0
    """Scale of the frequencies of sinusoids, in radians per unit of x."""
    table: Path | None = None
    """Comma-separated file whose rows are drawn; the diabetes table that ships if absent."""
    target: str | None = None
    """Column of it to predict."""


@dataclass(frozen=True)
class ModelRecipe:
    """The model: an architecture with random weights, or what to start from."""

    style: Literal["encoder", "decoder"] = "encoder"
    """One token for each support, supports see each other; or GPT-2's: x and y interleaved,
    causal, learned positions."""
    attention: Attention = "softmax"
    """Kind of attention."""
    width: int = 64
    """Channels of the residual stream."""
    depth: int = 6
    """Blocks, or steps of the construction."""
    heads: int = 4
    """Heads of a block."""
    hidden: int | None = None
    """MLP units of a block: 4 widths if absent, no MLP for 0."""
    activation: Literal["gelu", "relu", "identity"] = "gelu"
    """Activation of the MLP."""
    layer_norm: bool = True
    """LayerNorm before each sublayer and the read-out."""
    tied: bool = False
    """One block, looped, instead of blocks of their own."""
    start: str | None = None
    """Where the first weights are from, if not random: a run, by its name or folder, of the same
    model; or a solver's construction on the task's kernel (width, heads, MLP are then its own)."""
    ridge: float | None = None
    """Ridge of that construction; that of the noise if absent."""


@dataclass(frozen=True)
class Recipe:
    """A task family, a model and how it is trained: all that a run depends on.

    `Recipe.read("gp-encoder")` is that of a reference run that ships, of a run's folder or of a
    JSON file; missing fields have their defaults.

    Raises ValueError for another file and for fields that recipes do not have.

    >>> Recipe.read("gp-encoder").task.family
    'gaussian_process'
    """

    task: TaskRecipe = field(default_factory=TaskRecipe)
    model: ModelRecipe = field(default_factory=ModelRecipe)
    training: Training = field(default_factory=Training)

    @classmethod
    def read(cls, where: str | Path) -> Recipe:
        path = folder_of(where)
        path = path / "recipe.json" if path.is_dir() else path
        try:
            entries = json.loads(path.read_text())
        except FileNotFoundError:
            raise ValueError(
                f"recipe must be a JSON file, a run's folder or one of {', '.join(names())}; "
                f"got {str(where)!r}"
            ) from None
        except ValueError as error:
            raise ValueError(f"{path} must be JSON: {error}") from None
        return cls(**parts(cls, entries, path))

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=2, default=str) + "\n"


def parts(cls: Any, entries: Any, path: Path) -> dict[str, Any]:
    if not isinstance(entries, dict):
        raise ValueError(f"{path} must hold an object of {cls.__name__} fields, got {entries!r}")
    kinds = {"task": TaskRecipe, "model": ModelRecipe, "training": Training}
    allowed = [f.name for f in dataclasses.fields(cls)]
    for name in entries:
        if name not in allowed:
            raise ValueError(f"{path}: field must be one of {', '.join(allowed)}; got {name!r}")
        hint = get_type_hints(cls)[name]
        if get_origin(hint) is Literal and isinstance(entries[name], str):
            entries = entries | {name: as_spelled(entries[name], hint)}
        if name not in kinds and not fits(entries[name], hint):
            words = f"one of {', '.join(get_args(hint))}" if get_origin(hint) is Literal else hint
            raise ValueError(
                f"{path}: {name} must be {getattr(words, '__name__', words)}, got {entries[name]!r}"
            )
    made = {
        name: kinds[name](**parts(kinds[name], value, path)) if name in kinds else value
        for name, value in entries.items()
    }
    return made | ({"table": Path(made["table"])} if made.get("table") else {})


def as_spelled(value: str, hint: Any) -> str:
    """A name of the catalogue may be written with dashes."""
    return spelled(value) if spelled(value) in get_args(hint) else value


def fits(value: Any, hint: Any) -> bool:
    """Whether JSON's value is one of a field's type."""
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if get_args(hint):
        return any(fits(value, one) for one in get_args(hint))
    return type(value) in {float: (int, float), Path: (str,)}.get(hint, (hint,))


def folder_of(where: str | Path) -> Path:
    """A reference run by its name, unless there is a file or a run of that name; else the path."""
    path = Path(where)
    there = path.is_file() or holds_run(path)
    return RUNS / str(where) if str(where) in names() and not there else path


def holds_run(folder: Path) -> bool:
    return (folder / "recipe.json").exists()


def names() -> list[str]:
    return sorted(path.parent.name for path in RUNS.glob("*/recipe.json"))
