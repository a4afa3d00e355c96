"""Read the command line and run its command."""

import re
import shutil
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from functools import reduce
from importlib.metadata import version
from io import StringIO
from operator import or_
from typing import Annotated, Any

import tyro

from .._core.messages import unknown_name
from ..experiments._shared.recipe import Recipe, recipe_table
from . import _hosts
from ._commands import COMMANDS
from ._commands.train import Train
from ._options import ONE_DEVICE, WORDS, Command, Devices
from ._output import finish

PROG = "icl-krr"


def parse(argv: list[str]) -> Command:
    """The settings of the command; ValueError in one sentence if tyro refuses the arguments."""
    if argv and not argv[0].startswith("-") and argv[0] not in COMMANDS:
        raise ValueError(unknown_name("command", argv[0], COMMANDS))
    about = "In-context kernel ridge regression (KRR) as explicit transformer weights."
    output, errors = StringIO(), StringIO()  # no terminal: tyro's colours vanish on white
    try:
        with redirect_stdout(output), redirect_stderr(errors):
            types = subcommands(argv)
            return tyro.cli(types, prog=PROG, description=about, args=argv, registry=WORDS)
    except SystemExit as stop:
        if not stop.code:  # --help
            recipes = f"\n{recipe_table()}" if argv[:1] == ["train"] else ""
            print(wrapped(output.getvalue() + recipes, shutil.get_terminal_size().columns))
            raise
        raise ValueError(sentence(errors.getvalue())) from None


def wrapped(text: str, width: int) -> str:
    """The help, its lines broken at spaces or after commas: tyro leaves those outside of boxes."""
    if not text.startswith("usage:"):  # a script for the completion of words
        return text
    fits = rf" ?(.{{1,{width}}}(?:(?<=,)|(?= )|$)|\S+)"
    rows = (row.rstrip() for row in text.splitlines())
    return "\n".join("\n".join(re.findall(fits, row)) if len(row) > width else row for row in rows)


def sentence(box: str) -> str:
    """The text in tyro's box of an error, in one line and without the help on each option."""
    lines = [line[2:].rstrip() for line in re.sub("[╭╮╰╯│]", " ", box).splitlines()[1:]]
    errors = []
    for paragraph in re.split("^[─-]{9,}$", "\n".join(lines), flags=re.M):
        if paragraph.strip() and "elptext" not in paragraph:
            head = " ".join(re.findall(r"^\S.*", paragraph, re.M))
            options = dict.fromkeys(re.findall(r"^ {4}(\S.*)", paragraph, re.M))
            errors.append(f"{head} {', '.join(options)}".strip().removeprefix("Error parsing "))
    words = re.sub(r"(?<=[\w>]): must be ", " must be ", "; ".join(errors))
    return re.sub(r"^\{[^}]*\}: ", "value ", words)  # tyro has no other name for some positionals


def subcommands(argv: list[str]) -> Any:
    """The type of all commands; the recipe in `argv` sets the defaults of `train`."""
    special: dict[str, Any] = {"train": {"default": train_defaults(argv)}}
    types = (
        Annotated[settings, tyro.conf.subcommand(name, **special.get(name, {}))]
        for name, (settings, _) in COMMANDS.items()
    )
    return reduce(or_, types)


def train_defaults(argv: list[str]) -> Train:
    if argv[:1] != ["train"] or not argv[1:]:
        return Train()
    recipe = argv[1]
    if recipe.startswith("-"):
        recipe = tyro.cli(Train, prog=f"{PROG} train", args=argv[1:], registry=WORDS).recipe
    return Train() if recipe is None else Train(recipe, **vars(Recipe.read(recipe)))


def main(typed: list[str]) -> int:
    """Run one command; bad input prints one line on standard error and exits with status 2."""
    try:
        if typed == ["--version"]:
            print(f"icl-krr {version('icl_krr')}")
            return 0
        settings = parse(typed)
        _hosts.prepare(devices_of(settings))
        return run(replace(settings, argv=tuple(typed)))
    except BrokenPipeError:
        raise
    except SystemExit as stop:
        return 141 if stop.code else 0  # rich at a closed pipe, or --help
    except OSError as error:
        return refuse(f"{error.filename or 'standard output or a file'}: {error.strerror or error}")
    except (ValueError, MemoryError) as error:
        return refuse(str(error) or "memory is exhausted; use fewer supports, tasks or steps")
    except RuntimeError as error:
        if type(error).__name__ not in ("JaxRuntimeError", "XlaRuntimeError"):
            raise
        return refuse(of_device(error))


def run(settings: Command) -> int:
    from .._core import checks  # imports JAX

    checks.count("seed", settings.first_seed, minimum=0)
    if settings.last_seed >= 2**31:
        raise ValueError(f"seed must be < 2^31, got {settings.last_seed}")
    settings.refuse_options_without_effect()
    for option, value in vars(settings).items():
        if value == () and f"--{option}" in settings.argv:
            raise ValueError(f"{option} must have at least one value, got none; remove --{option}")
    _, run_command = COMMANDS[type(settings).__name__.lower()]
    with _hosts.device_context(devices_of(settings)):
        _hosts.require_same_settings(settings)
        return finish(settings, run_command(settings))


def devices_of(settings: Command) -> Devices:
    return vars(settings).get("devices", ONE_DEVICE)


def of_device(error: RuntimeError) -> str:
    first = str(error).partition("\n")[0]
    if "RESOURCE_EXHAUSTED" in first or "Out of memory" in first:
        return f"memory is exhausted ({first}); use fewer supports, tasks or steps"
    return f"the device failed ({first}); try again, or on the CPU with JAX_PLATFORMS=cpu"


def refuse(reason: str) -> int:
    print(f"icl-krr: error: {reason}", file=sys.stderr)
    return 2
