"""Hold signals back until a training step is finished."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def between_steps() -> Iterator[list[int]]:
    """Yield the list of the signals that wait; raise KeyboardInterrupt on exit if there is one.

    A step invalidates the state it starts from, so KeyboardInterrupt in the middle of a step would
    leave no state to save. A second signal does not wait. Only the main thread receives signals.
    """
    waiting: list[int] = []
    handlers = {}

    def hold(number: int, frame: FrameType | None) -> None:
        if waiting:
            handlers[number](number, frame)
        waiting.append(number)

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            if callable(handler := signal.getsignal(number)):
                handlers[number] = handler
                signal.signal(number, hold)
    try:
        yield waiting
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if waiting:
        raise KeyboardInterrupt
