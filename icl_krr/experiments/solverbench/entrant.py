"""`identify` as a participant of SolverBench: its verdict on answers and hat matrices."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

from ...probes import Identification, identify_arrays
from ...probes.naming.distances import SPACES
from ...tasks import Task
from .models import Answers
from .reading import Submitted
from .verdicts import IDENTIFIED, NEAR, NONE, TIED, Verdict


def identify_answers(tasks: Task, answers: Answers, **options: Any) -> Identification | None:
    """Identify a model from its answers; None if they are not finite.

    Args:
        tasks: tasks of the answers.
        answers: predictions and hat matrices.
        options: options of `identify`.
    """
    if not all(np.isfinite(values).all() for values in answers):
        return None
    return identify_arrays(tasks, *answers, **options)


def verdict_of(found: Identification | None) -> Verdict:
    """The verdict in the words of SolverBench."""
    if found is None or found.status not in (IDENTIFIED, TIED, NEAR):
        return Verdict(NONE)
    names = found.remain if found.status != NEAR else (found.best.fit.candidate,)
    return Verdict(found.status, names)


def identify_models(
    models: list[Submitted], seed: int, done: Collection[str] = ()
) -> Iterator[dict[str, Any]]:
    """Yield a row for every model: the verdict, the nearest candidate and its distances.

    Args:
        models: models of SolverBench.
        seed: seed of the bootstrap.
        done: names of models to skip.
    """
    for one in models:
        if one.name not in done:
            try:
                found = identify_answers(one.tasks, one.answers, seed=seed)
            except ValueError as error:  # answers of other shapes than the tasks ask for
                raise ValueError(f"{one.name}: {error}") from None
            yield {"model": one.name, **row_of(found)}


def row_of(found: Identification | None) -> dict[str, Any]:
    """The verdict as a line of a table, with the distances of the nearest candidate."""
    verdict = verdict_of(found)
    row: dict[str, Any] = {"status": verdict.status, "names": " ".join(verdict.names)}
    if found is None:
        return row
    best = found.best
    near = {space: best.distances[space].mean for space in SPACES}
    return row | {"nearest": best.fit.candidate, "kernel": best.fit.kernel, **near}
