"""The error profile of a trained model, beside that of an untrained one of the same shape."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax

from ... import Kernel, map_tasks
from ...catalogue import name_of
from ..shared.runs import Run
from .error_profile import STEPS, Profile, Protocol, known_of, targets_of
from .probe_controls import read_by_probe, subject_of, untrained
from .settings import IdentifyConfig


class Findings(NamedTuple):
    """What `examine` found of a trained model, and of an untrained one of the same shape."""

    profile: Profile
    untrained: Profile | None
    known: dict[str, float]  # errors of exact regression and of the baselines
    kernel: Kernel
    ridge: float


def examine(
    run: Run, config: IdentifyConfig, progress: Callable[[str], None] = lambda words: None
) -> Findings:
    """Read a model by a linear probe of every layer, and compare its errors with candidates'.

    Probes, candidates and comparison have tasks of their own; the last quarter of the tasks of the
    probes chooses their ridge. An untrained model is read by a probe of the last layer, too.
    """
    layers = run.model.steps
    if config.steps is not None and config.steps < layers:
        raise ValueError(f"steps must be >= the number of layers, {layers}, got {config.steps}")
    of = subject_of(run, config, progress)
    kernel, ridge = of.best.kernel, float(of.best.ridge)
    steps = STEPS * layers if config.steps is None else config.steps
    both = [targets_of(tasks, kernel, ridge) for tasks in (of.fitted, of.scored)]
    kernels = (name_of(kernel), *config.kernels)
    protocol = Protocol(both, kernels, steps, known_of(kernel, ridge), config.seed)

    def read(answers: Any, words: str) -> Profile:
        answer = jax.jit(partial(map_tasks, answers))
        show = lambda what: progress(f"{words}: {what}")  # noqa: E731
        return protocol.read([answer(one.tasks) for one in both], show)

    other = untrained(of.model, of.fitted, of.control_key)
    return Findings(
        read(of.layers, "the model"),
        None if other is None else read(read_by_probe(other, of.probing), "an untrained model"),
        of.best.losses(of.scored),
        kernel,
        ridge,
    )
