"""Identify the solver that a model runs: distances to every candidate, intervals and a verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy.typing as npt

from ... import Kernel, Task
from ..._core import checks
from ..._core.readable import readable
from ...tasks._task import check_axes
from .._reading.derivatives import LayerPredictions
from .comparison import Options, compare
from .identification import IDENTIFIED, NEAR, NONE, STATUSES, TIED, Identification
from .layer_predictions import flatten, from_arrays, run_model, split_halves, streams_from_arrays
from .stream_identify import check_steps, compare_streams, init_models, read_roles, role_streams


def identify(
    layer_predictions: LayerPredictions,
    fitted: Task,
    scored: Task,
    *,
    candidates: tuple[str, ...] | None = None,
    kernels: tuple[str, ...] | None = None,
    steps: int | None = None,
    strata: int = 2,
    system: tuple[Kernel, float] | None = None,
    seed: int = 0,
    progress: Callable[[str], None] = lambda name: None,
) -> Identification:
    r"""Compare the predictions of every layer with the steps of every candidate solver.

    1. Every candidate is fitted to the predictions on the batch `fitted`, with the same parameters
       for all tasks and the kernel that fits best. Each layer is aligned with one step, which never
       decreases from layer to layer. If a layer is aligned with the last step of a candidate, the
       candidate is fitted again with 4 times as many steps, unless its distance is above 0.1 and
       another candidate has a distance below 0.01.
    2. On the batch `scored`, the relative distances of predictions and of hat matrices $df / dy$
       are averaged over layers. Intervals cover 95 % of 1000 bootstrap resamples of the tasks.
    3. Differences from the nearest candidate are compared on the same resamples, with intervals
       that hold for all candidates together. A candidate is ruled out if it is farther by more than
       `RESOLUTION` = 0.001 in one of the two spaces and not nearer in the other, if it diverges, if
       all its layers are aligned with step 0 and a candidate that takes steps remains, or if a
       special case of it remains and is as near to the model.
    4. Three baselines run no solver, and three nulls have a value of their own at every layer, but
       take no steps (see `Identification`). If rule 3 does not rule out every baseline and every
       null, no solver is identified. If no candidate is close, only the baselines count.
    5. The nested models are weaker statements, from "homogeneous in y" to "a polynomial of K".

    Args:
        layer_predictions: function from a task with y [n] to the predictions before the first layer
            and after every layer [L + 1, q], such as `partial(layerwise, model)`. Tasks with y
            [n, r] have predictions [L + 1, q, r].
        fitted: batch of tasks for the parameters and the alignment.
        scored: batch of other tasks for the distances, of the same shapes except for b. With
            fewer than 12 tasks, the bootstrap intervals are too short.
        candidates: names of candidate solvers; default: all candidates of the catalogue.
        kernels: names of kernels; default: those of the catalogue that are `usual`. Each candidate
            is fitted with every kernel of this list that it accepts.
        steps: largest number of solver steps, 4 L by default (see 1).
        strata: number of groups of equal size, by the condition number of $K + \lambda I$.
        system: kernel and ridge for this condition number; default: those of the candidate that
            fits best.
        progress: function that is called with the name of each candidate before its fit and, after
            the first fit, with the time that is left.

    Source of the intervals: Westfall, Young, Resampling-based multiple testing, 1993.

    >>> import jax
    >>> import icl_krr as ik
    >>> config = ik.tasks.LinearRegression(num_features=2, num_supports=4)
    >>> keys = jax.random.split(jax.random.key(0), (2, 4))
    >>> draw = jax.vmap(ik.tasks.sample, in_axes=(0, None))
    >>> model = ik.constructions.nadaraya_watson(ik.Exponential(0.7), num_features=2)
    >>> layers = lambda task: ik.probes.layerwise(model, task)
    >>> tasks = [draw(key, config) for key in keys]
    >>> identify(layers, *tasks, candidates=("nadaraya_watson",), kernels=("exponential",)).status
    'identified'
    """
    checks.function("layer_predictions", layer_predictions)
    for name, tasks in (("fitted", fitted), ("scored", scored)):
        check_axes(tasks, 1, name)
    options = Options(candidates, kernels, steps, strata, system, seed, progress)
    return compare(flatten(fitted, scored, run_model(layer_predictions, fitted, scored)), options)


def identify_arrays(
    tasks: Task,
    layer_predictions: npt.ArrayLike | None = None,
    hats: npt.ArrayLike | None = None,
    *,
    other_hats: npt.ArrayLike | None = None,
    streams: npt.ArrayLike | None = None,
    stream_jacobians: npt.ArrayLike | None = None,
    control_streams: npt.ArrayLike | None = None,
    control_jacobians: npt.ArrayLike | None = None,
    **options: Any,
) -> Identification:
    """Identify the solver of a model of any library, from arrays of what it computes.

    Give either the predictions and their derivatives, or the streams and theirs. The first half of
    the tasks fits the candidates, and the second half scores them. All else is as in `identify`, or
    in `identify_streams`. Choose float64: distances of hat matrices below 1e-3 need it.

    Args:
        tasks: batch of b >= 4 tasks, better 24 or more. A mask makes contexts of mixed length;
            streams need y [b, n] and no mask.
        layer_predictions: predictions before the first layer and after every layer [b, L + 1, q],
            or [b, L + 1, q, r] for y [b, n, r].
        hats: derivatives of these predictions with respect to y [b, L + 1, q, n], or
            [b, L + 1, q, r, n, r].
        other_hats: the same derivatives where each task has the outputs y of the next task, and the
            last has those of the first. They tell whether the model is linear in y. Default:
            the nested models do not say it.
        streams: hidden states of the queries before the first layer and after every layer
            [b, L + 1, q, d], L >= 2.
        stream_jacobians: derivatives of these states with respect to y [b, L + 1, q, d, n].
        control_streams: the streams of an untrained model of the same shape. Default: those of
            untrained encoders of this package with as many channels and layers.
        control_jacobians: the derivatives of `control_streams`.
        **options: keyword arguments of `identify` from `candidates` on. With streams, these are
            `candidates`, `kernels`, `steps`, `seed` and `progress`.

    >>> import jax, numpy as np
    >>> import icl_krr as ik
    >>> config = ik.tasks.LinearRegression(num_features=2, num_supports=4)
    >>> keys = jax.random.split(jax.random.key(0), 24)
    >>> tasks = jax.vmap(ik.tasks.sample, in_axes=(0, None))(keys, config)
    >>> slopes = 0.1 * np.einsum("bqp,bnp->bqn", tasks.x_query, tasks.x)  # one gradient step
    >>> hats = np.stack([0 * slopes, slopes], axis=1)
    >>> predictions = np.einsum("blqn,bn->blq", hats, tasks.y)
    >>> names = {"candidates": ("gradient_descent", "nadaraya_watson"), "kernels": ("linear",)}
    >>> result = identify_arrays(tasks, predictions, hats, **names)
    >>> result.status, result.remain
    ('identified', ('gradient_descent',))
    """
    chosen = Options(**options)
    of_streams = {"stream_jacobians": stream_jacobians, "control_streams": control_streams}
    of_streams |= {"control_jacobians": control_jacobians}
    if streams is None:
        _check_absent("without streams", of_streams)
        return compare(from_arrays(tasks, layer_predictions, hats, other_hats), chosen)
    unused = {name: options.get(name) or None for name in ("strata", "system")}
    unused |= {"layer_predictions": layer_predictions, "hats": hats, "other_hats": other_hats}
    _check_absent("with streams", unused)
    layers, *controls = streams_from_arrays(tasks, {"streams": streams} | of_streams)
    check_steps(chosen.steps, layers.streams.shape[1] - 1)
    halves = split_halves(tasks)
    if not controls:
        drawn = init_models(None, layers, tasks, chosen.seed)
        controls = [read_roles(one, tasks)[0] for one in drawn]
    return compare_streams([role_streams(layers, controls, *halves)], chosen)


def _check_absent(when: str, arguments: dict[str, Any]) -> None:
    for name, value in arguments.items():
        if value is not None:
            raise ValueError(f"{name} must not be given {when}")


@readable
class Agreement(NamedTuple):
    """The statement that all identifications of a model allow.

    Attributes:
        status: a status of `Identification`.
        remain: names of the candidates that remain in at least one identification.
        verdict: status, candidates, and the distances of the nearest candidates, in a sentence.
    """

    status: str
    remain: tuple[str, ...]
    verdict: str


def agreement(identifications: Sequence[Identification]) -> Agreement:
    """Combine the identifications of one model with several seeds: the weakest statement holds.

    If two identifications name different solvers, the status is "not distinguishable".

    Args:
        identifications: identifications. They may differ in the seeds of tasks, probes or training.

    >>> import jax, icl_krr as ik
    >>> config = ik.tasks.LinearRegression(num_features=2, num_supports=4)
    >>> model = ik.constructions.nadaraya_watson(ik.Exponential(0.7), num_features=2)
    >>> keys = jax.random.split(jax.random.key(0), (2, 4))
    >>> tasks = [jax.vmap(ik.tasks.sample, in_axes=(0, None))(key, config) for key in keys]
    >>> layers = lambda task: ik.probes.layerwise(model, task)
    >>> names = {"candidates": ("nadaraya_watson",), "kernels": ("exponential",)}
    >>> both = [ik.probes.identify(layers, *pair, **names) for pair in (tasks, tasks[::-1])]
    >>> agreement(both).status
    'identified'
    """
    for one in identifications:
        checks.instance("identifications", one, Identification, "an icl_krr.probes.Identification")
    if not identifications:
        raise ValueError("identifications must have at least one identification, got none")
    status, remain = weakest([(one.status, one.remain) for one in identifications])
    parts = [
        f"{one.best.fit.candidate} "
        f"({', '.join(f'{d.mean:.2g}' for d in one.best.distances.values())})"
        for one in identifications
    ]
    named = f"{status}: {', '.join(remain)}" if remain and status != NONE else status
    words = f"nearest with each seed (distance of predictions, hat matrices): {', '.join(parts)}"
    return Agreement(status, remain, f"{named}; {words}")


def weakest(verdicts: Sequence[tuple[str, Sequence[str]]]) -> tuple[str, tuple[str, ...]]:
    """The status that several identifications allow, from status and remaining names of each."""
    remain = tuple(dict.fromkeys(name for _, names in verdicts for name in names))
    status = max((status for status, _ in verdicts), key=STATUSES.index)
    if status in (IDENTIFIED, NEAR) and len(remain) > 1:
        status = TIED
    return status, remain
