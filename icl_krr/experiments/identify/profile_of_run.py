"""The error profile of a trained model, beside that of an untrained one of the same shape."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax

from ... import Kernel, map_tasks
from ...catalogue import name_of
from ...probes import fit_probe, has_slot, layerwise
from ...training import reference
from ..shared.runs import Run
from .error_profile import STEPS, Profile, Protocol, known_of, targets_of
from .probe_controls import family_of, in_dtype_of_tasks, read_by_probe, tasks_of, untrained
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
    family, key = family_of(run, config), jax.random.key(config.seed)
    probing, scored, fitted = tasks_of(run, config)
    best = reference(family, jax.random.fold_in(key, 4))
    kernel, ridge = best.kernel, float(best.ridge)
    steps = STEPS * layers if config.steps is None else config.steps
    both = [targets_of(tasks, kernel, ridge) for tasks in (fitted, scored)]
    kernels = (name_of(kernel), *config.kernels)
    protocol = Protocol(both, kernels, steps, known_of(kernel, ridge), config.seed)

    def read(answers: Any, words: str) -> Profile:
        answer = jax.jit(partial(map_tasks, answers))
        show = lambda what: progress(f"{words}: {what}")  # noqa: E731
        return protocol.read([answer(one.tasks) for one in both], show)

    model = in_dtype_of_tasks(run.model, fitted)
    other = untrained(model, fitted, jax.random.fold_in(key, 3))
    probe = None if has_slot(model) else fit_probe(model, probing)
    return Findings(
        read(partial(layerwise, model, probe=probe), "the model"),
        None if other is None else read(read_by_probe(other, probing), "an untrained model"),
        best.losses(scored),
        kernel,
        ridge,
    )
