"""The models of `benchmarks.streams`: SolverBench's, in more disguises, and what runs no solver."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple
from zlib import crc32

import jax
import jax.numpy as jnp
import numpy as np

from icl_krr.experiments.solverbench.disguise import perturbed, rotated, superposed
from icl_krr.experiments.solverbench.known import exact, fine_tuned, first
from icl_krr.experiments.solverbench.open_set import functions_of, weights_of
from icl_krr.experiments.solverbench.settings import LINEAR, Setting
from icl_krr.probes import layerwise
from icl_krr.probes.reading.readouts import streams_at
from icl_krr.tasks import Task, map_tasks, system
from icl_krr.transformer import Architecture, Transformer, init

PLAIN, NORMED, SUPERPOSED, TRAINED = "rotated", "LayerNorm", "superposed", "fine-tuned"
JUNK, NOISE, SINGLE = "junk", "noise", "float32"
STRANGER, RANDOM, POWERS = "stranger", "random", "raw powers"

Reader = Transformer | Callable[[Task], jax.Array]

HOLDS = {
    "gradient descent, one drawn step size": "GD steps of other sizes; uses them",
    "gradient descent, rising": "GD steps of other sizes; uses them",
    "Nesterov": "Nesterov's steps; uses them",
    "averaged": "the steps of gradient descent; uses their average",
    "steepest": "steepest descent; uses it",
    "gradient descent, a kernel between": "GD on another kernel; uses it",
    "gradient descent, a mixture": "GD on another kernel; uses it",
    "gradient descent, an anisotropic": "GD on another kernel; uses it",
    "the answer 0": "the steps of gradient descent; uses nothing",
    "a linear function": "the steps of gradient descent; uses x of the query",
    "a random transformer": "random functions; uses them",
}
"""What the stream of a stranger holds and what its answer uses, by the start of its name. A
stranger without weights holds its own answers and x of the query, and has no read-out."""


class Subject(NamedTuple):
    """A model to identify.

    Attributes:
        reader: a Transformer or a function from a task to streams.
        names: names that are right; none for a model that runs no candidate.
        label: what the stream holds and the answer uses, of a model that runs no candidate.
        gap: distance of a model with noise to the oracle of its solver, in its own read-out.
    """

    reader: Reader
    names: tuple[str, ...] = ()
    label: str = ""
    gap: float | None = None


def key_of(*parts: Any) -> jax.Array:
    """A key that depends on the words of a case alone, and not on the order of the cases."""
    return jax.random.key(crc32(repr(parts).encode()))


def known(one: Setting, disguise: str, solver: str, kernel: str, level: float) -> Subject:
    """The construction of a solver in a disguise; `level` is the noise or the channels of junk."""
    model, seed = exact(solver, kernel, one), one.config.seed
    weights, key, gap = model.weights, key_of(solver, kernel, disguise, level, seed), None
    assert weights is not None
    if disguise == NOISE:
        weights = perturbed(weights, jax.random.fold_in(key, 1), level)
        gap = to_oracle(weights, model, one)
    if disguise == TRAINED:
        weights = fine_tuned(weights, first(one.probing), 10 if one.config.quick else 100)
    if disguise == SUPERPOSED:
        tasks, updates = first(one.probing), 20 if one.config.quick else 2000
        width = weights.layout.width - int(level)
        weights = superposed(weights, tasks, key, width, updates)
    else:
        weights = rotated(weights, key)
    reader: Reader = weights
    if disguise in (JUNK, NORMED) or model.layers is not None:
        at = jnp.arange(weights.steps + 1) if model.layers is None else jnp.array(model.layers)
        change = {JUNK: partial(with_junk, key=key, count=int(level)), NORMED: normed}
        reader = partial(changed, weights, at, change.get(disguise, lambda task, streams: streams))
    return Subject(reader, model.truth.names, gap=gap)


def to_oracle(weights: Transformer, model: Any, one: Setting) -> float:
    """The distance of a model's answers to the oracle, as SolverBench writes it in its labels."""
    at = jnp.arange(weights.steps + 1) if model.layers is None else jnp.array(model.layers)

    def answers(task: Task) -> tuple[jax.Array, jax.Array]:
        return layerwise(weights, task)[at][1:], model.solution(task)["prediction"][1:]

    own, right = map(np.asarray, jax.jit(partial(map_tasks, answers))(one.tasks))
    size = lambda part: np.sqrt(np.sum(part**2, axis=(0, 2)))  # noqa: E731
    return float(np.mean(size(own - right) / size(right)))


def changed(weights: Transformer, at: jax.Array, change: Callable, task: Task) -> jax.Array:
    return change(task, streams_at(weights, task, ("query",))[0][at])


def normed(task: Task, streams: jax.Array) -> jax.Array:
    """Each token's channels with mean 0 and size 1, as a pre-norm block reads them."""
    centred = streams - jnp.mean(streams, axis=-1, keepdims=True)
    return centred / jnp.sqrt(jnp.mean(centred**2, axis=-1, keepdims=True) + 1e-6)


def with_junk(task: Task, streams: jax.Array, key: jax.Array, count: int) -> jax.Array:
    """Append channels that no solver has, about as large as the stream, and rotate all of them."""
    size = jnp.sqrt(jnp.mean(streams**2))
    both = jnp.concatenate([streams, size * features(task, len(streams) - 1, key, count)], axis=-1)
    turn = jax.random.orthogonal(jax.random.fold_in(key, 9), both.shape[-1])
    return both @ turn.astype(both.dtype)


