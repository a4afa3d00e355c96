"""Run `identify_streams` on a trained model, on tasks of its training family."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax

from ...probes import Identification, identify_streams
from ..shared.draws import draw_tasks
from ..shared.runs import Run
from .probe_controls import in_dtype_of_tasks
from .settings import IdentifyConfig
from .trained_model import Show


def examine_streams(
    run: Run, config: IdentifyConfig, progress: Show = lambda words: None
) -> Identification | None:
    """Identify a model through its streams; None for one layer, which says too little, or masks."""
    if run.model.steps < 2:
        return None
    family: Any = dataclasses.replace(run.family, num_queries=config.num_queries)  # pyright: ignore
    key = jax.random.key(config.seed)
    fitted, scored = (
        draw_tasks(jax.random.fold_in(key, i), config.tasks, family).replace(y_query=None)
        for i in (2, 1)
    )
    if fitted.y.ndim > 2 or fitted.mask is not None:
        return None
    model = in_dtype_of_tasks(run.model, fitted)
    given: Any = {"kernels": config.kernels, "steps": config.steps, "seed": config.seed}
    return identify_streams(model, fitted, scored, **given, progress=progress)
