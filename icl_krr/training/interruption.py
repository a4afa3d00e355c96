"""Hold signals back until a training step is finished."""

from __future__ import annotations

import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from ..devices import over_processes
from ..files import UNSAVED


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


@contextmanager
def together(unsaved: set[Path]) -> Iterator[Callable[[list[int]], bool]]:
    """Yield a function of the signals that wait, which says whether to stop after this step.

    A process with a signal that left while it has nothing to save would end all others. As long as
    there are others, it therefore counts its checkpoint as unsaved.
    """
    if not over_processes():
        yield bool
        return
    UNSAVED.update(unsaved)
    try:
        yield Agreement()
    finally:
        UNSAVED.difference_update(unsaved)


class Agreement:
    """At which step the processes of a mesh stop, of which some have received a signal.

    Processes that stopped after different steps would wait for each other. They therefore share
    after every step whether they have a signal. Each reads what was shared two steps ago: by then
    it is computed, so nobody waits for it.
    """

    def __init__(self) -> None:
        mesh = jax.sharding.get_mesh()
        self.of_devices = NamedSharding(mesh, PartitionSpec(mesh.axis_names))
        self.shared: deque[jax.Array] = deque()

    def __call__(self, waiting: list[int]) -> bool:
        own = np.full(len(self.of_devices.addressable_devices), bool(waiting))
        flags = jax.make_array_from_process_local_data(self.of_devices, own)
        self.shared.append(jnp.any(flags))
        stop = len(self.shared) > 2 and bool(self.shared.popleft())
        if stop and not waiting:
            waiting.append(signal.SIGTERM)
        return stop
