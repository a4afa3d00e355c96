"""End the process at Ctrl-C or SIGTERM, whatever it is doing.

Python raises KeyboardInterrupt only when its main thread runs Python code, so neither while XLA
compiles nor while a compiled program runs. Callbacks and destructors may also swallow it. So a
thread listens to the same signals, and ends the process if the main thread has not done so.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import threading
import time
from types import FrameType
from typing import NoReturn

from ..files import UNSAVED

GRACE = 1.0
"""Seconds in which the main thread may end by itself."""

PATIENCE = 60.0
"""Seconds in which the main thread may save what it has finished."""


def watch() -> list[int]:
    """From now on, end the process at SIGINT and SIGTERM.

    Returns:
        The list of the signals received so far. While it is empty, a signal raises
        KeyboardInterrupt and joins the list; after that, a signal ends the process at once.
    """
    received: list[int] = []
    listener, speaker = socket.socketpair()
    speaker.setblocking(False)

    def interrupt(number: int, _: FrameType | None) -> NoReturn:
        if received:
            leave(number)
        received.append(number)
        raise KeyboardInterrupt

    # Python writes the number of a signal to this socket even if the main thread is busy
    signal.set_wakeup_fd(speaker.detach())
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)
    threading.Thread(target=enforce, args=(listener,), daemon=True).start()
    return received


def enforce(listener: socket.socket) -> NoReturn:
    """Wait for a signal, give the main thread its time, then end the process."""
    number = listener.recv(1)[0]
    if not heard(listener, GRACE) and UNSAVED:
        print("icl-krr: saving; press Ctrl-C again to exit without saving", file=sys.stderr)
        last = time.monotonic() + PATIENCE
        while UNSAVED and time.monotonic() < last and not heard(listener, 0.01):
            pass
    leave(number)


def heard(listener: socket.socket, seconds: float) -> bool:
    """Whether another signal arrives within some seconds."""
    return bool(select.select([listener], [], [], seconds)[0])


def leave(number: int) -> NoReturn:
    """End the process at once, with the status of a process that a signal has ended."""
    if os.isatty(2):
        os.write(2, b"\x1b[?25h")  # a progress bar hides the cursor
    os._exit(128 + number)
