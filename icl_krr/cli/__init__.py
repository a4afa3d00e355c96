"""`icl-krr`: the command line. Parsing does not import JAX, so `--help` is fast.

This file imports nothing heavy: Ctrl-C must end the program while the rest is imported, too.

Ctrl-C and SIGTERM end the process, whatever it is doing. KeyboardInterrupt does not suffice: Python
raises it only between two of its own instructions, so neither while XLA compiles nor while a
compiled program runs, and an exception in a callback, such as JAX's callback of the garbage
collector, is lost. A thread therefore ends the process. Nothing is cut, because files are replaced
atomically, and the thread waits for what is in `files.UNSAVED`.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from multiprocessing import active_children
from typing import NoReturn

from ..files import FAREWELL, LAST_WORDS, UNSAVED, replace

SIGNALS = (signal.SIGINT, signal.SIGTERM)
PATIENCE = 60.0
"""Seconds in which the main thread may save what it has finished."""

LEAVING = threading.RLock()
"""Held for good by the thread that ends the process."""


def watch() -> list[int]:
    """From now on, end the process at a signal; return the list of the signals received."""
    received: list[int] = []
    # Python removes what the workers of an ended process leave behind, and would warn of it
    sys.warnoptions.append("ignore:resource_tracker:UserWarning")
    listener, speaker = socket.socketpair()
    speaker.setblocking(False)
    # Python writes the number of each signal that it handles to the socket, also if it is busy
    signal.set_wakeup_fd(speaker.detach())
    for number in SIGNALS:
        signal.signal(number, lambda *_: None)
    threading.Thread(target=enforce, args=(listener, received), daemon=True).start()
    return received


def enforce(listener: socket.socket, received: list[int]) -> NoReturn:
    """Wait for a signal, then end the process as soon as all is saved, or at a second signal."""
    received.append(listener.recv(1)[0])
    words = "; saving (press Ctrl-C again to exit without saving)" if UNSAVED else ""
    with suppress(OSError):  # nobody may read this
        bar = b"\r\x1b[K\x1b[?25h" if os.isatty(2) else b""  # clear the line, show the cursor
        os.write(2, bar + f"icl-krr: interrupted{words}\n".encode())
    last = time.monotonic() + PATIENCE
    while UNSAVED and time.monotonic() < last and not heard(listener, 0.01):
        pass
    for path, words in [*LAST_WORDS.items()]:  # which the main thread may change
        with suppress(Exception):  # nothing may keep the process
            replace(path, words())
    leave(received[0])


def heard(listener: socket.socket, seconds: float) -> bool:
    """Whether another signal arrives within some seconds."""
    return bool(select.select([listener], [], [], seconds)[0])


def leave(number: int) -> NoReturn:
    """End the process at once, with the status of a process that a signal has ended."""
    LEAVING.acquire()
    for words in FAREWELL:
        with suppress(Exception):  # such as a run that is not saved yet
            os.write(2, f"icl-krr: {words()}\n".encode())
    for worker in active_children():  # one that is about to start would miss its parent
        worker.kill()
    os._exit(128 + number)


def leave_at_signals() -> None:
    """From now on, the main thread itself ends the process: threads stop when Python exits."""
    for number in SIGNALS:
        signal.signal(number, lambda number, _: leave(number))


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit status; errors are one line on standard error."""
    from . import program

    return program.main(sys.argv[1:] if argv is None else argv)


def console() -> NoReturn:
    """The program `icl-krr`: `main` as a process of its own, which a signal ends at once."""
    received = watch()
    try:
        status = until_the_reader_leaves()
    finally:
        if received:
            leave(received[0])
        leave_at_signals()
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
