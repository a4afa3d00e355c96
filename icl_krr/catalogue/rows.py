"""What a row of the catalogue says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

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


@dataclass(frozen=True)
class Kernel:
    """A kernel: its `name`, its class, and its `kind`, which solvers ask for.

    `kind` is "positive" (softmax heads can weigh values by it) or "featured" (its features are
    known, so that linear attention applies it).

    Raises ValueError for another kind.

    >>> Kernel("gaussian", "icl_krr.kernels:Gaussian", "positive").kind
    'positive'
    """

    name: str
    made_by: str
    kind: str

    def __post_init__(self):
        check_kind(self.kind, KINDS[1:])
        check_paths(self.made_by)


@dataclass(frozen=True)
class Solver:
    r"""A solver: what runs it, what it must be told, and what is to be expected of it.

    - `label`: a few letters, the column of a matrix.
    - `construction`, `oracle`: the functions, as "module:function".
    - `kernels`: the kind of kernels it takes, or "any".
    - `told`: a tuple of the keywords that both must be told of a task beside the kernel. The value
      is that of the function of this name in `icl_krr.experiments.shared.told`, or of a
      "module:function" of your own, whose name is the keyword: (kernel, task, ridge) to the value.
    - `options`: keywords that are always the same, such as the form of conjugate gradient.
    - `states`: slots that hold the oracle's field of the same name after every step.
    - `blocks`: blocks a step for each kind of attention that it runs on.
    - `sums`: whether it takes inner products, whose rounding grows from step to step.
    - `iterates`: whether it takes steps; Nadaraya-Watson does not.
    - `one_task`: whether its weights are made for a single task.
    - `fitted`: parameters that `identify` fits beside the bandwidth: all that the oracle needs but
      its steps; None for no candidate.
    - `arguments`: the "module:function" from fitted values to the oracle's keywords, where they are
      not the values themselves, as for a `spectrum`.
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
        named = (self.arguments, self.rate, self.expected)
        check_paths(self.construction, self.oracle, *(path for path in named if path is not None))
        if not isinstance(self.told, tuple):
            raise ValueError(f"told must be a tuple of names, got {self.told!r}")
        for attention in self.blocks:
            if attention not in ("linear", "softmax"):
                raise ValueError(
                    f"blocks must be of linear or softmax attention, got {attention!r}"
                )


@dataclass(frozen=True)
class Axis:
    """An axis of a sweep: `lines` to compare and `values` to go through, where none are given.

    `value` names the rule that a value must obey (`icl_krr.experiments.sweep.values`). Lines are
    solvers, if `solvers`, so that any of them may be named. `kernel` is the default one, and
    others of its kind may be named; `num_features` is the default p of its tasks. `made_by` is
    the "module:object" that builds and plots it, by default `AXIS` in the file of its name in
    `icl_krr.experiments.sweep.axes`.

    >>> Axis("ridge", ("chebyshev",), (0.1, 1.0), "positive").made_by
    'icl_krr.experiments.sweep.axes.ridge:AXIS'
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

    >>> Family("sinusoids", "icl_krr.tasks:Sinusoids", {"frequency": "frequency"}).name
    'sinusoids'
    """

    name: str
    made_by: str
    fields: Mapping[str, str] = field(default_factory=dict, hash=False)


def check_kind(kind: str, kinds: tuple[str, ...]) -> None:
    if kind not in kinds:
        raise ValueError(f"kind must be one of {', '.join(kinds)}, got {kind!r}")


def check_paths(*paths: str) -> None:
    for path in paths:
        if not all(path.partition(":")):
            raise ValueError(f"an object must be named as 'module:object', got {path!r}")
