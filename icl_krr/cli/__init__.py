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
    sys.exit(status)


def until_the_reader_leaves() -> str | int | None:
    """The exit status of `main`, or that of SIGPIPE if nobody reads the output any more."""
    try:
<<<<<<< HEAD
        return run(replace(settings, argv=tuple(typed)))
    except OSError as error:
        return refuse(f"{error.filename or 'file'}: {error.strerror or error}")
    except (ValueError, MemoryError) as error:
        return refuse(str(error) or "memory is exhausted; use fewer supports, tasks or steps")
    except RuntimeError as error:
        if type(error).__name__ not in ("JaxRuntimeError", "XlaRuntimeError"):
            raise
        return refuse(of_device(error))
    except KeyboardInterrupt:
        return 130


def as_spelled(argv: list[str]) -> list[str]:
    """Replace dashes by underscores in names of the catalogue, but not in names of folders."""
    words = []
    for before, word in zip(["", *argv], argv, strict=False):
        option, equals, value = word.rpartition("=")
        named = spelled(value) in catalogue.names() and not os.path.exists(value)
        named = named and "--out" not in (before, option)
        words.append(option + equals + (spelled(value) if named else value))
    return words


def run(settings: Command) -> int:
    """Run the command that the settings belong to, and return its exit status."""
    from .. import checks  # imports JAX

    checks.count("seed", settings.first_seed, minimum=0)
    if settings.last_seed >= 2**32:
        raise ValueError(f"seed must be < 2^32, got {settings.last_seed}")
    name = type(settings).__name__.lower()
    return import_module(f".commands.{name}", __name__).run(settings)


def keep_compiled_programs() -> None:
    """Keep compiled programs in JAX's cache on disk, unless the caller has configured the cache."""
    if "jax" not in sys.modules:
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", user_cache_dir("icl-krr"))
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")


def of_device(error: RuntimeError) -> str:
    """One line about an error of the compiler or the device."""
    first = str(error).partition("\n")[0]
    if "RESOURCE_EXHAUSTED" in first:
        return f"memory is exhausted ({first}); use fewer supports, tasks or steps"
    return f"the device failed ({first}); try again, or on the CPU with JAX_PLATFORMS=cpu"


def refuse(reason: str) -> int:
    print(f"icl-krr: error: {reason}", file=sys.stderr)
    return 2
=======
        try:
            status = main()
        except SystemExit as stop:  # --help, or rich at a closed pipe
            if isinstance(stop.__context__, BrokenPipeError):
                raise stop.__context__ from None
            status = stop.code
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 128 + signal.SIGPIPE
    return status
>>>>>>> 639615f152ce417fb774a635bf1d45075444c375
