"""Linear probes of the support tokens for the state of a solver, with controls."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ... import checks
from ...catalogue import candidate as find_candidate
from ...readable import readable
from ...tasks import Task, map_tasks
from ...tasks.task import check_plain
from ...transformer import Transformer
from ...transformer.admission import check_compatible
from ..reading.readouts import ridge_regression, streams_at
from .candidate_fit import CandidateFit
from .candidates import run

STATES = ("alpha", "r")
FUNCTIONS, FREQUENCY = 16, 4
"""Number of random functions of x, and their mean frequency times the typical size of x."""


@readable
class StateProbe(NamedTuple):
    """How well the support tokens predict one state of a solver, with controls.

    Every value is the share of the variance of the target that a linear probe predicts on tasks
    that it is not fitted to, R^2. It is 1 for a perfect probe, about 0 for a probe without
    information, and below 0 for a probe that is worse than the mean.

    Attributes:
        state: name of the state, "alpha" or "r".
        found: R^2 of the state at the step that the layer is aligned with [L + 1].
        controls: {control: R^2 [L + 1]} for the controls of `probe_states`.
    """

    state: str
    found: np.ndarray
    controls: dict[str, np.ndarray]

    @property
    def selectivity(self) -> np.ndarray:
        """R^2 minus the largest R^2 of the controls, which counts as at least 0, [L + 1]."""
        return self.found - np.max([0 * self.found, *self.controls.values()], axis=0)


def probe_states(
    model: Transformer,
    fit: CandidateFit,
    fitted: Task,
    scored: Task,
    *,
    untrained: Transformer | None = None,
    seed: int = 0,
) -> tuple[StateProbe, ...]:
    r"""Probe the support tokens of every layer for $\alpha_t$ and $r_t$ of a solver.

    The target at layer $l$ is the state of the solver at the step $t$ that the layer is aligned
    with, and at step 0 before the first layer. The features are all channels of the support's
    token, so the states may be rotated or superposed. A ridge regression is fitted to the supports
    of all tasks of `fitted` and scored on `scored`. A high R^2 is evidence about the layer only if
    these controls have a lower one:

    - "start": the same targets, read from the stream before the first layer. It holds x and y, so
      this control shows what needs no layer at all.
    - "shuffled": the states of another task, drawn at random without replacement.
    - "random": control tasks of Hewitt and Liang. The targets are 16 random functions of the
      support's x alone, the same for all tasks: cosines of random projections. They say nothing
      about solvers, but a probe can read them from a rich code of x.
    - "untrained": the same targets, read from a model with random weights, if it is given.

    Args:
        model: trained or constructed model.
        fit: the candidate whose states are probed, with the alignment of all layers of `model`.
        fitted: batch of b >= 2 tasks for the probes, y [b, n], without masks.
        scored: batch of other tasks for R^2, y [b, n], without masks.
        untrained: model of the same architecture with random weights; default None: without this
            control.
        seed: seed of the controls, 0 by default.

    Returns:
        A `StateProbe` for alpha, if the solver has it, and one for r.

    Raises:
        TypeError: `fit` is not a `CandidateFit`, or a model is not a `Transformer`.
        ValueError: the solver has no states of supports, or `fit` is aligned with another number of
            layers.

    Source: Hewitt, Liang, Designing and interpreting probes with control tasks, EMNLP 2019.

    >>> import icl_krr as ik
    >>> config = ik.tasks.LinearRegression(num_features=2, num_supports=4)
    >>> keys = jax.random.split(jax.random.key(0), (2, 16))
    >>> halves = [jax.vmap(ik.tasks.sample, in_axes=(0, None))(key, config) for key in keys]
    >>> model = ik.constructions.gradient_descent(
    ...     ik.Linear(), num_features=2, ridge=0.1, steps=2, step_size=0.1
    ... )
    >>> values = {"ridge": 0.1, "step_size": 0.1}
    >>> fit = CandidateFit("gradient_descent", "linear", values, (1, 2), 0.0)
    >>> alpha, r = probe_states(model, fit, *halves)
    >>> r.found.round(2).tolist()
    [1.0, 1.0, 1.0]
    """
    checks.instance("fit", fit, CandidateFit, "an icl_krr.probes.CandidateFit")
    check_plain(fitted, "fitted")
    check_plain(scored, "scored")
    check_compatible(model, fitted, batch=1)
    check_compatible(model, scored, batch=1)
    checks.count("seed", seed, minimum=0)
    if len(fitted.x) < 2:
        raise ValueError(f"fitted must be a batch of at least 2 tasks, got {len(fitted.x)}")
    if len(fit.alignment) != model.steps:
        raise ValueError(
            f"fit must be aligned with the {model.steps} layers of the model, "
            f"got {len(fit.alignment)}"
        )
    if not has_states(fit):
        raise ValueError(
            f"fit must be a solver with a residual of every support, got {fit.candidate}"
        )
    keys = jax.random.split(jax.random.key(seed), 3)
    own = [np.asarray(streams_of(model, tasks)) for tasks in (fitted, scored)]
    others = [] if untrained is None else [streams_of(untrained, t) for t in (fitted, scored)]
    size = np.sqrt(np.mean(np.sum(np.asarray(fitted.x) ** 2, axis=-1)))
    random = [random_functions(keys[2], tasks, model.steps + 1, size) for tasks in (fitted, scored)]
    results = []
    for name in states_of(fit):
        target = [states(name, fit, tasks) for tasks in (fitted, scored)]
        shuffled = [
            jax.random.permutation(key, part) for key, part in zip(keys[:2], target, strict=True)
        ]
        start = [np.broadcast_to(part[:, :1], part.shape) for part in own]
        pairs = {"start": (start, target), "shuffled": (own, shuffled), "random": (own, random)}
        if others:
            pairs["untrained"] = (others, target)
        controls = {control: explained(*pair) for control, pair in pairs.items()}
        results.append(StateProbe(name, explained(own, target), controls))
    return tuple(results)


def support_streams(model: Transformer, task: Task) -> Float[Array, "layers n d"]:
    """Return all channels of the support tokens, before the first step and after every step.

    Args:
        model: trained or constructed model.
        task: one task.

    Returns:
        The stream [L + 1, n, d], in the dtype of the task. The slots are side by side.

    >>> import icl_krr as ik
    >>> spec = ik.Architecture(num_features=1, width=8, depth=3, heads=1)
    >>> task = ik.Task(x=[[1.0]], y=[3.0], x_query=[[1.0], [1.0]])
    >>> support_streams(ik.init(jax.random.key(0), spec), task).shape
    (4, 1, 9)
    """
    return streams_at(model, task, ("support",))[0]


@jax.jit
def streams_of(model: Transformer, tasks: Task) -> Float[Array, "b layers n d"]:
    return map_tasks(partial(support_streams, model), tasks)


def has_states(fit: CandidateFit) -> bool:
    """Whether the solver has a residual for every support, which a probe can look for."""
    return bool(states_of(fit))


def states_of(fit: CandidateFit) -> tuple[str, ...]:
    """The states of supports that the oracle of a candidate returns."""
    if not find_candidate(fit.candidate).iterates:
        return ()
    one = Task(np.zeros((3, 1)), np.zeros(3), np.zeros((1, 1)))
    made = jax.eval_shape(lambda logs, task: run_of(fit, logs, task, 1), fit.log_rows[0], one)
    found = {name: getattr(made, name, None) for name in STATES}
    return tuple(
        name for name, value in found.items() if value is not None and value.shape == (2, 3)
    )


def states(name: str, fit: CandidateFit, tasks: Task) -> Float[Array, "b layers n"]:
    """A state at step 0 and at the aligned steps."""
    at, rows = np.asarray([0, *fit.alignment]), fit.log_rows
    each = np.zeros(len(at), int) if len(rows) == 1 else np.asarray([0, *range(len(rows))])

    def of_task(task: Task) -> jax.Array:
        made = [getattr(run_of(fit, logs, task, max(1, *at)), name) for logs in rows]
        return jnp.stack([made[i][step] for i, step in zip(each, at, strict=True)])

    return jax.jit(partial(map_tasks, of_task))(tasks)


def run_of(fit: CandidateFit, logs: Float[Array, " k"], task: Task, steps: int) -> Any:
    return run(find_candidate(fit.candidate), fit.kernel, logs, task, int(steps))


@partial(jax.jit, static_argnames="layers")
def random_functions(
    key: jax.Array, tasks: Task, layers: int, size: jax.Array
) -> Float[Array, "b layers n functions"]:
    """Cosines of random projections of x with random phases; the same functions at all layers."""
    one, two = jax.random.split(key)
    w = jax.random.normal(one, (tasks.num_features, FUNCTIONS), tasks.x.dtype) * FREQUENCY / size
    phase = jax.random.uniform(two, (1, 1, 1, FUNCTIONS), tasks.x.dtype) * 2 * np.pi
    values = jnp.cos(jnp.einsum("bnp,pf->bnf", tasks.x, w)[:, None] + phase)
    return jnp.broadcast_to(values, (len(values), layers, *values.shape[2:]))


def explained(features: list[Any], targets: list[Any]) -> np.ndarray:
    """R^2 on the second half of probes that are fitted to the first half, for every layer."""
    return np.asarray(held_out(features, targets), float)


@jax.jit
def held_out(features: list[jax.Array], targets: list[jax.Array]) -> Float[Array, " layers"]:
    fitted, scored = (
        (rows(h), rows(y if y.ndim == 4 else y[..., None]))
        for h, y in zip(features, targets, strict=True)
    )
    count, n = targets[0].shape[0], targets[0].shape[2]
    cut = max(1, 3 * count // 4) * n

    def of_layer(part: tuple[jax.Array, ...]) -> jax.Array:
        h, y, h_new, y_new = part
        weights, mean, offset = ridge_regression(h, y, cut)
        guess = jnp.einsum("md,dr->mr", h_new - mean[None], weights) + offset[None]
        total = jnp.sum((y_new - jnp.mean(y_new, axis=0, keepdims=True)) ** 2)
        rest = jnp.sum((y_new - guess) ** 2)
        return jnp.where(total > 0, 1 - rest / jnp.where(total > 0, total, 1), 0)

    return jax.lax.map(of_layer, (*fitted, *scored))


def rows(values: Float[Array, "b layers n d"]) -> Float[Array, "layers m d"]:
    """The supports of all tasks, one row each."""
    return jnp.moveaxis(values, 1, 0).reshape(values.shape[1], -1, values.shape[-1])
