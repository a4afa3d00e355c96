"""The catalogue: what can be asked for by name, one row each; no JAX here.

Kernels, solvers, axes of sweeps and families of tasks are rows of a table, with the functions
behind them named as "module:function" and imported when somebody runs them. Command line, sweeps,
identification, ablations, the conformance tests and the README's tables are made from the rows.
Names are spelled with underscores; the command line takes dashes as well. `register` adds a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, NamedTuple

__all__ = [
    "ATTENTIONS",
    "AXES",
    "FAMILIES",
    "KERNELS",
    "SITES",
    "SOLVERS",
    "SUITES",
    "Axis",
    "Box",
    "Family",
    "Kernel",
    "Solver",
    "find",
    "kernel_class",
    "load",
    "make_kernel",
    "name_of",
    "names",
    "register",
    "spelled",
    "taken",
]

KINDS = ("any", "positive", "featured")


class Box(NamedTuple):
    """Where a fitted parameter is first looked for: 10^low to 10^high times |K|_F^power.

    If `closed` it is never larger than that.

    >>> Box(-5, 0.5, power=1).closed
    False
    """

    low: float
    high: float
    power: int = 0
    closed: bool = False


RIDGE, STEP = Box(-5, 0.5, 1), Box(-1.5, 0.7, -1)


@dataclass(frozen=True)
class Kernel:
    """A kernel: its `name`, its class, and its `kind`, which solvers ask for.

    `kind` is "positive" (softmax heads can weigh values by it) or "featured" (its features are
    known, so that linear attention applies it).

    Raises ValueError for another kind.

    >>> load(Kernel("gaussian", "icl_krr.kernels:Gaussian", "positive").made_by).__name__
    'Gaussian'
    """

    name: str
    made_by: str
    kind: str

    def __post_init__(self):
        check_kind(self.kind, KINDS[1:])


@dataclass(frozen=True)
class Solver:
    r"""A solver: what runs it, what it must be told, and what is to be expected of it.

    - `label`: a few letters, the column of a matrix.
    - `construction`, `oracle`: the functions, as "module:function".
    - `kernels`: the kind of kernels it takes, or "any".
    - `told`: what both must be told of a task beside the kernel, by name; each is a function of
      `icl_krr.experiments.shared.told` or given as "module:function", (kernel, task, ridge) to
      its value.
    - `options`: keywords that are always the same, such as the form of conjugate gradient.
    - `states`: slots that hold the oracle's field of the same name after every step.
    - `blocks`: blocks a step for each kind of attention that it runs on.
    - `sums`: whether it takes inner products, whose rounding grows from step to step.
    - `iterates`: whether it takes steps; Nadaraya-Watson does not.
    - `one_task`: whether its weights are made for a single task.
    - `fitted`: parameters that `identify` fits beside the bandwidth; None for no candidate.
    - `arguments`: (fitted values) to the oracle's keywords, if they are not the values themselves.
    - `contains`: solvers that it is for certain values of its parameters.
    - `rate`: the bound on its error in the A-norm after t steps, a function of (low, high, t).
    - `expected`: what it computes without each of its parts (`icl_krr.experiments.ablate`).

    Raises ValueError for an unknown kind of kernels.

    >>> Solver("mine", "M", "me:build", "me:solve", states=("alpha",)).kernels
    'any'
    """

    name: str
    label: str
    construction: str
    oracle: str
    kernels: str = "any"
    told: tuple[str, ...] = ("ridge",)
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    states: tuple[str, ...] = ("alpha", "r", "p", "prediction")
    blocks: Mapping[str, int] = field(default_factory=dict, hash=False)
    sums: bool = False
    iterates: bool = True
    one_task: bool = False
    fitted: Mapping[str, Box] | None = field(default=None, hash=False)
    arguments: str | None = None
    contains: tuple[str, ...] = ()
    rate: str | None = None
    expected: str | None = None

    def __post_init__(self):
        check_kind(self.kernels, KINDS)


@dataclass(frozen=True)
class Axis:
    """An axis of a sweep: `lines` to compare and `values` to go through, where none are given.

    `value` names the rule that a value must obey (`icl_krr.experiments.sweep.values`). Lines are
    solvers, if `solvers`, so that any of them may be named. `kernel` is the default one, and
    others of its kind may be named; `num_features` is the default p of its tasks. `made_by` is
    the "module:object" that builds and plots it, by default `AXIS` in the file of its name in
    `icl_krr.experiments.sweep.axes`.

    >>> AXES["width"].num_features
    32
    """

    name: str
    lines: tuple[str, ...]
    values: tuple[Any, ...]
    value: str
    solvers: bool = False
    kernel: str = "exponential"
    num_features: int = 2
    made_by: str = ""

    def __post_init__(self):
        if not self.made_by:
            where = f"icl_krr.experiments.sweep.axes.{self.name}:AXIS"
            object.__setattr__(self, "made_by", where)


@dataclass(frozen=True)
class Family:
    """A family of tasks: what draws them, from the fields of a recipe.

    `made_by` is a sampler's class, which takes the sizes, the inputs, the noise and `fields`
    {field of the recipe: its own}; where there are none it is a function of the recipe and of these
    keywords.

    >>> FAMILIES["decision_tree"].fields["tree_depth"]
    'depth'
    """

    name: str
    made_by: str
    fields: Mapping[str, str] = field(default_factory=dict, hash=False)


def check_kind(kind: str, kinds: tuple[str, ...]) -> None:
    if kind not in kinds:
        raise ValueError(f"kind must be one of {', '.join(kinds)}, got {kind!r}")


def own(name: str) -> tuple[str, str]:
    """Construction and oracle of the library's own, which have one name."""
    return f"icl_krr.constructions:{name}", f"icl_krr.solvers:{name}"


