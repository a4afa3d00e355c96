"""The types of the entries in the catalogue."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

KINDS = ("any", "positive", "featured", "bounded")
NONE, TASK_FAMILY, THIS_TASK = "none", "task family", "this task"
"""What a model requires besides the kernel: nothing; what all tasks of a family share, such as the
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
class KernelEntry:
    """An entry for a kernel.

    Args:
        name: name of the kernel, with underscores.
        kind: "positive" if softmax attention can use the kernel values as attention weights, or
            "featured" if linear attention can apply the kernel, as its feature map is known.
        short_names: other names that are accepted wherever a user gives the name.
        bounded: whether no value of the kernel exceeds 1.
        usual: whether the kernel is tried where a user names none, which takes time.
        kernel: class of the kernel. Default None: that of `icl_krr.kernels` with this name.

    >>> KernelEntry("gaussian", "positive").kind
    'positive'
    """

    name: str
    kind: str
    short_names: tuple[str, ...] = ()
    bounded: bool = False
    usual: bool = True
    kernel: type | None = None

    def __post_init__(self):
        check_kind("kind", self.kind, KINDS[1:3])


@dataclass(frozen=True)
class SolverEntry:
    """An entry for a solver: its keyword arguments and its properties.

    The solver computes all iterates of a task, and the construction builds a transformer with the
    same iterates. Both take the same keywords.

    Args:
        name: name of the solver, with underscores.
        label: short label of a few letters, the column heading in a confusion matrix, accepted
            wherever the user passes the name.
        function: name of the function in `icl_krr.solvers` and `icl_krr.constructions`. Default:
            the name of the entry.
        solver: the function itself, if it is not one of `icl_krr.solvers`: an `icl_krr.solver`,
            from which the construction is compiled.
        kernels: kind of the kernels that the solver accepts, "positive", "featured", "bounded" (a
            positive kernel with values <= 1) or "any" (default).
        required_inputs: names of the keyword arguments whose values an experiment computes from the
            kernel, the task and the ridge; default: ("ridge",). For a new keyword, pass a function
            of (kernel, task, ridge) with the name of the keyword.
        options: keyword arguments with fixed values, such as {"form": "fused"}.
        states: names of slots. After every step, each slot equals the field of the solver's result
            with the same name.
        blocks: blocks per step, {kind of attention: number}, for each kind that can run the solver.
        sums: whether the solver computes inner products, whose rounding errors grow from step to
            step.
        iterates: whether the solver has steps. Nadaraya-Watson has none.
        causal: whether each token sees only the supports before it.
        sequential: whether a step takes in one support, so that the prediction is complete after
            the last support only.
        one_task: whether the weights are computed for one task and work only for it.
        fitted: {parameter: `Box`} for the parameters that `identify` fits besides the bandwidth.
            These are all parameters of the solver except its number of steps; in place of
            `spectrum` they may be "high" and "low_over_high". Default None: it is no candidate.
        keywords_of: function that turns the fitted values into keywords of the solver. Default
            None: they are its keywords.
        contains: names of the solvers that are special cases of this solver.
        variant_of: name of the solver of which this one is a variant. A comparison of solvers has
            that solver, and its variants only if a user names them.
        rate: function of (low, high, t) that bounds the A-norm of the error after t steps, relative
            to the initial error, for eigenvalues in [low, high]. Default None: that of
            `icl_krr.theory.RATES`, if it has one.
        aliases: names that are accepted besides name and label.
        source: text of the user's file that has this solver.

    >>> SolverEntry("mine", "M", states=("alpha",)).kernels
    'any'
    """

    name: str
    label: str
    function: str = ""
    solver: Any = None
    kernels: str = "any"
    required_inputs: tuple[str | Callable[..., Any], ...] = ("ridge",)
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    states: tuple[str, ...] = ("alpha", "r", "p", "prediction")
    blocks: Mapping[str, int] = field(default_factory=dict, hash=False)
    sums: bool = False
    iterates: bool = True
    causal: bool = False
    sequential: bool = False
    one_task: bool = False
    fitted: Mapping[str, Box] | None = field(default=None, hash=False)
    keywords_of: Callable[..., Any] | None = None
    contains: tuple[str, ...] = ()
    variant_of: str = ""
    rate: Callable[..., Any] | None = None
    aliases: tuple[str, ...] = ()
    source: str = ""

    @property
    def short_names(self) -> tuple[str, ...]:
        """The names that are accepted in place of `name`."""
        return (self.label, *self.aliases)

    @property
    def keywords(self) -> tuple[str, ...]:
        """The names of the keyword arguments in `required_inputs`."""
        return tuple(key if isinstance(key, str) else key.__name__ for key in self.required_inputs)

    @property
    def call(self) -> str:
        """The call without kernel, task and sizes: "heavy_ball(..., ridge=..., spectrum=...)"."""
        needs = [f"{name}=..." for name in self.keywords]
        fixed = [f"{name}={value!r}" for name, value in self.options.items()]
        return f"{self.function}({', '.join(['...', *needs, *fixed])})"

    @property
    def input_scope(self) -> str:
        """What `required_inputs` depend on: NONE, the TASK_FAMILY or THIS_TASK."""
        if {*self.keywords} - {"ridge", "ridges", "num_supports"}:
            return THIS_TASK
        return TASK_FAMILY if self.required_inputs else NONE

    def __post_init__(self):
        object.__setattr__(self, "function", self.function or self.name)
        check_kind("kernels", self.kernels, KINDS)
        if not isinstance(self.required_inputs, tuple):
            rule = f"required_inputs must be a tuple of names, got {self.required_inputs!r}"
            raise ValueError(rule)
        for attention in self.blocks:
            if attention not in ("linear", "softmax"):
                raise ValueError(f"keys of blocks must be 'linear' or 'softmax', got {attention!r}")


