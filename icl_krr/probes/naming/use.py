"""Whether later layers use what linear maps decode from a stream: remove it, or swap it."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...catalogue import candidate, load, make_kernel
from ...residual.tokens import tokens_of_role
from ...tasks import Task, map_tasks
from ...transformer import Transformer, dense
from ...transformer.evaluate import Request, embed_task, evaluate
from .answers import with_other_outputs
from .candidate_fit import CandidateFit
from .candidates import keywords, run

Maps = dict[str, np.ndarray]
"""The maps of the decoded states [L, d, s], by the role of the tokens that hold them."""

LEAST = 0.1
"""Least size of an effect that another is relative to, over the size of the change of the state."""


def construction_of(fit: CandidateFit, num_features: int) -> Transformer:
    """The construction of a candidate with its fitted parameters, all slots in one stream."""
    row = candidate(fit.candidate)
    made = make_kernel(fit.kernel, fit.values)
    own = keywords(row, fit.values) | {"steps": max(fit.alignment)}
    return dense(load(row.construction)(made, num_features=num_features, **own))


@partial(jax.jit, static_argnames=("name", "kernel", "states", "steps"))
def trajectory(name, kernel, logs, states, tasks, steps):
    """States of a solver after every step [b, steps + 1, tokens]."""

    def of_task(task: Task) -> list[jax.Array]:
        made = run(candidate(name), kernel, logs, task, steps)
        return [getattr(made, state) for state in states]

    return map_tasks(of_task, tasks)


Changes = dict[str, np.ndarray]
"""Changes of the states of aligned layers [s, b, L, tokens], by the role of the tokens."""


def changes(fit: CandidateFit, held: dict[str, tuple[str, ...]], tasks: Task) -> dict[str, Changes]:
    """How the states change that each role holds, if they are removed, and if they are swapped.

    A swap puts the states there that the same solver has for the outputs y of another task.
    """
    at, found = np.array(fit.alignment), {}
    for role, names in held.items():
        read = partial(trajectory, fit.candidate, fit.kernel, fit.logs, names, steps=int(max(at)))
        own, other = (
            np.stack([np.asarray(part)[:, at] for part in read(each)])
            for each in (tasks, with_other_outputs(tasks))
        )
        found[role] = {"removed": -own, "swapped": other - own}
    return {kind: {role: both[kind] for role, both in found.items()} for kind in ("removed", "swapped")}


def effects(
    model: Transformer, maps: Maps, by: Changes, tasks: Task, places: np.ndarray
) -> np.ndarray:
    """Changes of the answers [b, L, q] if states are moved in the stream after steps `places`.

    The stream moves in the shortest direction that changes each decoded state and no other one.
    """
    one = jax.tree.map(lambda leaf: leaf[0], tasks)
    stream = jax.eval_shape(partial(embed_task, model), one)
    shape = (len(tasks.x), len(places), len(next(iter(stream.values()))))
    moved = np.zeros((*shape, next(iter(maps.values())).shape[1]))
    for role, own in maps.items():
        at = tokens_of_role((role,), one, model.spec.tokens)
        moved[:, :, at] = np.einsum("lsd,sblt->bltd", np.linalg.pinv(own), by[role])
    return np.asarray(answers_moved(model, tasks, jnp.asarray(moved, tasks.x.dtype), places))


@jax.jit
def answers_moved(model: Transformer, tasks: Task, moved: Any, places: Any) -> jax.Array:
    last = len(model.weights.prologue) + model.blocks_per_step - 1

    def of_task(part: tuple[Task, jax.Array]) -> jax.Array:
        task, moves = part

        def answer(step: Any, move: jax.Array) -> jax.Array:
            def act(stream: dict[str, jax.Array], where: Any) -> dict[str, jax.Array]:
                if where.position != last:
                    return stream
                now = jnp.where(where.step == step - 1, move, 0)
                edges = np.cumsum([value.shape[-1] for value in stream.values()])[:-1]
                parts = jnp.split(now, edges, axis=-1)
                return {slot: stream[slot] + part for slot, part in zip(stream, parts, strict=True)}

            return evaluate(model, task, Request(hooks=(("blocks.*.resid_post", act),)))[0]

        return jax.vmap(answer)(places, moves) - evaluate(model, task)[0][None]

    return jax.lax.map(of_task, (tasks, moved))


def unlike(own: np.ndarray, wanted: np.ndarray, change: np.ndarray) -> float:
    """Relative distance of effects [b, L, q], mean over layers."""
    size = lambda part: np.sqrt(np.sum(part**2, axis=(0, 2)))  # noqa: E731
    return float(np.mean(size(own - wanted) / np.maximum(size(wanted), LEAST * size(change))))
