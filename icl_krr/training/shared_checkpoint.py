"""Checkpoints of runs in several processes: a folder that all of them write, by Orbax."""

from __future__ import annotations

import shutil
import signal
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.multihost_utils import process_allgather
from jax.sharding import NamedSharding, PartitionSpec

from ..devices import over_processes
from ..fields import cut
from . import checkpoint
from .checkpoint import Config
from .step import State

FILE, FOLDER = "checkpoint.msgpack", "checkpoint.orbax"
"""Where a run is saved in one process, and in several."""

Saved = tuple[State, list[jax.Array]]


def save(folder: Path, state: State, config: Config, losses: list[jax.Array]) -> None:
    """Save as this run is computed, then remove what an earlier run saved in the other way."""
    if not over_processes():
        checkpoint.save(folder / FILE, state, config, losses)
        shutil.rmtree(folder / FOLDER, ignore_errors=True)
        return
    import orbax.checkpoint as ocp

    about = {"config": config, "losses": np.asarray(losses, float).tolist()}
    with opened(folder) as saved:
        if saved.latest_step() != int(state.step):
            parts = ocp.args.Composite(
                state=ocp.args.StandardSave(checkpoint.arrays(state)),
                about=ocp.args.JsonSave(about),
            )
            saved.save(int(state.step), args=parts)
    if jax.process_index() == 0:
        (folder / FILE).unlink(missing_ok=True)


def restore(folder: Path, like: State, config: Config) -> Saved | None:
    """The last state that was saved in a folder, on whatever devices; None if there is none.

    Raises:
        Mismatch: another run saved it.
        ValueError: it cannot be read, or not all processes find it.
    """
    one = folder / FILE
    found = checkpoint.restore(one, like, config) if one.exists() else None
    if (folder / FOLDER).exists():
        with opened(folder) as saved:
            last = saved.latest_step()
            if last is not None and (found is None or last > int(found[0].step)):
                found = read(saved, last, folder / FOLDER, like, config)
    if over_processes():
        steps = process_allgather(np.asarray(-1 if found is None else int(found[0].step)))
        if np.ptp(steps):
            raise ValueError(
                f"{folder} must be a folder that all processes can reach, but the last steps that "
                f"they find in it are {steps.tolist()} (-1: none)"
            )
    return found


def opened(folder: Path) -> Any:
    import orbax.checkpoint as ocp  # a second, and needed here only

    options = ocp.CheckpointManagerOptions(max_to_keep=1, enable_async_checkpointing=False)
    return ocp.CheckpointManager((folder / FOLDER).absolute(), options=options)


def read(saved: Any, step: int, path: Path, like: State, config: Config) -> Saved:
    import orbax.checkpoint as ocp

    try:
        about = saved.restore(step, args=ocp.args.Composite(about=ocp.args.JsonRestore())).about
        checkpoint.compare(about["config"], config, path)
        arrays = read_state(saved, step, checkpoint.arrays(like))
    except checkpoint.Mismatch:
        raise
    except Exception as error:
        raise ValueError(
            f"{path} must be a checkpoint, but cannot be read "
            f"({cut(str(error) or type(error).__name__)})"
        ) from None
    return checkpoint.state_of(arrays), list(map(jnp.asarray, about["losses"]))


def read_state(saved: Any, step: int, like: Any) -> Any:
    """The arrays of a step; a checkpoint may lack fields of `like` that hold no array."""
    import orbax.checkpoint as ocp

    each = ocp.checkpoint_utils.construct_restore_args(like)
    wanted: Any = ocp.args.PyTreeRestore(like, restore_args=each, partial_restore=True)
    found = saved.restore(step, args=ocp.args.Composite(state=wanted)).state
    stored = len(jax.tree.leaves(saved.item_metadata(step).state.tree))
    if stored != len(jax.tree.leaves(like)):  # Orbax returns those of `like` in their place
        raise ValueError(f"{stored} arrays, not {len(jax.tree.leaves(like))}")
    return found


@contextmanager
def between_steps() -> Iterator[list[int]]:
    """Yield the list of the signals that wait; raise KeyboardInterrupt on exit if there is one.

    A step invalidates the state it starts from, so KeyboardInterrupt in the middle of a step would
    leave no state to save. Only the main thread receives signals.
    """
    waiting: list[int] = []
    handler = signal.getsignal(signal.SIGINT)
    held = callable(handler) and threading.current_thread() is threading.main_thread()
    if held:
        signal.signal(signal.SIGINT, lambda number, _: waiting.append(number))
    try:
        yield waiting
    finally:
        if held:
            signal.signal(signal.SIGINT, handler)
    if waiting:
        raise KeyboardInterrupt


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
            waiting.append(signal.SIGINT)
        return stop
