"""`icl-krr`: the command line. Parsing does not import JAX, so `--help` is fast."""

import os
import sys
from typing import NoReturn

from . import _startup


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit status; errors are one line on standard error."""
    try:
        _startup.keep_compiled_programs()
        _startup.compile_quickly()
        from . import _program  # with the catalogue, and with packages that register solvers

        return _program.main(sys.argv[1:] if argv is None else argv)
    except KeyboardInterrupt:
        return 130


def console() -> NoReturn:
    try:
        status = main()
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # else Python flushes into the pipe again
        status = 141  # as a shell says it
    sys.exit(status)
