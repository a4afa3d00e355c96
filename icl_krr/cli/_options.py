"""Types of options, and settings that several commands share.

Neither this file nor those of the commands import JAX when they are imported, so that `--help` is
fast.
"""

from collections.abc import Callable, Iterable
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin

import tyro

from .._core.messages import normalised, unknown_name
from ..catalogue import SOLVERS, spelled
from ..catalogue._choices import KernelName, SolverName

T = TypeVar("T")
WORDS = tyro.constructors.ConstructorRegistry()
"""The types that the command line adds to those of tyro."""


@WORDS.primitive_rule
def words(info: Any) -> Any:
    """Read a number or Literal[...], also in a tuple or with None, in any spelling of its words.

    tyro itself compares letter by letter, and says neither what is meant nor what a number is.
    """
    hints = get_args(info.type) if get_origin(info.type) in (Union, UnionType) else (info.type,)
    (hint, *others) = [hint for hint in hints if hint is not NoneType] or [None]
    many, optional = get_origin(hint) is tuple, NoneType in hints
    literal = get_args(hint)[0] if many else hint
    if others or (literal not in NUMBERS and get_origin(literal) is not Literal):
        return None
    choices = get_args(literal)
    read = partial(number, literal) if literal in NUMBERS else reader(choices)

    def instance(arguments: list[str]) -> Any:
        if optional and arguments == ["None"]:
            return None
        return tuple(map(read, arguments)) if many else read(arguments[0])

    none = "{None}|" if optional else ""
    one = f"{{{','.join(choices if many or not optional else ('None', *choices))}}}"
    if literal in NUMBERS:
        one = literal.__name__.upper() if many else f"{none}{literal.__name__.upper()}"
    metavar = f"{none}[{one} [{one} ...]]"
    return tyro.constructors.PrimitiveConstructorSpec(
        nargs="*" if many else 1,
        metavar=metavar if many else one,
        instance_from_str=instance,
        is_instance=lambda value: value is None or isinstance(value, (str, int, float, tuple)),
        str_from_instance=lambda v: [*map(str, v if isinstance(v, tuple) else (v,))],
    )


NUMBERS = {int: "an integer", float: "a number"}
"""The types of numbers of options."""


def number(kind: type, argument: str) -> Any:
    try:
        return kind(argument)
    except ValueError:
        raise ValueError(f"must be {NUMBERS[kind]}, got {argument!r}") from None


def reader(choices: tuple[str, ...]) -> Callable[[str], str]:
    """A function that reads a choice, also with dashes, underscores, capitals or a short name."""
    by_spelling = {normalised(word): word for word in choices}

    def read(argument: str) -> str:
        for word in (normalised(argument), spelled(argument)):
            if word in by_spelling:
                return by_spelling[word]
        raise ValueError(unknown_name("", argument, choices).strip())

    return read


ASKING: list[Any] = []
"""The class of settings for which the next rule is calling tyro."""


@WORDS.struct_rule
def settings(info: Any) -> Any:
    """Join the help of each option to one paragraph; tyro keeps the line breaks of the source."""
    if ASKING or not is_dataclass(info.type):
        return None
    ASKING.append(info.type)
    try:
        spec: Any = tyro.constructors.ConstructorRegistry.get_struct_spec(info)
    finally:
        ASKING.pop()
    joined = [replace(field, helptext=partial(paragraph, field.helptext)) for field in spec.fields]
    return replace(spec, fields=tuple(joined))


def paragraph(text: str | Callable[[], str | None] | None) -> str | None:
    """A text, or the result of a function, without line breaks and with a capital letter."""
    words = " ".join(((text() if callable(text) else text) or "").split())
    return words[:1].upper() + words[1:] or None


def checked(settings: Any, config: type[T], **changed: Any) -> T:
    """The settings as a config of the library, which checks them."""
    fixed = {field.name for field in fields(config)} - changed.keys()  # pyright: ignore[reportArgumentType]
    names = fixed & {field.name for field in fields(settings)}
    return config(**{name: getattr(settings, name) for name in names}, **changed)