@dataclass(frozen=True)
class AxisEntry:
    """An entry for an axis of a sweep.

    Args:
        name: name of the axis, with underscores.
        axis: what `icl_krr.experiments.along` makes of a function. Default None: the one of this
            library with this name.

    >>> AxisEntry("noise").name
    'noise'
    """

    name: str
    axis: Any = None


@dataclass(frozen=True)
class FamilyEntry:
    """An entry for a family of tasks.

    Args:
        name: name of the family, with underscores.
        fields: {field of the training recipe: keyword of the sampler}. If it is empty, `sampler` is
            a function that takes the training recipe and the keywords below and returns a sampler.
        recipe_fields: fields of the training recipe that this function reads.
        sampler: class of the sampler, which takes the keywords num_supports, num_queries,
            num_features, inputs and noise, and those in `fields`. Default None: the one of this
            library.

    >>> FamilyEntry("sinusoids", {"frequency": "frequency"}).name
    'sinusoids'
    """

    name: str
    fields: Mapping[str, str] = field(default_factory=dict, hash=False)
    recipe_fields: tuple[str, ...] = ()
    sampler: Callable[..., Any] | None = None

    @property
    def takes(self) -> tuple[str, ...]:
        """Fields of the training recipe that only some families take."""
        return (*self.fields, *self.recipe_fields)


def check_kind(name: str, kind: str, kinds: tuple[str, ...]) -> None:
    if kind not in kinds:
        raise ValueError(f"{name} must be one of {', '.join(kinds)}, got {kind!r}")


@dataclass(frozen=True)
class ShiftEntry:
    """An entry for a distribution shift: how tasks differ from those that a model was trained on.

    Args:
        name: name of the shift, with underscores.
        supports: factor of the number of supports.
        noise: factor of the variance of the noise.
        condition: ratio of the factors of the first and the last feature, which fall geometrically
            from 1.
        x, y: factors of all inputs and of all outputs.
        repeated: whether the last half of the supports copies the first half.

    >>> ShiftEntry("more_supports", supports=2).noise
    1
    """

    name: str
    supports: float = 1
    noise: float = 1
    condition: float = 1
    x: float = 1
    y: float = 1
    repeated: bool = False


E = TypeVar("E", KernelEntry, SolverEntry, AxisEntry, FamilyEntry, ShiftEntry)


def by_name(*entries: E) -> dict[str, E]:
    """A table of the catalogue."""
    return {entry.name: entry for entry in entries}
