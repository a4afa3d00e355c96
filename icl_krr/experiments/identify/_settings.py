"""Settings of the identification of a trained model. This file does not import JAX."""

from __future__ import annotations

from dataclasses import dataclass

from ...catalogue import KERNELS, SHIFTS, candidate, find
from ...catalogue._choices import KernelName, ShiftName


@dataclass(frozen=True)
class IdentifyOptions:
    """The tasks, and what is fitted to the predictions of the model on these tasks."""

    tasks: int = 64
    """Number of tasks that the candidates are fitted to, >= 2. Distances are measured on the same
    number of new tasks. With --tasks-of, the file has tasks for both."""
    probe_tasks: int = 512
    """Number of tasks that the linear probes of the layers are fitted to, >= 2."""
    num_queries: int = 8
    """Number of queries per task."""
    kernels: tuple[KernelName, ...] = tuple(name for name, entry in KERNELS.items() if entry.usual)
    """Kernels to try for each candidate."""
    candidates: tuple[str, ...] = ()
    """Solvers to compare the model with, such as chebyshev cg. If empty, all candidates of the
    catalogue."""
    steps: int | None = None
    """Number of solver steps of a candidate; a candidate for which they are too few gets four times
    as many. If None, 8 per layer of a trained model and 4 per layer of a file."""
    shift: ShiftName | None = None
    """Score probes and candidates on tasks outside of the training distribution, such as
    more-supports. If None, on tasks of the training family."""


@dataclass(frozen=True)
class IdentifyConfig(IdentifyOptions):
    """The same settings with a seed of the tasks and of the bootstrap, and checked."""

    seed: int = 0

    def __post_init__(self):
        from ..._core import checks  # imports JAX

        for name, least in (("tasks", 2), ("probe_tasks", 2), ("num_queries", 1)):
            checks.count(name, getattr(self, name), least)
        for name in self.candidates:
            candidate(name)
        if self.shift is not None:
            find("shift", SHIFTS, self.shift)
        if self.steps is not None:
            checks.count("steps", self.steps)
