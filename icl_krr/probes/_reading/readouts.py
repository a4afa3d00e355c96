"""A model's prediction after every layer: from its prediction slot, or by a linear probe."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ... import Task, Transformer, map_tasks, run_with_cache
from ..._core import checks
from ..._core.linalg import eigh
from ..._core.numerics import matmul
from ..._core.pytree import pytree_dataclass
from ...residual import key_mask
from ...residual._tokens import role_slice
from ...tasks._batches import unstack
from ...tasks._task import check_axes
from ...transformer._evaluate import embed_task
from ...transformer._forward import forward
from ...transformer._run_plan import check_compatible, prepare_run
from ...transformer._weights import check_model

RIDGES = 10.0 ** np.arange(-8.0, 2.0)  # NumPy, as this may be imported inside a JAX trace
"""Ridges that a probe chooses from, relative to the mean variance of the features."""


@pytree_dataclass
class Probe:
    """An affine readout $b + (h - m) W$ of the queries' stream $h$ for every layer.

    Args:
        weights: matrix $W$ of every layer [L + 1, d, r].
        mean, offset: mean stream $m$ and output $b$ of the tasks of the fit [L + 1, d], [L + 1, r].

    >>> probe = Probe(weights=np.ones((1, 2, 1)), mean=np.ones((1, 2)), offset=np.ones((1, 1)))
    >>> probe(np.full((1, 1, 2), 3.0)).tolist()
    [[[5.0]]]
    """

    weights: Any
    mean: Any
    offset: Any

    def __call__(self, streams: Float[Array, "layers q d"]) -> Float[Array, "layers q r"]:
        """Predict from the queries' streams of every layer, as `streams` returns them."""
        centred = streams - self.mean[:, None]
        return jnp.einsum("lqd,ldr->lqr", centred, self.weights) + self.offset[:, None]


def layerwise(model: Transformer, task: Task, probe: Probe | None = None) -> jax.Array:
    """Predict before the first step of a model and after every step: [L + 1, q] or [L + 1, q, r].

    A step is one block of a model from `icl_krr.init`, or one solver step of a construction.

    Args:
        probe: probe of this model, which predicts at all layers except the last, where the model
            itself predicts. Default: its own readout (`cache["prediction"]`) at all layers.

    >>> import icl_krr as ik
    >>> model = ik.constructions.conjugate_gradient(ik.Linear(), num_features=1, ridge=2.0, steps=1)
    >>> task = ik.Task(x=[[1.0]], y=[3.0], x_query=[[1.0]])
    >>> layerwise(model, task).tolist()
    [[0.0], [1.0]]
    """
    readout = run_with_cache(model, task, names=("prediction",))[1]["prediction"]
    if probe is None:
        return readout
    checks.instance("probe", probe, Probe, "an icl_krr.probes.Probe")
    return probe(streams(model, task)).reshape(readout.shape).at[-1].set(readout[-1])


def streams(model: Transformer, task: Task, role: str = "query") -> Float[Array, "layers tokens d"]:
    """Return all channels at the tokens of a role, before the first step and after every step.

    The slots of a construction are side by side.

    Args:
        role: "query" or "support". Of interleaved tokens, the token of y counts as the support.

    >>> import icl_krr as ik
    >>> spec = ik.Architecture(num_features=1, width=8, depth=3, heads=1)
    >>> task = ik.Task(x=[[1.0]], y=[3.0], x_query=[[1.0], [1.0]])
    >>> streams(ik.init(jax.random.key(0), spec), task).shape
    (4, 2, 9)
    """
    checks.choice("role", role, ("query", "support"))
    prepare_run(model, task)
    return streams_at(model, task, (role,))[0]


@partial(jax.jit, static_argnames="roles")  # so that weights may be on a mesh that divides tasks
def streams_at(model: Transformer, task: Task, roles: tuple[str, ...]) -> list[jax.Array]:
    """All channels of the tokens of each role, [layers, tokens, d]: the start and every step."""
    check_compatible(model, task)
    model = jax.tree.map(lambda weight: jnp.asarray(weight, task.x.dtype), model)
    places = [role_slice((role,), task, model.spec.tokens) for role in roles]

    def select_tokens(stream: dict[str, jax.Array]) -> list[jax.Array]:
        return [jnp.concatenate([v[at] for v in stream.values()], axis=-1) for at in places]

    stream = jax.tree.map(jnp.asarray, embed_task(model, task))
    return forward(model, stream, key_mask(task, model.spec.tokens), observe=select_tokens).observed


def has_slot(model: Transformer) -> bool:
    """Whether the model has a separate slot for the prediction, as constructions do.

    >>> import icl_krr as ik
    >>> has_slot(ik.constructions.nadaraya_watson(ik.Exponential(), num_features=1))
    True
    """
    check_model(model)
    return "prediction" in model.layout.names


StreamReader = Callable[[Task], Any]
"""Function from a task to the streams at the queries in every layer, [L + 1, q, d]."""


