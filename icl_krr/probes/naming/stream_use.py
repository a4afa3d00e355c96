"""Whether later layers use what linear maps decode from a stream: remove it, or swap it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...catalogue import candidate
from ...residual.tokens import tokens_of_role
from ...tasks import Task, map_tasks
from ...transformer import Transformer
from ...transformer.evaluate import Request, embed_task, evaluate
from ..reading.readouts import StreamReader, streams_at
from .answers import with_other_outputs
from .candidate_fit import CandidateFit
from .candidates import run
from .decoding import Layers, Rows, decoders
from .ruling import CLOSE
from .stream_rules import (
    OWN,
    UNTRAINED,
    Read,
    Seen,
    construction_of,
    gaps_of,
    measured,
    own_rows,
    own_target,
)
from .suspect import Suspect

ROLES = ("query", "support")
Directions = dict[str, np.ndarray]
"""The directions in which decoded states change [L, s, d], by the role of the tokens."""
Held = dict[str, dict[str, Rows]]
"""Rows of the states that a model's streams hold, by the role of their tokens."""
Changes = dict[str, np.ndarray]
"""Changes of the states of aligned layers [s, b, L, tokens], by the role of the tokens."""
LEAST = 0.1
"""Least size of an effect by which another effect is divided, over the change of the state."""


def with_slopes(reader: Callable[[Task], Any], task: Task) -> Any:
    read = lambda y: reader(task.replace(y=y))  # noqa: E731
    return read(task.y), jax.jacfwd(read)(task.y)


@jax.jit
def read_model(model: Transformer, tasks: Task) -> list[tuple[jax.Array, jax.Array]]:
    """The streams of both roles and their derivatives."""
    every = partial(streams_at, model, roles=ROLES)
    return [*zip(*map_tasks(partial(with_slopes, every), tasks), strict=True)]


def read_roles(reader: Transformer | StreamReader, tasks: Task) -> list[Layers]:
    """The streams at the queries and, of a whole model, those at the supports."""
    if isinstance(reader, Transformer):
        return [Layers(*map(np.asarray, one)) for one in read_model(reader, tasks)]
    read = jax.jit(partial(map_tasks, partial(with_slopes, reader)))
    return [Layers(*map(np.asarray, read(tasks)))]


def together(fitted: Task, scored: Task) -> Task:
    """Both batches in one."""
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), fitted, scored)


def states_of(fit: CandidateFit) -> tuple[str, ...]:
    """The states of supports that the oracle of a candidate returns."""
    one = Task(np.zeros((3, 1)), np.zeros(3), np.zeros((1, 1)))
    made = jax.eval_shape(
        lambda logs, task: run(candidate(fit.candidate), fit.kernel, logs, task, 1), fit.logs, one
    )
    found = {name: getattr(made, name, None) for name in ("alpha", "r")}
    return tuple(
        name for name, value in found.items() if value is not None and value.shape == (2, 3)
    )


def with_supports(
    suspect: Suspect, one: Read, of: Seen, steps: int, resample: np.ndarray
) -> tuple[Suspect, Held]:
    """The candidate with its states at the supports, and the states that the streams hold."""
    fit, kept = one.fit, np.array(one.fit.alignment) > 0
    held: Held = {"query": {"prediction": one.rows}, "support": {}}
    found = {}
    for name in states_of(fit):
        rows = own_rows(fit, (of.fitted, of.scored), of.size, steps, name)
        wanted = {OWN: own_target(fit, rows)}
        for words, model in {"": of.model, f", {UNTRAINED}": next(iter(of.controls), None)}.items():
            if model is not None:
                gaps = gaps_of(wanted, model, of.start, of.tasks, kept)[OWN]
                found[name + words] = measured(gaps, resample)
        if found[name]["state"].mean <= CLOSE:
            held["support"][name] = rows
    own = suspect.evidence._replace(supports=found)  # pyright: ignore[reportOptionalMemberAccess]
    return suspect._replace(evidence=own), {role: own for role, own in held.items() if own}


def with_effects(
    suspect: Suspect, one: Read, roles: Sequence[Seen], held: Held, model: Transformer, steps: int
) -> Suspect:
    """Move the states that the streams hold, and compare what follows with the construction."""
    if suspect.distances["state"].mean > CLOSE:
        return suspect
    of, fit = roles[0], one.fit
    at = np.array(fit.alignment)
    layers, each = np.flatnonzero(at) + 1, at[at > 0]
    known = jax.tree.map(
        lambda leaf: jnp.asarray(leaf, of.fitted.x.dtype), construction_of(fit, of.fitted)
    )
    read = read_roles(known, together(of.fitted, of.scored))
    own, its = {}, {}
    for role, states in held.items():
        i = ROLES.index(role)
        made = decoders(read[i], len(of.fitted.x), of.size)
        targets = [np.stack([r.fitted[:, t] for r in states.values()], axis=1) for t in each]
        for along, every, places in ((own, roles[i].model, layers), (its, made, each)):
            pairs = zip(places, targets, strict=True)
            along[role] = np.stack([every.states[k].directions(t)[:, :-1] for k, t in pairs])
    found = {}
    for kind, by in changes(fit, held, of, steps).items():
        moved = effects(model, own, by, of.scored, layers)
        wanted = effects(known, its, by, of.scored, each)
        found[kind] = unlike(moved, wanted, by["query"][0])
    far = ", ".join(f"{kind} {value:.2g}" for kind, value in found.items())
    follows = all(value <= CLOSE for value in found.values())  # NaN does not
    because = "" if follows else f"the answer does not follow its states ({far})"
    evidence = suspect.evidence._replace(effects=found)  # pyright: ignore[reportOptionalMemberAccess]
    return suspect._replace(evidence=evidence, because=because)


def changes(fit: CandidateFit, held: Held, of: Seen, steps: int) -> dict[str, Changes]:
    """How the states of each role change if they are removed, or swapped for another task's y."""
    pair, at = (of.scored, with_other_outputs(of.scored)), np.array(fit.alignment)
    found: dict[str, Changes] = {"removed": {}, "swapped": {}}
    for role, states in held.items():
        rows = [own_rows(fit, pair, of.size, steps, name) for name in states]
        shape = (len(rows), of.tasks, -1, 1 + of.fitted.num_supports, rows[0].scored.shape[1])
        own, other = (
            of.size * np.moveaxis(np.stack(part).reshape(shape)[..., 0, :], -1, 2)[:, :, at[at > 0]]
            for part in zip(*rows, strict=True)
        )
        found["removed"][role], found["swapped"][role] = -own, other - own
    return found


def effects(
    model: Transformer, along: Directions, by: Changes, tasks: Task, places: np.ndarray
) -> np.ndarray:
    """Changes of the answers [b, L, q] if states are moved in the stream after steps `places`."""
    one = jax.tree.map(lambda leaf: leaf[0], tasks)
    stream = jax.eval_shape(partial(embed_task, model), one)
    shape = (len(tasks.x), len(places), len(next(iter(stream.values()))))
    moved = np.zeros((*shape, next(iter(along.values())).shape[2]))
    for role, own in along.items():
        at = tokens_of_role((role,), one, model.spec.tokens)
        moved[:, :, at] = np.einsum("lsd,sblt->bltd", own, by[role])
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