CG, PCG = own("conjugate_gradient"), own("preconditioned_conjugate_gradient")
SPECTRAL = ("ridge", "spectrum")
FIELDS = ("alpha", "r", "prediction")
EXPECTED = "icl_krr.experiments.ablate.expected"

KERNELS = {
    row.name: row
    for row in (
        Kernel("linear", "icl_krr.kernels:Linear", "featured"),
        Kernel("exponential", "icl_krr.kernels:Exponential", "positive"),
        Kernel("gaussian", "icl_krr.kernels:Gaussian", "positive"),
    )
}

SOLVERS = {
    row.name: row
    for row in (
        Solver(
            "nadaraya_watson",
            "NW",
            *own("nadaraya_watson"),
            kernels="positive",
            told=(),
            states=("prediction",),
            blocks={"softmax": 1},
            iterates=False,
            fitted={},
        ),
        Solver(
            "gradient_descent",
            "GD",
            *own("gradient_descent"),
            told=SPECTRAL,
            states=FIELDS,
            blocks={"linear": 1, "softmax": 1},
            fitted={"ridge": RIDGE, "step_size": STEP},
            rate="icl_krr.theory:gradient_descent_rate",
        ),
        Solver(
            "gradient_descent_in_alpha",
            "GDIA",
            *own("gradient_descent_in_alpha"),
            told=SPECTRAL,
            states=FIELDS,
            blocks={"linear": 2, "softmax": 2},
            fitted={"ridge": RIDGE, "step_size": Box(-1.5, 1.3, -2)},
        ),
        Solver(
            "richardson",
            "RIC",
            *own("richardson"),
            kernels="positive",
            states=("alpha", "prediction"),
            blocks={"softmax": 1},
            fitted={"ridge": RIDGE, "step_size": Box(-1, 0.3, 0, True)},
            expected=f"{EXPECTED}:RICHARDSON",
        ),
        Solver(
            "heavy_ball",
            "HB",
            *own("heavy_ball"),
            told=SPECTRAL,
            blocks={"linear": 1, "softmax": 1},
            fitted={"ridge": RIDGE, "step_size": STEP, "momentum": Box(-2, 0, 0, True)},
            contains=("gradient_descent",),
            rate="icl_krr.theory:heavy_ball_rate",
        ),
        Solver(
            "chebyshev",
            "CHE",
            *own("chebyshev"),
            told=SPECTRAL,
            blocks={"linear": 1, "softmax": 1},
            fitted={"ridge": RIDGE, "high": Box(-1, 0.5, 1), "low_over_high": Box(-5, 0, 0, True)},
            arguments="icl_krr.probes.candidates:chebyshev_arguments",
            contains=("gradient_descent",),
            rate="icl_krr.theory:chebyshev_rate",
            expected=f"{EXPECTED}:CHEBYSHEV",
        ),
        Solver(
            "conjugate_gradient",
            "CG",
            *CG,
            blocks={"linear": 5, "softmax": 7},
            sums=True,
            fitted={"ridge": RIDGE},
            rate="icl_krr.theory:conjugate_gradient_rate",
            expected=f"{EXPECTED}:CONJUGATE_GRADIENT",
        ),
        Solver(
            "fused_conjugate_gradient",
            "FCG",
            *CG,
            options={"form": "fused"},
            blocks={"linear": 3, "softmax": 5},
            sums=True,
        ),
        Solver(
            "pipelined_conjugate_gradient",
            "PiCG",
            *CG,
            options={"form": "pipelined"},
            blocks={"linear": 2, "softmax": 4},
            sums=True,
        ),
        Solver(
            "jacobi_conjugate_gradient",
            "JCG",
            *PCG,
            blocks={"linear": 5, "softmax": 8},
            sums=True,
            fitted={"ridge": RIDGE},
        ),
        Solver(
            "nystrom_conjugate_gradient",
            "NCG",
            *PCG,
            kernels="featured",
            told=("ridge", "preconditioner"),
            blocks={"linear": 6},
            sums=True,
            one_task=True,
        ),
        Solver(
            "newton_schulz",
            "NS",
            *own("newton_schulz"),
            kernels="featured",
            told=SPECTRAL,
            states=("alpha", "prediction"),
            blocks={"linear": 2},
            fitted={"ridge": RIDGE, "scale": Box(-1.5, 0.5, -1)},
            arguments="icl_krr.probes.candidates:newton_schulz_arguments",
        ),
        Solver(
            "gradient_descent_plus_plus",
            "GD++",
            *own("gradient_descent_plus_plus"),
            kernels="featured",
            told=("step_size", "curvature"),
            states=("r", "prediction"),
            blocks={"linear": 1},
            one_task=True,
        ),
    )
}

