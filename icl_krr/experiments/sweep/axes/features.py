"""Axis "features": conjugate gradient by linear attention on m features of the kernel."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax

from .... import constructions, solvers
from ....sketches import nystrom_features, positive_features, trigonometric_features
from ....tasks import Task
from ..config import SweepConfig
from ..setting import OVER_VALUES, Models, Setting, kernel_of

RANDOM = {
    "positive": partial(positive_features, orthogonal=False),
    "positive, orthogonal": positive_features,
    "trigonometric": trigonometric_features,
}


def build(line: str, value: Any, task: Task, config: SweepConfig, key: jax.Array) -> Setting:
    kernel, p = kernel_of(config), task.num_features
    if line == "landmarks":
        phi = nystrom_features(kernel, task.x[:value])
    else:
        phi = RANDOM[line](key, kernel, num_features=p, width=value)
    model = constructions.conjugate_gradient(
        kernel, num_features=p, ridge=config.ridge, steps=config.steps, sketch=phi
    )
    exact = solvers.exact(kernel, task, ridge=config.ridge).prediction
    return Setting(model, task, exact, smoother=kernel)


AXIS = Models(build, OVER_VALUES, traced=False)
