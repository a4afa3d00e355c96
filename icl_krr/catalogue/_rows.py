"""The types of the rows in the catalogue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

KINDS = ("any", "positive", "featured", "bounded")
NOTHING, FAMILY, TASK = "nothing", "the family", "this task"
"""What a model is told besides the kernel: nothing; what all tasks of a family share, such as the
ridge; or what only the supports of this task determine, such as the spectrum of its kernel matrix.
"""


class Box(NamedTuple):
    """Search range of a fitted parameter, from $10^a |K|_F^s$ to $10^b |K|_F^s$.

    The fit starts from several points of this range. Later, it may leave the range, except above
    the upper end of a `closed` one, which must have `power` 0.

    Args:
        low, high: $a$ and $b$, logarithms to base 10 of the ends.
        power: $s$, power of the Frobenius norm of the kernel matrix $K$, which adapts the range to
            the scale of the data.
        closed: whether the upper end is an upper bound on the fitted parameter.

    >>> Box(-5, 0.5, power=1).closed
    False
    """

    low: float
    high: float
    power: int = 0
    closed: bool = False


@dataclass(frozen=True)
class Kernel:
    """A row for a kernel.

    Args:
        name: name of the kernel, with underscores.
        made_by: path of the kernel's class as "module:object".
        kind: "positive" if softmax attention can use the kernel values as attention weights, or
            "featured" if linear attention can apply the kernel, as its feature map is known.
        short_names: other names that are accepted wherever a user gives the name.
        bounded: whether no value of the kernel exceeds 1.
        usual: whether the kernel is tried where a user names none, which takes time.

    >>> Kernel("gaussian", "icl_krr.kernels:Gaussian", "positive").kind
    'positive'
    """

    name: str
    made_by: str
    kind: str
    short_names: tuple[str, ...] = ()
    bounded: bool = False
    usual: bool = True

    def __post_init__(self):
        check_kind("kind", self.kind, KINDS[1:3])
        check_paths(self.made_by)


@dataclass(frozen=True)
class Solver:
    """A row for a solver: its functions, their keyword arguments, and its properties.

    The oracle computes all iterates of a task, and the construction builds a transformer with the
    same. Both take the same keywords.

    Args:
        name: name of the solver, with underscores.
        label: short label of a few letters, the column heading in a confusion matrix, accepted
            wherever a user gives the name.
        construction, oracle: paths of these functions as "module:function". Default: those of this
            library with the name of the row; if the oracle is an `icl_krr.solver`, the construction
            is compiled from it.
        kernels: kind of the kernels that the solver accepts, "positive", "featured", "bounded" (a
            positive kernel with values <= 1) or "any" (default).
        told: names of the keyword arguments whose values an experiment computes from the kernel,
            the task and the ridge; default: ("ridge",). `icl_krr.tabular._build` has one
            function of (kernel, task, ridge) for each name. For a new keyword, give
            "module:function" of your own function with the name of the keyword.
        options: keyword arguments with fixed values, such as {"form": "fused"}.
        states: names of slots. After every step, each slot equals the field of the oracle with the
            same name.
        blocks: blocks per step, {kind of attention: number}, for each kind that can run the solver.
        sums: whether the solver computes inner products, whose rounding errors grow from step to
            step.
        iterates: whether the solver has steps. Nadaraya-Watson has none.
        causal: whether each token sees only the supports before it.
        sequential: whether a step takes in one support, so that the answer is known after the last
            support only.
        one_task: whether the weights are computed for one task and work only for it.
        fitted: {parameter: `Box`} for the parameters that `identify` fits besides the bandwidth,
            all parameters of the oracle except its number of steps. Default None: it is no
            candidate.
        arguments: path of the function that turns the fitted values into keywords of the oracle,
            such as `spectrum`; default None: they are its keywords.
        contains: names of the solvers that are special cases of this solver.
        variant_of: name of the solver of which this one is a variant. A comparison of solvers has
            that solver, and its variants only if a user names them.
        rate: path of a function of (low, high, t) that bounds the A-norm of the error after t
            steps, relative to the initial error, for eigenvalues in [low, high].
        expected: path of an object that predicts what the model computes after the ablation of each
            of its parts (`icl_krr.experiments._ablate`).
        aliases: names that are accepted besides name and label.
        source: text of the user's file that has this solver.

    >>> Solver("mine", "M", oracle="me:solve", states=("alpha",)).kernels
    'any'
    """

    name: str
    label: str
    construction: str = ""
    oracle: str = ""
    kernels: str = "any"
    told: tuple[str, ...] = ("ridge",)
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    states: tuple[str, ...] = ("alpha", "r", "p", "prediction")
    blocks: Mapping[str, int] = field(default_factory=dict, hash=False)
    sums: bool = False
    iterates: bool = True
    causal: bool = False
    sequential: bool = False
    one_task: bool = False
    fitted: Mapping[str, Box] | None = field(default=None, hash=False)
    arguments: str | None = None
    contains: tuple[str, ...] = ()
    variant_of: str = ""
    rate: str | None = None
    expected: str | None = None
    aliases: tuple[str, ...] = ()
    source: str = ""

    @property
    def short_names(self) -> tuple[str, ...]:
        """The names that are accepted in place of `name`."""
        return (self.label, *self.aliases)

    @property
    def keywords(self) -> tuple[str, ...]:
        """The names of the keyword arguments in `told`, without paths."""
        return tuple(name.rpartition(":")[2] for name in self.told)

    @property
    def call(self) -> str:
        """The call without kernel, task and sizes: "heavy_ball(..., ridge=..., spectrum=...)"."""
        needs = [f"{name}=..." for name in self.keywords]
        fixed = [f"{name}={value!r}" for name, value in self.options.items()]
        return f"{self.construction.rpartition(':')[2]}({', '.join(['...', *needs, *fixed])})"

    @property
    def knows(self) -> str:
        """What a model with this solver is told: NOTHING, about the FAMILY, or about this TASK."""
        of_task = {*self.told} - {"ridge", "ridges", "num_supports"}
        return TASK if of_task else FAMILY if self.told else NOTHING

    def __post_init__(self):
        for room in ("construction", "oracle"):
            path = getattr(self, room) or f"icl_krr.{room.replace('oracle', 'solver')}s:{self.name}"
            object.__setattr__(self, room, path)
        check_kind("kernels", self.kernels, KINDS)
        named = (self.arguments, self.rate, self.expected)
        check_paths(self.construction, self.oracle, *(path for path in named if path is not None))
        if not isinstance(self.told, tuple):
            raise ValueError(f"told must be a tuple of names, got {self.told!r}")
        for attention in self.blocks:
            if attention not in ("linear", "softmax"):
                raise ValueError(f"keys of blocks must be 'linear' or 'softmax', got {attention!r}")


@dataclass(frozen=True)
class Axis:
    """A row for an axis of a sweep.

    Args:
        name: name of the axis, with underscores.
        made_by: path of its `icl_krr.experiments._sweep.axis.Axis` as "module:object".

    >>> Axis("noise", "my_package:noise").name
    'noise'
    """

    name: str
    made_by: str


@dataclass(frozen=True)
class Family:
    """A row for a family of tasks.

    Args:
        name: name of the family, with underscores.
        made_by: path of the sampler's class as "module:object". The class takes the keywords
            num_supports, num_queries, num_features, inputs and noise, and the keywords in `fields`.
            If `fields` is empty, it is a function that takes the training recipe and these keywords
            and returns a sampler.
        fields: {field of the training recipe: keyword of the sampler}.
        read: fields of the training recipe that the function `made_by` reads.

    >>> Family("sinusoids", "icl_krr.tasks:Sinusoids", {"frequency": "frequency"}).name
    'sinusoids'
    """

    name: str
    made_by: str
    fields: Mapping[str, str] = field(default_factory=dict, hash=False)
    read: tuple[str, ...] = ()

    @property
    def takes(self) -> tuple[str, ...]:
        """Fields of the training recipe that only some families take."""
        return (*self.fields, *self.read)


def check_kind(name: str, kind: str, kinds: tuple[str, ...]) -> None:
    if kind not in kinds:
        raise ValueError(f"{name} must be one of {', '.join(kinds)}, got {kind!r}")


def check_paths(*paths: str) -> None:
    for path in paths:
        if not all(path.partition(":")):
            raise ValueError(f"path must have the form 'module:object', got {path!r}")


@dataclass(frozen=True)
class Battery:
    """A row for a battery: how its tasks differ from those that a model was trained on.

    Args:
        name: name of the battery, with underscores.
        supports: factor of the number of supports.
        noise: factor of the variance of the noise.
        condition: ratio of the factors of the first and the last feature, which fall geometrically
            from 1.
        x, y: factors of all inputs and of all outputs.
        repeated: whether the last half of the supports copies the first half.

    >>> Battery("more_supports", supports=2).noise
    1
    """

    name: str
    supports: float = 1
    noise: float = 1
    condition: float = 1
    x: float = 1
    y: float = 1
    repeated: bool = False
