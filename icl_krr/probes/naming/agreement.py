"""What several identifications of one model say together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ... import checks
from ...readable import readable
from .identification import IDENTIFIED, NEAR, STATUSES, TIED, Identification


@readable
class Agreement(NamedTuple):
    """The statement that all identifications of a model allow.

    Attributes:
        status: a status of `Identification`.
        remain: names of the candidates that remain in any of them.
        verdict: status, candidates, and the distances of the nearest candidates, in a sentence.
    """

    status: str
    remain: tuple[str, ...]
    verdict: str


def agreement(found: Sequence[Identification]) -> Agreement:
    """Combine the identifications of one model with several seeds: the weakest statement holds.

    If two of them name different solvers, these are not distinguishable.

    Args:
        found: identifications, at least one. They may differ in the seeds of tasks, probes or
            training.

    Returns:
        An `Agreement`.

    Raises:
        TypeError: an entry is not an `Identification`.
        ValueError: `found` is empty.

    >>> import jax, icl_krr as ik
    >>> config = ik.tasks.LinearRegression(num_features=2, num_supports=4)
    >>> model = ik.constructions.nadaraya_watson(ik.Exponential(0.7), num_features=2)
    >>> keys = jax.random.split(jax.random.key(0), (2, 4))
    >>> tasks = [jax.vmap(ik.tasks.sample, in_axes=(0, None))(key, config) for key in keys]
    >>> answers = lambda task: ik.probes.layerwise(model, task)
    >>> names = {"candidates": ("nadaraya_watson",), "kernels": ("exponential",)}
    >>> both = [ik.probes.identify(answers, *pair, **names) for pair in (tasks, tasks[::-1])]
    >>> agreement(both).status
    'identified'
    """
    for one in found:
        checks.instance("found", one, Identification, "an icl_krr.probes.Identification")
    if not found:
        raise ValueError("found must have at least one identification, got none")
    status, remain = weakest([(one.status, one.remain) for one in found])
    parts = [
        f"{one.best.fit.candidate} "
        f"({', '.join(f'{d.mean:.2g}' for d in one.best.distances.values())})"
        for one in found
    ]
    named = f"{status}: {', '.join(remain)}" if remain else status
    words = f"nearest with each seed (distance of predictions, hat matrices): {', '.join(parts)}"
    return Agreement(status, remain, f"{named}; {words}")


def weakest(found: Sequence[tuple[str, Sequence[str]]]) -> tuple[str, tuple[str, ...]]:
    """The status that several identifications allow, from status and remaining names of each."""
    remain = tuple(dict.fromkeys(name for _, names in found for name in names))
    status = max((status for status, _ in found), key=STATUSES.index)
    if status in (IDENTIFIED, NEAR) and len(remain) > 1:
        status = TIED
    return status, remain
