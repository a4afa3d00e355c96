"""One process at a time writes to a folder."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from ..files import errors_about

LOCK = ".icl-krr.lock"


@contextmanager
def owned(folder: Path) -> Iterator[None]:
    """Own a folder; raise ValueError if another process owns it.

    The lock file holds the process id. The operating system releases the lock of a process that
    ends, however it ends, so a lock file that is left over does no harm.
    """
    with lock(folder) as file:
        with errors_about(folder / LOCK):
            file.truncate(0)
            os.write(file.fileno(), str(os.getpid()).encode())
        try:
            yield
        finally:
            (folder / LOCK).unlink()


def lock(folder: Path) -> IO[str]:
    path = folder / LOCK
    while True:
        file = path.open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with file:
                file.seek(0)
                raise ValueError(
                    f"{folder} must not be in use, but process {file.read()} is writing to it; "
                    "wait until it ends or choose another --out"
                ) from None
        with suppress(FileNotFoundError):  # the owner before may have removed the file meanwhile
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        file.close()
