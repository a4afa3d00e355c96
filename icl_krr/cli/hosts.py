"""Run a command on the devices of a mesh, in one process or in several that JAX connects.

A process that JAX can no longer reach is lost. JAX then aborts all others, at the latest after
`PATIENCE` seconds, because a computation would wait for the lost process for ever.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import replace
from math import prod
from typing import Any
from zlib import crc32

from .options import ONE_DEVICE, Devices

PATIENCE = 30
"""Seconds after which a process that does not answer is lost."""

GATHERING = 300
"""Seconds in which all processes must start."""

LOST = 75
"""Exit status if another process is lost: "temporary failure, try again", as in sysexits.h."""

LOST_WORDS = (
    "another process of this run is lost; start the command again, also on another number of "
    "devices: train and sweep continue with what they have saved"
)

AXES = ("tasks",)


def prepare(devices: Devices) -> None:
    """Check the options and set what must be set before JAX is imported.

    OpenBLAS starts threads of its own for every factorisation. With several devices on a CPU,
    these threads wait for those of JAX, some for ever.
    """
    axes_of(devices.mesh)
    arguments_of(devices.hosts)
    if devices != ONE_DEVICE:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def axes_of(text: str | None) -> dict[str, int]:
    """The sizes of a mesh by axis: {"tasks": 8} for "tasks=8"."""
    axes: dict[str, int] = {}
    for pair in [] if text is None else text.split(","):
        name, _, size = pair.partition("=")
        if not size.isdecimal():
            raise ValueError(f"mesh must be AXIS=SIZE, such as tasks=8, got {text!r}")
        if name not in AXES or name in axes:
            raise ValueError(f"mesh must have the axis {' and '.join(AXES)}, once, got {text!r}")
        if int(size) < 1:
            raise ValueError(f"mesh must have >= 1 device along the axis {name}, got {text!r}")
        axes[name] = int(size)
    return axes


def arguments_of(text: str | None) -> dict[str, Any]:
    """The arguments of `jax.distributed.initialize`; none if JAX finds the processes itself."""
    if text is None or text == "auto":
        return {}
    address, *numbers = text.split(",")
    if ":" not in address or len(numbers) != 2 or not all(map(str.isdecimal, numbers)):
        raise ValueError(
            "hosts must be auto or ADDRESS:PORT,NUMBER,ID, such as 10.0.0.1:1234,2,0 for the first "
            f"of two processes, got {text!r}"
        )
    count, own = map(int, numbers)
    if count < 1:
        raise ValueError(f"hosts must have a number of processes >= 1, got {text!r}")
    if not own < count:
        raise ValueError(
            f"hosts must have an id < {count}, the number of processes, because ids count from 0, "
            f"got {own}"
        )
    return {"coordinator_address": address, "num_processes": count, "process_id": own}


@contextmanager
def joined(devices: Devices) -> Iterator[None]:
    """Connect the processes, divide computations over the mesh, and silence all but process 0."""
    if devices == ONE_DEVICE:
        yield
        return
    import jax

    with ExitStack() as until_the_end:
        if devices.hosts is not None:
            connect(devices.hosts)
        until_the_end.enter_context(jax.set_mesh(mesh_of(devices.mesh)))
        if jax.process_index():
            nowhere = until_the_end.enter_context(open(os.devnull, "w"))
            until_the_end.enter_context(redirect_stdout(nowhere))
            until_the_end.enter_context(redirect_stderr(nowhere))
        yield


def connect(hosts: str) -> None:
    import jax

    jax.config.update("jax_enable_preemption_service", False)  # it would swallow SIGTERM
    at_abort(
        2,
        f"hosts must name processes that all start within {GATHERING} s and can reach each other, "
        f"got {hosts!r}; read what the other processes say",
    )
    try:
        jax.distributed.initialize(
            **arguments_of(hosts),
            initialization_timeout=GATHERING,
            heartbeat_timeout_seconds=PATIENCE,
            shutdown_timeout_seconds=PATIENCE,
        )
    except Exception as error:
        signal.signal(signal.SIGABRT, signal.SIG_DFL)
        first = str(error).partition("\n")[0].rstrip(".")
        raise ValueError(
            f"hosts must name processes that JAX can connect, got {hosts!r} ({first}); "
            "ADDRESS:PORT,NUMBER,ID names them where auto finds none"
        ) from None
    at_abort(LOST, LOST_WORDS)
    out = os.dup(1)
    os.dup2(2, 1)  # the library below JAX reports to standard output, where the results belong
    sys.stdout = os.fdopen(out, "w")


def mesh_of(text: str | None) -> Any:
    import jax

    axes, there = axes_of(text), jax.device_count()
    several = jax.process_count() > 1
    axes = axes or {"tasks": there}
    size = prod(axes.values())
    if size > there:
        raise ValueError(
            f"mesh must have a size <= {there}, the number of devices, got {text}; on a CPU, "
            f"XLA_FLAGS=--xla_force_host_platform_device_count={size} makes more"
        )
    if several and size < there:
        raise ValueError(
            f"mesh must have all {there} devices of the {jax.process_count()} processes, got "
            f"{text}; leave out --mesh, or start fewer processes"
        )
    automatic = (jax.sharding.AxisType.Auto,) * len(axes)
    return jax.make_mesh(tuple(axes.values()), tuple(axes), automatic, devices=jax.devices()[:size])


def require_the_same(settings: Any) -> None:
    """Raise ValueError if the processes have different settings, but for the id in --hosts."""
    if not is_one_of_several():
        return
    import numpy as np
    from jax.experimental.multihost_utils import process_allgather

    own = repr(replace(settings, argv=(), devices=replace(settings.devices, hosts=None)))
    each = process_allgather(np.asarray(crc32(own.encode()), np.uint32))
    if different := [i for i, other in enumerate(each) if other != each[0]]:
        raise ValueError(
            "settings must be the same in all processes, got different ones in process "
            f"{', '.join(map(str, different))} than in process 0; start the same command, with the "
            "same recipe, in each"
        )


def is_one_of_several() -> bool:
    jax = sys.modules.get("jax")
    return jax is not None and jax.distributed.is_initialized()


def leave(status: int) -> None:
    """End one of several processes that failed at once: JAX would wait for the others for ever.

    Those that fail for the same reason get a second to say so.
    """
    if is_one_of_several():
        time.sleep(1)
        os._exit(status)


def end(status: int, words: str) -> None:
    os.write(2, f"icl-krr: error: {words}\n".encode())
    os._exit(status)


def at_abort(status: int, words: str) -> None:
    """Say why if JAX aborts the process, in a thread in which no handler of Python runs."""
    HANDLERS.append(ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda _: end(status, words)))
    ctypes.CDLL(None).signal(signal.SIGABRT, HANDLERS[-1])


HANDLERS: list[Any] = []
"""The system calls them, so they must stay in memory."""