def refuse_unused(settings: Any, names: Iterable[str], where: str, section: str = "") -> None:
    """Raise ValueError if one of these options, which have no effect, is not at its default."""
    for field in fields(settings):
        value = getattr(settings, field.name)
        default = field.default if field.default_factory is MISSING else field.default_factory()
        if field.name in names and value != default:
            option = f"--{section}{field.name.replace('_', '-')}"
            got = "" if value is True else f", got {value}"
            raise ValueError(f"{option} must not be given {where}{got}; remove it")


@dataclass(frozen=True, kw_only=True)
class Command:
    """Settings of a command.

    Each command declares `seed`, `json` and `out` itself. The help lists the options in the order
    of the fields, so fields of this base class would come first.
    """

    float64: ClassVar[bool] = False  # whether all of the work needs float64
    argv: tyro.conf.Suppress[tyro.conf.Fixed[tuple[str, ...]]] = ()

    def __post_init__(self) -> None:
        """Checks that need JAX come later, in `checked`."""

    def refuse_options_without_effect(self) -> None:
        """Raise ValueError if an option is given that has no effect beside the other options."""

    @property
    def folder(self) -> Path | None:
        """Where the files go; None writes no files."""
        return vars(self)["out"]

    @property
    def first_seed(self) -> int:
        return vars(self)["seed"]

    @property
    def last_seed(self) -> int:
        return self.first_seed + (vars(self).get("seeds") or 1) - 1


@dataclass(frozen=True)
class Construction(Command):
    solver: SolverName = "conjugate_gradient"
    """Solver that the transformer's weights implement."""
    kernel: KernelName | None = None
    """Kernel of the regression; the solver must support the kernel.
    If None, the first of linear, exponential and gaussian that the solver supports."""
    ridge: float | None = None
    """Ridge > 0 added to the diagonal of the kernel matrix.
    If None, the ridge with the least leave-one-out error on the supports, or on 1024 random
    supports if there are more."""
    temperature: float | None = None
    """Temperature > 0 of the exponential kernel.
    If None, the temperature with the least leave-one-out error on the supports, or on 1024 random
    supports if there are more."""
    lengthscale: float | None = None
    """Lengthscale > 0 of a kernel that has one.
    If None, the lengthscale with the least leave-one-out error on the supports, or on 1024 random
    supports if there are more."""
    steps: int | None = 16
    """Number of solver steps that the transformer runs, >= 1.
    If None, as many as the predictions need to converge, at most 256 in
    float32 and 1024 in float64."""
    seed: int = 0
    """Seed of every random choice."""
    json: bool = False
    """Print JSON instead of tables."""

    def refuse_options_without_effect(self) -> None:
        if not SOLVERS[self.solver].iterates:
            refuse_unused(self, ["steps"], f"for solver {self.solver!r}, which has no steps")


@dataclass(frozen=True)
class Devices:
    """Devices and processes that share the work. The results are those of one device, to rounding.
    If a process is lost, the others end within a minute."""

    mesh: Annotated[str | None, tyro.conf.arg(metavar="AXIS=SIZE")] = None
    """Devices that share the work. With tasks=8, each of 8 devices computes an eighth of every
    batch of tasks.
    If None, one device, or all devices of all processes if --hosts is given."""
    hosts: Annotated[str | None, tyro.conf.arg(metavar="auto|ADDRESS:PORT,NUMBER,ID")] = None
    """Run in several processes, usually one per machine or per GPU. Start the same command in each,
    with a folder --out that all can reach. With auto, JAX finds the processes of a job of SLURM,
    Kubernetes, Open MPI or Cloud TPU. Elsewhere, give address and port of process 0, the number of
    processes, and the id of this process, from 0. Only process 0 prints and writes files.
    If None, one process."""


OnDevices = Annotated[Devices, tyro.conf.OmitArgPrefixes]
"""The type of the field `devices` of the settings of a long command, and of no other."""

ONE_DEVICE = Devices()
"""The default of this field."""
