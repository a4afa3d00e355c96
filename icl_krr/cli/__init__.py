"""`icl-krr`: the command line. Parsing needs no JAX, so `--help` answers at once."""

from __future__ import annotations

import os
import sys
from importlib.metadata import version
from typing import Annotated, Any

import tyro
from platformdirs import user_cache_dir

from ..experiments.shared.recipe import Recipe
from .model_settings import Ablate, Fit, Identify, Train
from .settings import Bench, Demo, Predict, Report, Sweep, Verify

PROG = "icl-krr"


def choices(argv: list[str]) -> Any:
    """What can be asked for; the recipe that is named gives the defaults of `train`."""
    defaults = Train()
    if argv[:1] == ["train"] and argv[1:]:
        first = argv[1]
        recipe = tyro.cli(Train, prog=PROG, args=argv[1:]).recipe if first[:1] == "-" else first
        defaults = Train() if recipe is None else Train(recipe, **vars(Recipe.read(recipe)))
    return (
        Annotated[Demo, tyro.conf.subcommand(name="demo")]
        | Annotated[Predict, tyro.conf.subcommand(name="predict")]
        | Annotated[Fit, tyro.conf.subcommand(name="fit")]
        | Annotated[Sweep, tyro.conf.subcommand(name="sweep")]
        | Annotated[Train, tyro.conf.subcommand(name="train", default=defaults)]
        | Annotated[Identify, tyro.conf.subcommand(name="identify")]
        | Annotated[Ablate, tyro.conf.subcommand(name="ablate")]
        | Annotated[Report, tyro.conf.subcommand(name="report")]
        | Annotated[Verify, tyro.conf.subcommand(name="verify")]
        | Annotated[Bench, tyro.conf.subcommand(name="bench")]
    )


def main(argv: list[str] | None = None) -> int:
    """Run one command; bad input is one line on standard error and exit status 2."""
    argv = sys.argv[1:] if argv is None else argv
    if argv == ["--version"]:
        print(f"icl-krr {version('icl_krr')}")
        return 0
    try:
        known = choices(argv)
    except (OSError, ValueError) as error:
        return refuse(str(error))
    settings = tyro.cli(
        known,
        prog=PROG,
        description="In-context kernel ridge regression as literal transformer weights.",
        args=argv,
    )
    keep_compiled_programs()
    from .commands.predict import run

    try:
        return run(settings, argv)
    except OSError as error:
        return refuse(f"{error.filename or 'file'}: {error.strerror or error}")
    except (ValueError, MemoryError) as error:
        return refuse(str(error))
    except KeyboardInterrupt:
        return 130


def keep_compiled_programs() -> None:
    """Compile once per machine: JAX's cache on disk, unless the caller has set it up."""
    if "jax" not in sys.modules:
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", user_cache_dir("icl-krr"))
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")


def refuse(reason: str) -> int:
    print(f"icl-krr: error: {reason}", file=sys.stderr)
    return 2