TUNED = ("conjugate_gradient", "chebyshev", "richardson", "nadaraya_watson")
AXES = {
    row.name: row
    for row in (
        Axis(
            "depth",
            (
                "conjugate_gradient",
                "chebyshev",
                "heavy_ball",
                "gradient_descent",
                "gradient_descent_in_alpha",
                "richardson",
            ),
            (),
            "step",
            solvers=True,
        ),
        Axis(
            "width",
            ("best", "orthonormal", "gaussian", "coordinates", "landmarks"),
            (1, 2, 4, 6, 8, 12, 16, 20, 24, 28, 32),
            "feature",
            kernel="linear",
            num_features=32,
        ),
        Axis("ridge", TUNED, tuple(10.0**k for k in range(-3, 4)), "positive", solvers=True),
        Axis(
            "temperature",
            TUNED,
            (0.2, 0.3, 0.5, 0.7, 1.0, 2.0, 5.0, 10.0),
            "temperature",
            solvers=True,
        ),
        Axis("context", TUNED, (4, 8, 16, 32, 48, 64), "support", solvers=True),
        Axis(
            "features",
            ("positive", "positive, orthogonal", "trigonometric", "landmarks"),
            (8, 16, 32, 64),
            "feature_count",
        ),
        Axis(
            "precision",
            ("conjugate_gradient", "chebyshev", "gradient_descent", "richardson"),
            ("bfloat16", "float32", "float64"),
            "floating",
            solvers=True,
        ),
        Axis(
            "arithmetic",
            ("chebyshev", "richardson"),
            (16, 32, 64, 128, 256),
            "relu_width",
            solvers=True,
            kernel="gaussian",
        ),
    )
}

SITES = ("head", "unit", "slot", "role")
"""Kinds of places in a model that can be taken out."""

