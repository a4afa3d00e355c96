"""How far apart two fitted candidates are on given tasks, at the depth of the model."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ... import checks
from ...readable import readable
from ...tasks import Task
from ...tasks.task import check_plain
from ..resampling import INTERVAL_QUANTILES, RESAMPLES, relative_distances, resamples
from .candidate_fit import CandidateFit, paths


@readable
class Separation(NamedTuple):
    """The relative distance between the aligned predictions of two candidates.

    Attributes:
        mean: distance, mean over layers.
        interval: 95 % bootstrap interval of `mean` over tasks (low, high).
        deviation: standard deviation of the bootstrap distribution of `mean`.
        by_layer: distance at every layer [L].
    """

    mean: float
    interval: tuple[float, float]
    deviation: float
    by_layer: tuple[float, ...]


class Program(NamedTuple):
    """The parts of a `CandidateFit` that fix a compiled program; its numbers are apart."""

    candidate: str
    kernel: str
    alignment: tuple[int, ...]


def separation(
    first: CandidateFit, second: CandidateFit, tasks: Task, *, seed: int = 0
) -> Separation:
    r"""Measure how far apart two fitted candidates are at the depth of the model.

    Let $a_l$ and $b_l$ be the predictions of the candidates at the steps that layer $l$ is aligned
    with. The distance at this layer is $|a_l - b_l| / ((|a_l|^2 + |b_l|^2) / 2)^{1/2}$, with norms
    over all tasks and queries. It is at most 2. No model can tell the candidates apart by more than
    this on these tasks, as long as the candidates keep their parameters.

    Args:
        first, second: as in `design`.
        tasks: batch of b tasks, y [b, n], without masks.
        seed: seed of the 1000 bootstrap resamples of the tasks, 0 by default.

    Returns:
        A `Separation`.

    Raises:
        TypeError: a candidate is not a `CandidateFit`.
        ValueError: the candidates are aligned with different numbers of layers.

    >>> import icl_krr as ik
    >>> config = ik.tasks.LinearRegression(num_features=2, num_supports=4)
    >>> keys = jax.random.split(jax.random.key(0), 8)
    >>> tasks = jax.vmap(ik.tasks.sample, in_axes=(0, None))(keys, config)
    >>> fit = CandidateFit("conjugate_gradient", "linear", {"ridge": 0.1}, (1, 2), 0.0)
    >>> found = separation(fit, fit._replace(alignment=(2, 2)), tasks)
    >>> found.by_layer[0] > 0.05, found.by_layer[1]
    (True, 0.0)
    """
    check_pair(first, second)
    check_plain(tasks)
    checks.count("seed", seed, minimum=0)
    squares, sizes = (
        np.asarray(part, float)
        for part in compare(program_of(first), program_of(second), first.logs, second.logs, tasks)
    )
    return summary(squares, sizes, seed)


def summary(squares: np.ndarray, sizes: np.ndarray, seed: int) -> Separation:
    """The separation from squared distances and sizes of every task and layer [b, L]."""
    drawn = np.mean(
        relative_distances(squares, sizes, resamples(len(squares), RESAMPLES, seed)), axis=-1
    )
    by_layer = relative_distances(squares, sizes, np.ones(len(squares)))
    low, high = np.quantile(drawn, INTERVAL_QUANTILES)
    return Separation(
        float(by_layer.mean()),
        (float(low), float(high)),
        float(drawn.std()),
        tuple(by_layer.tolist()),
    )


@partial(jax.jit, static_argnums=(0, 1))
def compare(
    first: Program, second: Program, own: jax.Array, others: jax.Array, tasks: Task
) -> tuple[Float[Array, "b L"], Float[Array, "b L"]]:
    """Squared distances between two candidates, and the mean of their squared sizes."""
    a, b = predictions(first, own, tasks), predictions(second, others, tasks)
    return jnp.sum((a - b) ** 2, axis=-1), jnp.sum(a**2 + b**2, axis=-1) / 2


def predictions(fit: Program, logs: Any, tasks: Task) -> Float[Array, "b L q"]:
    """Predictions at the aligned steps."""
    found = paths(fit.candidate, fit.kernel, logs, tasks, max(1, *fit.alignment))
    return found[:, np.asarray(fit.alignment)]


def program_of(fit: CandidateFit) -> Program:
    return Program(fit.candidate, fit.kernel, tuple(fit.alignment))


def check_pair(first: CandidateFit, second: CandidateFit) -> None:
    for name, fit in (("first", first), ("second", second)):
        checks.instance(name, fit, CandidateFit, "an icl_krr.probes.CandidateFit")
    if len(first.alignment) != len(second.alignment):
        raise ValueError(
            f"second must be aligned with as many layers as first, {len(first.alignment)}, "
            f"got {len(second.alignment)}; fit both to the same model"
        )
