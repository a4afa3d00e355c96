"""End the process at Ctrl-C or SIGTERM, whatever it is doing.

KeyboardInterrupt does not suffice: Python raises it only between two of its own instructions, so
neither while XLA compiles nor while a compiled program runs, and an exception in a callback, such
as JAX's callback of the garbage collector, is lost. A thread therefore ends the process. Nothing is
cut, because files are replaced atomically, and the thread waits for what is in `files.UNSAVED`.
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

from ..files import LAST_WORDS, UNSAVED, replace

SIGNALS = (signal.SIGINT, signal.SIGTERM)
PATIENCE = 60.0
"""Seconds in which the main thread may save what it has finished."""


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
    for worker in active_children():  # one that is about to start would miss its parent
        worker.kill()
    os._exit(128 + number)


def leave_at_signals() -> None:
    """From now on, the main thread itself ends the process: threads stop when Python exits."""
    for number in SIGNALS:
        signal.signal(number, lambda number, _: leave(number))