FAMILIES = {
    row.name: row
    for row in (
        Family("gaussian_process", "icl_krr.experiments.shared.families:gaussian_process"),
        Family(
            "linear",
            "icl_krr.tasks:LinearRegression",
            {"condition": "condition", "sparsity": "sparsity"},
        ),
        Family("relu_network", "icl_krr.tasks:ReLUNetwork", {"hidden": "hidden"}),
        Family("decision_tree", "icl_krr.tasks:DecisionTree", {"tree_depth": "depth"}),
        Family("sinusoids", "icl_krr.tasks:Sinusoids", {"frequency": "frequency"}),
        Family("table", "icl_krr.experiments.shared.families:table"),
    )
}

ATTENTIONS = ("softmax", "linear")
"""Kinds of attention."""

SUITES = {
    "forward": "icl_krr.bench.forwards:forwards",
    "gradient": "icl_krr.bench.steps:gradients",
    "attention": "icl_krr.bench.attention:attention",
    "context": "icl_krr.bench.attention:linear_context",
    "exact": "icl_krr.bench.oracles:exact",
    "iterative": "icl_krr.bench.oracles:iterative",
    "training": "icl_krr.bench.steps:training",
    "startup": "icl_krr.bench.startup:startup",
    "profile": "icl_krr.bench.profile:profile",
    "scaling": "icl_krr.bench.forwards:scaling",
}
"""What is timed against what."""

TABLES = {Kernel: KERNELS, Solver: SOLVERS, Axis: AXES, Family: FAMILIES}


def register(row: Kernel | Solver | Axis | Family) -> None:
    """Add a row to its table.

    A package that does so when it is imported, and names itself under the entry points "icl_krr",
    is imported with the catalogue, so that the command line knows its rows, too.

    Raises ValueError for a name that is taken, or that is not spelled with underscores.

    >>> register(Kernel("linear", "icl_krr.kernels:Linear", "featured"))
    Traceback (most recent call last):
    ValueError: name must be a new one, got 'linear'
    """
    table: dict[str, Any] = TABLES[type(row)]  # pyright: ignore[reportAssignmentType]
    if not row.name.isidentifier():
        raise ValueError(f"name must be letters, digits and underscores, got {row.name!r}")
    if row.name in table:
        raise ValueError(f"name must be a new one, got {row.name!r}")
    table[row.name] = row


def load(path: str) -> Any:
    """The object that a row names as "module:object".

    >>> load("math:pi") > 3
    True
    """
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


def spelled(name: str) -> str:
    """A name as the tables spell it.

    >>> spelled("gradient-descent")
    'gradient_descent'
    """
    return name.replace("-", "_")


def find(what: str, table: Mapping[str, Any], name: str) -> Any:
    """The row of this name; ValueError that lists all names if there is none.

    >>> find("kernel", KERNELS, "gaussian").kind
    'positive'
    """
    row = table.get(spelled(name)) if isinstance(name, str) else None
    if row is None:
        raise ValueError(f"{what} must be one of {', '.join(map(repr, table))}, got {name!r}")
    return row


def kernel_class(name: str) -> Any:
    """The class of a kernel.

    >>> kernel_class("gaussian").bandwidth
    'lengthscale'
    """
    return load(find("kernel", KERNELS, name).made_by)


def make_kernel(name: str, values: Mapping[str, Any]) -> Any:
    """The kernel of this name whose bandwidth is among the values; as its class has it if not.

    >>> make_kernel("exponential", {"temperature": 2.0}).temperature
    2.0
    """
    made_by = kernel_class(name)
    value = values.get(made_by.bandwidth)
    return made_by() if value is None else made_by.of_bandwidth(value)


def name_of(kernel: Any) -> str:
    """The name of a kernel's row; that of its class where it has none."""
    names = [name for name in KERNELS if kernel_class(name) is type(kernel)]
    return names[0] if names else type(kernel).__name__


def taken(solver: str) -> tuple[str, ...]:
    """Names of the kernels that a solver takes.

    >>> taken("richardson")
    ('exponential', 'gaussian')
    """
    kind = find("solver", SOLVERS, solver).kernels
    return tuple(name for name, row in KERNELS.items() if kind in ("any", row.kind))


def names() -> frozenset[str]:
    """Every name of every table."""
    return frozenset({*KERNELS, *SOLVERS, *AXES, *FAMILIES})


for point in entry_points(group="icl_krr"):
    point.load()