def features(task: Task, depth: int, key: jax.Array, count: int) -> jax.Array:
    """Random functions of the queries, of the supports, and of both, [L + 1, q, count].

    A third of each kind. Half of the channels are the same in all layers; the others have other
    random weights in every layer, which drift from layer to layer.
    """
    p, dtype = task.x.shape[-1], task.x.dtype
    keys = jax.random.split(key, 6)
    draw = lambda i, *shape: jax.random.normal(keys[i], shape, dtype)  # noqa: E731
    drift = jnp.concatenate([jnp.zeros((1, count), dtype), draw(0, depth, count) / 2])
    drift = jnp.cumsum(drift, axis=0) * (jnp.arange(count) % 2)
    seen = task.x_query @ draw(1, p, count)
    supports = jnp.mean(
        jnp.tanh(task.x @ draw(2, p, count)) * jnp.cos(task.y[:, None] * draw(3, 1, count)), axis=0
    )
    context = 4 * supports * draw(4, 1, count)[0]
    kind = jnp.arange(count) % 3
    inside = jnp.where(kind != 1, seen, 0) + jnp.where(kind != 0, context, 0)
    phase = draw(5, 1, count)[0] * jnp.pi
    grown = inside[None] * (1 + drift[:, None]) + phase + drift[:, None]
    return jnp.where(jnp.arange(count) % 4 < 2, jnp.cos(grown) * 2**0.5, jnp.tanh(grown))


def strangers(one: Setting) -> dict[str, Callable[[], Subject]]:
    """All models of the open set, by name; those without weights with answers as a stream."""
    key = jax.random.fold_in(jax.random.key(one.config.seed), 9)
    own = jax.random.fold_in(key, int(one.name != LINEAR))

    def of_weights(name: str, build: Callable[[], Transformer]) -> Subject:
        weights = build()
        if not isinstance(weights.spec, Architecture):
            weights = rotated(weights, key_of(name, one.name))
        label = next((words for start, words in HOLDS.items() if name.startswith(start)), "")
        return Subject(weights, label=label)

    def of_function(name: str, function: Callable[[Task], jax.Array]) -> Subject:
        reader = partial(with_queries, function, key_of(name, one.name))
        return Subject(reader, label="its own answers, x of the query")

    every = [(of_weights, weights_of(one, own)), (of_function, functions_of(one))]
    return {name: partial(make, name, part) for make, some in every for name, part in some.items()}


def with_queries(function: Callable, key: jax.Array, task: Task) -> jax.Array:
    """The answers of a function and x of the query, in rotated channels."""
    answers = function(task)[..., None]
    x = jnp.broadcast_to(task.x_query, (len(answers), *task.x_query.shape))
    both = jnp.concatenate([answers, x], axis=-1)
    return both @ jax.random.orthogonal(key, both.shape[-1]).astype(both.dtype)


def powers(one: Setting) -> Subject:
    """A stream whose layer l holds k(x)^T K^j y for all j < l: the span of many solvers' steps."""
    kernel, depth = one.kernel("linear" if one.name == LINEAR else "gaussian"), one.config.steps
    high, key = one.high(kernel), key_of(POWERS, one.name)

    def answers(task: Task) -> jax.Array:
        gram, cross, _ = system(kernel, task)
        each = [task.y]
        for _ in range(depth - 1):
            each.append(gram @ each[-1] / high)
        all_powers = jnp.stack([cross @ one for one in each], axis=-1)
        kept = jnp.tril(jnp.ones((depth + 1, depth)), -1)
        x = jnp.broadcast_to(task.x_query, (depth + 1, *task.x_query.shape))
        both = jnp.concatenate([kept[:, None] * all_powers, x], axis=-1)
        return both @ jax.random.orthogonal(key, both.shape[-1])

    return Subject(answers, label="k(x)^T K^j y for all j < l: the span, and no steps")


def randoms(one: Setting, seed: int) -> dict[str, Callable[[], Subject]]:
    """Untrained encoders, and random functions of the task that drift from layer to layer."""
    p, depth, found = one.tasks.num_features, one.config.steps, {}
    for width in (16, 32, 64):
        for norm in (True, False):
            shape: Any = {"num_features": p, "width": width, "depth": depth, "heads": 4}
            made = Architecture(layer_norm=norm, **shape)
            name = f"untrained encoder, width {width}, {'with' if norm else 'without'} LayerNorm"
            key = key_of(name, one.name, seed)
            found[name] = lambda made=made, key=key: Subject(init(key, made))
    for count in (8, 32, 128):
        name = f"{count} random functions of the task"
        key = key_of(name, one.name, seed)
        found[name] = lambda count=count, key=key: Subject(
            lambda task: features(task, depth, key, count)
        )
    return found


def in_float32(subject: Subject) -> Subject:
    """The model with weights in float32."""
    cast = lambda leaf: jnp.asarray(leaf, jnp.float32)  # noqa: E731
    reader: Any = subject.reader
    if isinstance(reader, Transformer):
        return subject._replace(reader=jax.tree.map(cast, reader))
    weights, *rest = reader.args
    return subject._replace(reader=partial(reader.func, jax.tree.map(cast, weights), *rest))