def fit_probe(
    model: Transformer | StreamReader, tasks: Task, targets: jax.Array | None = None
) -> Probe:
    """Fit a ridge regression from the stream of every layer to targets.

    The last quarter of the batch chooses the ridge of each layer from `RIDGES`. The weights are
    then fitted to the whole batch of at least 2 tasks.

    Args:
        model: a model, or a function of one task, whose fields are NumPy arrays, to the streams at
            the queries [L + 1, q, d], such as the hidden states of a network of another library.
        targets: targets of the regression [b, q] or [b, q, r]; default: `tasks.y_query`.

    Source: Alain, Bengio, Understanding intermediate layers using linear classifier probes, 2016.

    >>> import icl_krr as ik
    >>> config = ik.tasks.LinearRegression(num_features=2, num_supports=4)
    >>> keys = jax.random.split(jax.random.key(0), 8)
    >>> tasks = jax.vmap(ik.tasks.sample, in_axes=(0, None))(keys, config)
    >>> spec = ik.Architecture(num_features=2, width=8, depth=3, heads=1)
    >>> fit_probe(ik.init(jax.random.key(0), spec), tasks).weights.shape
    (4, 9, 1)
    >>> moments = lambda task: (task.x_query @ (task.x.T @ task.y))[None, :, None]
    >>> probe = fit_probe(moments, tasks)
    >>> probe(moments(jax.tree.map(lambda field: field[0], tasks))).shape
    (1, 1, 1)
    """
    if isinstance(model, Transformer):
        check_compatible(model, tasks, batch=1)
    else:
        checks.function("model", model)
        check_axes(tasks, 1, "tasks")
    targets = tasks.y_query if targets is None else targets
    if targets is None:
        raise ValueError("targets must be given for tasks without y_query")
    checks.floating("targets", targets)
    checks.finite("targets", targets)
    batch, queries = tasks.x_query.shape[:2]
    if batch < 2:
        raise ValueError(f"tasks must be a batch of at least 2 tasks, got {batch}")
    if targets.shape[:2] != (batch, queries):
        raise ValueError(
            f"targets must be [b, q] = {[batch, queries]} or [b, q, r], "
            f"got shape {list(targets.shape)}"
        )
    h = _stream_batch(model, tasks)
    return Probe(*_regress_layers(h, targets, max(1, 3 * batch // 4) * queries))


def _stream_batch(model: Transformer | StreamReader, tasks: Task) -> Float[Array, "b layers q d"]:
    if isinstance(model, Transformer):
        return streams_of_batch(model, tasks)
    arrays = [np.asarray(model(task)) for task in unstack(tasks)]
    shapes = {one.shape for one in arrays}
    if len(shapes) > 1 or arrays[0].ndim != 3 or arrays[0].shape[1] != tasks.num_queries:
        raise ValueError(
            f"model must return streams [L + 1, q, d] with q = {tasks.num_queries}, the same "
            f"shape for every task, got {' and '.join(str([*shape]) for shape in sorted(shapes))}"
        )
    return jax.device_put(np.stack(arrays).astype(tasks.x.dtype))


@jax.jit
def streams_of_batch(model: Transformer, tasks: Task) -> Float[Array, "b layers q d"]:
    return map_tasks(partial(streams, model), tasks)


@partial(jax.jit, static_argnames="cut")
def _regress_layers(h: Float[Array, "b layers q d"], y: Float[Array, "b q ..."], cut: int) -> tuple:
    features = jnp.moveaxis(h, 1, 0).reshape(h.shape[1], -1, h.shape[-1])
    rows = y.reshape(features.shape[1], -1)
    return jax.lax.map(lambda layer: ridge_regression(layer, rows, cut), features)


def ridge_regression(inputs: Float[Array, "m d"], targets: Float[Array, "m r"], cut: int) -> tuple:
    """Weights, mean and offset. The ridge has the least error on the rows from `cut` on."""

    def solve(features: jax.Array, targets: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Weights for every ridge [k, d, r], mean and offset."""
        mean, offset = jnp.mean(features, axis=0), jnp.mean(targets, axis=0)
        h, y = features - mean[None], targets - offset[None]
        sigma, vectors = eigh(matmul(h.T, h) / len(h))
        rotated = matmul(vectors.T, matmul(h.T, y) / len(h))
        ridges = RIDGES.astype(h.dtype) * jnp.mean(sigma) + jnp.finfo(h.dtype).tiny
        shrunk = rotated[None] / (jnp.maximum(sigma, 0)[None, :, None] + ridges[:, None, None])
        return jnp.einsum("de,ker->kdr", vectors, shrunk), mean, offset

    weights, mean, offset = solve(inputs[:cut], targets[:cut])
    centred = inputs[cut:] - mean[None]
    predictions = jnp.einsum("md,kdr->kmr", centred, weights) + offset[None, None]
    best = jnp.argmin(jnp.sum((predictions - targets[None, cut:]) ** 2, axis=(1, 2)))
    weights, mean, offset = solve(inputs, targets)
    return weights[best], mean, offset
