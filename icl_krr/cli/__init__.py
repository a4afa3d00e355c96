"""`icl-krr`: the command line. Parsing does not import JAX, so `--help` is fast.

This file imports nothing heavy: Ctrl-C must end the program while the rest is imported, too.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import NoReturn

from . import interruption


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit status; errors are one line on standard error."""
    from . import program

    return program.main(sys.argv[1:] if argv is None else argv)


def console() -> NoReturn:
    """The program `icl-krr`: `main` as a process of its own, which a signal ends at once."""
    received = interruption.watch()
    try:
        status = until_the_reader_leaves()
    finally:
        if received:
            interruption.leave(received[0])
        interruption.leave_at_signals()
    if isinstance(status, int) and status > 1:  # 1 is a verdict, which all processes return
        from . import hosts

        hosts.leave(status)
    sys.exit(status)


def until_the_reader_leaves() -> str | int | None:
    """The exit status of `main`, or that of SIGPIPE if nobody reads the output any more."""
    try:
        try:
            status = main()
        except SystemExit as stop:  # --help, or rich at a closed pipe
            if isinstance(stop.__context__, BrokenPipeError):
                raise stop.__context__ from None
            status = stop.code
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if isinstance(error, BrokenPipeError):
            return 128 + signal.SIGPIPE
        print(f"icl-krr: error: standard output: {error.strerror}", file=sys.stderr)
        return 2
    return status
