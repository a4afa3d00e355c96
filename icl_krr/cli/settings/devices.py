"""The options that say on which devices and in which processes a long command runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import tyro


@dataclass(frozen=True)
class Devices:
    """Devices and processes that share the work. The results are those of one device, to rounding.
    If a process is lost, the others end within a minute, with exit status 75."""

    mesh: Annotated[str | None, tyro.conf.arg(metavar="AXIS=SIZE")] = None
    """Devices that share the work. With tasks=8, each of 8 devices computes an eighth of every
    batch of tasks.
    If None, one device, or all devices of all processes if --hosts is given."""
    hosts: Annotated[str | None, tyro.conf.arg(metavar="auto|ADDRESS:PORT,NUMBER,ID")] = None
    """Run in several processes, usually one per machine or per GPU. Start the same command in each,
    with a folder --out that all can reach. With auto, JAX finds the processes of a job of SLURM,
    Kubernetes, Open MPI or Cloud TPU. Elsewhere, give address and port of process 0, the number of
    processes, and the id of this process, from 0. Only process 0 prints and writes files.
    If None, one process."""


OnDevices = Annotated[Devices, tyro.conf.OmitArgPrefixes]
"""The type of the field `devices` of the settings of a long command, and of no other."""

ONE_DEVICE = Devices()
"""The default of this field."""
