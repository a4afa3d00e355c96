"""`icl-krr`: the command line. Parsing needs no JAX, so `--help` answers at once."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Annotated

import tyro

from .settings import Demo, Predict

Command = (
    Annotated[Demo, tyro.conf.subcommand(name="demo")]
    | Annotated[Predict, tyro.conf.subcommand(name="predict")]
)


def main(argv: list[str] | None = None) -> int:
    """Run one command; bad input is one line on standard error and exit status 2."""
    argv = sys.argv[1:] if argv is None else argv
    if argv == ["--version"]:
        print(f"icl-krr {version('icl_krr')}")
        return 0
    settings = tyro.cli(
        Command,  # pyright: ignore[reportArgumentType]
        prog="icl-krr",
        description="In-context kernel ridge regression as literal transformer weights.",
        args=argv,
    )
    from . import commands

    try:
        commands.run(settings, argv)
    except OSError as error:
        return refuse(f"{error.filename or 'file'}: {error.strerror or error}")
    except (TypeError, ValueError) as error:
        return refuse(str(error))
    except KeyboardInterrupt:
        return 130
    return 0


def refuse(reason: str) -> int:
    print(f"icl-krr: error: {reason}", file=sys.stderr)
    return 2
