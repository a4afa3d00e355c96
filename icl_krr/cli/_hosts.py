"""Run a command on the devices of a mesh, in one process or in several that JAX connects."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import replace
from typing import Any
from zlib import crc32

from ._options import ONE_DEVICE, Devices

TIMEOUT = 30
"""Seconds after which a process that does not answer counts as lost; JAX then ends the others."""


def prepare(devices: Devices) -> None:
    """Check the options, and set the environment variables that JAX reads when it is imported."""
    size, hosts = devices.mesh, initialize_arguments(devices.hosts)
    if size is not None and not re.fullmatch("tasks=0*[1-9][0-9]*", size):
        raise ValueError(f"mesh must be tasks=SIZE with SIZE >= 1, such as tasks=8, got {size!r}")
    if hosts and not hosts["process_id"] < hosts["num_processes"]:
        raise ValueError(f"hosts must have an ID from 0 to NUMBER - 1, got {devices.hosts!r}")
    if devices != ONE_DEVICE:  # on a CPU, threads of OpenBLAS may wait for those of JAX for ever
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def initialize_arguments(hosts: str | None) -> dict[str, Any]:
    """The arguments of `jax.distributed.initialize`; {} if JAX finds the processes itself."""
    if hosts is None or hosts == "auto":
        return {}
    match = re.fullmatch(r"(.+:\d+),(\d+),(\d+)", hosts)
    if match is None:
        raise ValueError(
            "hosts must be auto or ADDRESS:PORT,NUMBER,ID, such as 10.0.0.1:1234,2,0 for the first "
            f"of two processes, got {hosts!r}"
        )
    address, count, index = match.groups()
    return {"coordinator_address": address, "num_processes": int(count), "process_id": int(index)}


@contextmanager
def device_context(devices: Devices) -> Iterator[None]:
    """Connect the processes, divide computations over the mesh, and silence all but process 0."""
    if devices == ONE_DEVICE:
        yield
        return
    import jax

    if devices.hosts is not None:
        try:
            jax.distributed.initialize(
                **initialize_arguments(devices.hosts),
                heartbeat_timeout_seconds=TIMEOUT,
                shutdown_timeout_seconds=TIMEOUT,
            )
        except Exception as error:
            first = str(error).partition("\n")[0].rstrip(".")
            raise ValueError(
                f"hosts must name processes that JAX can connect, got {devices.hosts!r} ({first}); "
                "ADDRESS:PORT,NUMBER,ID names them where auto finds none"
            ) from None
        sys.stdout = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)  # where the library below JAX reports; standard output is for results
    there = jax.device_count()
    size = int(devices.mesh.partition("=")[2]) if devices.mesh else there
    if size > there or (size < there and jax.process_count() > 1):
        raise ValueError(
            f"mesh must have a size <= {there}, the number of devices, and all of them in several "
            f"processes, got {size}; on a CPU, XLA_FLAGS=--xla_force_host_platform_device_count="
            f"{size} makes more"
        )
    automatic = (jax.sharding.AxisType.Auto,)
    mesh = jax.make_mesh((size,), ("tasks",), automatic, devices=jax.devices()[:size])
    with jax.set_mesh(mesh), open(os.devnull, "w") as nowhere:
        out, err = (nowhere, nowhere) if jax.process_index() else (sys.stdout, sys.stderr)
        with redirect_stdout(out), redirect_stderr(err):
            yield


def require_same_settings(settings: Any) -> None:
    """Raise ValueError if the processes have different settings, but for the id in --hosts."""
    import jax

    if not jax.distributed.is_initialized():
        return
    import numpy as np
    from jax.experimental.multihost_utils import process_allgather

    text = repr(replace(settings, argv=(), devices=replace(settings.devices, hosts=None)))
    each = process_allgather(np.asarray(crc32(text.encode()), np.uint32))
    if different := [i for i, other in enumerate(each) if other != each[0]]:
        raise ValueError(
            "settings must be the same in all processes, got different ones in process "
            f"{', '.join(map(str, different))} than in process 0; start the same command in each"
        )
