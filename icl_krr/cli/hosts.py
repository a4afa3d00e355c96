"""Run a command on the devices of a mesh, in one process or in several that JAX connects."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import replace
from typing import Any
from zlib import crc32

from .options import ONE_DEVICE, Devices

PATIENCE = 30
"""Seconds after which a process that does not answer is lost; JAX then ends the others."""


def prepare(devices: Devices) -> None:
    """Check the options and set what must be set before JAX is imported.

    OpenBLAS starts threads of its own for every factorisation. With several devices on a CPU,
    these threads wait for those of JAX, some for ever.
    """
    size_of(devices.mesh)
    arguments_of(devices.hosts)
    if devices != ONE_DEVICE:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def size_of(mesh: str | None) -> int | None:
    """The number of devices along the axis tasks: 8 for "tasks=8"."""
    if mesh is None:
        return None
    axis, _, size = mesh.partition("=")
    if axis != "tasks" or not size.isdecimal() or int(size) < 1:
        raise ValueError(f"mesh must be tasks=SIZE with SIZE >= 1, such as tasks=8, got {mesh!r}")
    return int(size)


def arguments_of(hosts: str | None) -> dict[str, Any]:
    """The arguments of `jax.distributed.initialize`; none if JAX finds the processes itself."""
    if hosts is None or hosts == "auto":
        return {}
    address, *numbers = hosts.split(",")
    count, own = map(int, numbers) if [*map(str.isdecimal, numbers)] == [True] * 2 else (0, 0)
    if ":" not in address or not own < count:
        raise ValueError(
            "hosts must be auto or ADDRESS:PORT,NUMBER,ID with 0 <= ID < NUMBER, such as "
            f"10.0.0.1:1234,2,0 for the first of two processes, got {hosts!r}"
        )
    return {"coordinator_address": address, "num_processes": count, "process_id": own}


@contextmanager
def joined(devices: Devices) -> Iterator[None]:
    """Connect the processes, divide computations over the mesh, and silence all but process 0."""
    if devices == ONE_DEVICE:
        yield
        return
    import jax

    if devices.hosts is not None:
        try:
            jax.distributed.initialize(
                **arguments_of(devices.hosts),
                heartbeat_timeout_seconds=PATIENCE,
                shutdown_timeout_seconds=PATIENCE,
            )
        except Exception as error:
            raise ValueError(
                f"hosts must name processes that JAX can connect, got {devices.hosts!r} "
                f"({str(error).partition(chr(10))[0].rstrip('.')}); ADDRESS:PORT,NUMBER,ID names "
                "them where auto finds none"
            ) from None
        sys.stdout = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)  # where the library below JAX reports; standard output is for results
    there = jax.device_count()
    size = size_of(devices.mesh) or there
    if size > there or (size < there and jax.process_count() > 1):
        rule = "all" if jax.process_count() > 1 else "a size <="
        raise ValueError(
            f"mesh must have {rule} {there}, the number of devices, got {size}; on a CPU, "
            f"XLA_FLAGS=--xla_force_host_platform_device_count={size} makes more"
        )
    automatic = (jax.sharding.AxisType.Auto,)
    mesh = jax.make_mesh((size,), ("tasks",), automatic, devices=jax.devices()[:size])
    with ExitStack() as until_the_end:
        until_the_end.enter_context(jax.set_mesh(mesh))
        if jax.process_index():
            nowhere = until_the_end.enter_context(open(os.devnull, "w"))
            until_the_end.enter_context(redirect_stdout(nowhere))
            until_the_end.enter_context(redirect_stderr(nowhere))
        yield


def require_the_same(settings: Any) -> None:
    """Raise ValueError if the processes have different settings, but for the id in --hosts."""
    import jax

    if not jax.distributed.is_initialized():
        return
    import numpy as np
    from jax.experimental.multihost_utils import process_allgather

    own = repr(replace(settings, argv=(), devices=replace(settings.devices, hosts=None)))
    each = process_allgather(np.asarray(crc32(own.encode()), np.uint32))
    if different := [i for i, other in enumerate(each) if other != each[0]]:
        raise ValueError(
            "settings must be the same in all processes, got different ones in process "
            f"{', '.join(map(str, different))} than in process 0; start the same command in each"
        )
