"""Predictions of a model under interventions: many at once, in bounded memory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ... import Task
from ..._core import checks
from ...residual import ROLES, fields
from ...tasks._task import check_axes
from ...transformer import Transformer, Where
from ...transformer._evaluate import evaluate_task
from ...transformer._hook_points import Request
from ...transformer._run_plan import check_compatible, prepare_run
from .sites import Site, check_sites

CHUNK = 16
"""Number of interventions that run in parallel."""


class SiteCodes(NamedTuple):
    """Sites as arrays, for one program; `hits` marks the (position, point) pairs of each site."""

    hits: jax.Array
    step: jax.Array
    channels: jax.Array
    roles: jax.Array


def ablate(
    model: Transformer,
    tasks: Task,
    sites: Sequence[Site],
    *,
    replace: str = "zero",
    chunk: int = CHUNK,
) -> Float[Array, "S b ..."]:
    """Predict a batch of tasks once for each of S sites, with its activations removed: [S, b, ...].

    One compiled program runs all sites. Scratch memory is at most `2 * chunk` times that of one
    prediction (`icl_krr.memory(model, task).scratch`), plus the size of the result.

    Args:
        sites: sites of this model, as `sites` returns them.
        replace: what replaces the activations: "zero", or "mean", their mean over the tasks and
            over the tokens of the same role.
        chunk: number of sites that run in parallel.

    >>> import icl_krr as ik
    >>> config = ik.tasks.LinearRegression(num_features=2, num_supports=4)
    >>> keys = jax.random.split(jax.random.key(0), 3)
    >>> tasks = jax.vmap(ik.tasks.sample, in_axes=(0, None))(keys, config)
    >>> model = ik.constructions.conjugate_gradient(ik.Linear(), num_features=2, ridge=0.1, steps=2)
    >>> found = ik.probes.sites(model, ("head",))
    >>> ablate(model, tasks, found).shape == (len(found), 3, 1)
    True
    """
    checks.choice("replace", replace, ("zero", "mean"))
    _check_run_of(model, tasks, sites, chunk)
    if replace == "mean":
        _same_outputs(model, tasks)
    ids, codes = encoded(model, sites)
    source = role_means(model, tasks, point_names(ids)) if replace == "mean" else None
    return run_interventions(model, tasks, codes, source, ids, chunk)


def patch(
    model: Transformer, tasks: Task, sites: Sequence[Site], source: Task, *, chunk: int = CHUNK
) -> Float[Array, "S b ..."]:
    """Predict a batch of tasks once for each site, with that site's activations from other tasks.

    Memory is as for `ablate`, plus the activations of one run at the sites.

    Args:
        sites, chunk: as in `ablate`.
        source: batch of b tasks with the shapes of `tasks`. The activations of task i of `source`
            replace the activations of task i of `tasks`.

    >>> import icl_krr as ik
    >>> config = ik.tasks.LinearRegression(num_features=2, num_supports=4)
    >>> keys = jax.random.split(jax.random.key(0), (2, 3))
    >>> tasks, others = (jax.vmap(ik.tasks.sample, in_axes=(0, None))(k, config) for k in keys)
    >>> model = ik.constructions.conjugate_gradient(ik.Linear(), num_features=2, ridge=0.1, steps=2)
    >>> (prediction,) = [site for site in ik.probes.sites(model) if site.name == "prediction"]
    >>> patched = patch(model, tasks, [prediction], others)[0]
    >>> bool(jnp.all(patched == ik.predict_batch(model, others)))
    True
    """
    _check_run_of(model, tasks, sites, chunk)
    check_axes(source, 1, "source")
    check_compatible(model, source, batch=1)
    _same_outputs(model, tasks)
    theirs, ours = ([one.x.shape, one.y.shape, one.x_query.shape] for one in (source, tasks))
    if theirs != ours:
        raise ValueError(f"source must have x, y and x_query of shapes {ours}, got {theirs}")
    ids, codes = encoded(model, sites)
    return run_interventions(model, tasks, codes, source, ids, chunk)


def _check_run_of(model: Transformer, tasks: Task, sites: Sequence[Site], chunk: int) -> None:
    plan = prepare_run(model, tasks, batch=1, chunk=1, copies=0)
    checks.count("chunk", chunk)
    check_sites(model, sites)
    plan.check_memory(copies=min(chunk, len(sites)))


def _same_outputs(model: Transformer, tasks: Task) -> None:
    if tasks.num_outputs != model.spec.num_outputs:
        raise ValueError(
            f"tasks for patch and for ablate(replace='mean') must have num_outputs = "
            f"{model.spec.num_outputs} like the model, got {tasks.num_outputs}; "
            "pass one output at a time"
        )


PlacesAndPoints = tuple[tuple[int, str], ...]


def point_names(ids: PlacesAndPoints) -> tuple[str, ...]:
    return tuple(sorted({point for _, point in ids}))


def encoded(model: Transformer, sites: Sequence[Site]) -> tuple[PlacesAndPoints, SiteCodes]:
    """All (position, point) pairs that belong to at least one site, and the sites as arrays."""
    positions = range(len(model.blocks))
    pairs = [
        {(at, point) for at in positions if site.position in (None, at) for point in site.points}
        for site in sites
    ]
    ids = tuple(sorted(set().union(*pairs)))
    parts = (
        [[pair in site_pairs for pair in ids] for site_pairs in pairs],
        [-1 if site.step is None else site.step for site in sites],
        [site.channels or (0, jnp.iinfo(jnp.int32).max) for site in sites],
        [[role in site.roles for role in ROLES] for site in sites],
    )
    return ids, SiteCodes(*jax.device_put([*map(np.asarray, parts)]))


@partial(jax.jit, static_argnames=("ids", "chunk"))
def run_interventions(
    model: Transformer, tasks: Task, codes: SiteCodes, source: Any, ids: PlacesAndPoints, chunk: int
):
    paired = isinstance(source, Task)

    def at(code: SiteCodes) -> jax.Array:
        def of_task(both: tuple[Task, Task | None]) -> jax.Array:
            task, other = both
            points = captured_points(model, other, point_names(ids)) if other else source
            hooks = _intervention_hooks(model, task, code, points, ids)
            return evaluate_task(model, task, Request(hooks=hooks))[0]

        return jax.lax.map(of_task, (tasks, source if paired else None))

    return jax.lax.map(at, codes, batch_size=chunk)


def captured_points(model: Transformer, task: Task, names: tuple[str, ...]) -> list[dict[str, Any]]:
    _, (_, points) = evaluate_task(model, task, Request(keep=names))
    return points


def _intervention_hooks(
    model: Transformer, task: Task, code: SiteCodes, source: list | None, ids: PlacesAndPoints
) -> tuple:
    """One hook for every point. A hook changes only the values of the site in `code`."""
    numbers = {pair: i for i, pair in enumerate(ids)}
    here = jnp.any((_role_flags(model, task) > 0) & code.roles[None], axis=1, keepdims=True)

    def act(point: str, value: jax.Array, where: Where) -> jax.Array:
        number = numbers.get((where.position, point))
        if number is None:
            return value
        flat = value.reshape(len(value), -1)
        other = jnp.zeros_like(flat)
        if source is not None:
            captured = source[where.position][point]
            inside = where.position >= len(model.weights.prologue)
            other = (captured[where.step] if inside else captured).reshape(flat.shape)
        low, high = code.channels
        among = (jnp.arange(flat.shape[1]) >= low) & (jnp.arange(flat.shape[1]) < high)
        hit = code.hits[number] & ((code.step < 0) | (code.step == where.step))
        return jnp.where(hit & among[None] & here, other, flat).reshape(value.shape)

    return tuple((f"blocks.*.{point}", partial(act, point)) for point in point_names(ids))


def _role_flags(model: Transformer, task: Task) -> Float[Array, "T 3"]:
    """Flags of the three roles at every token; all are 0 at padding."""
    flags = fields(task, model.spec.tokens)
    return jnp.concatenate([flags[role] for role in ROLES], axis=1)


@partial(jax.jit, static_argnames="names")
def role_means(model: Transformer, tasks: Task, names: tuple[str, ...]) -> list[dict[str, Any]]:
    """Mean of every point over tasks and tokens of one role, structured as the points of a run."""
    first = len(model.weights.prologue)

    def over(rule: str, blocks: list[dict[str, Any]], by: jax.Array) -> list[dict[str, Any]]:
        rules = [rule.replace("l", "") if i < first else rule for i in range(len(blocks))]
        each = zip(rules, blocks, strict=True)
        return [{k: jnp.einsum(r, v, by) for k, v in block.items()} for r, block in each]

    def sums(task: Task) -> tuple[Any, jax.Array]:
        by = _role_flags(model, task)
        return over("lt...,tr->lr...", captured_points(model, task, names), by), jnp.sum(by, axis=0)

    totals, counts = jax.tree.map(lambda sum: jnp.sum(sum, axis=0), jax.lax.map(sums, tasks))
    some = jax.tree.map(lambda field: field[0], tasks.replace(mask=None))
    shares = _role_flags(model, some) / jnp.maximum(counts, 1)[None]
    return over("lr...,tr->lt...", totals, shares)
