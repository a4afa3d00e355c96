"""What a model would answer after every layer: its own slot, or a linear probe of the stream."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..linalg import eigh
from ..numerics import matmul
from ..pytree import checked
from ..residual.tokens import tokens_of_role
from ..tasks import Task, map_tasks
from ..transformer import Transformer, run_with_cache

RIDGES = 10.0 ** np.arange(-8.0, 2.0)  # NumPy's: the room may be loaded inside of a trace
"""Relative to the mean variance of the features."""


@checked
class Probe:
    """An affine read-out of the queries' stream for every layer: `weights` [L + 1, d, r].

    `mean` [L + 1, d] and `offset` [L + 1, r] are those of the tasks it was fitted on: the answer
    at $h$ is $b + (h - m) W$ for `offset` $b$, `mean` $m$ and `weights` $W$. `fit_probe` makes it.

    >>> probe = Probe(weights=jnp.ones((1, 2, 1)), mean=jnp.ones((1, 2)), offset=jnp.ones((1, 1)))
    >>> probe(jnp.full((1, 1, 2), 3.0)).tolist()
    [[[5.0]]]
    """

    weights: Any
    mean: Any
    offset: Any

    def __call__(self, streams: Float[Array, "layers q d"]) -> Float[Array, "layers q r"]:
        """The answers of every layer."""
        centred = streams - self.mean[:, None]
        return jnp.einsum("lqd,ldr->lqr", centred, self.weights) + self.offset[:, None]


def layerwise(model: Transformer, task: Task, probe: Probe | None = None) -> jax.Array:
    """Predictions after every step of the scan, the start included: [L + 1, q] or [L + 1, q, r].

    They are those of the model's own slot and read-out (`cache["prediction"]`), or of a `probe`
    of all layers but the last, whose answer is the model's own. In the task's dtype.

    >>> import icl_krr as ik
    >>> model = ik.constructions.conjugate_gradient(ik.Linear(), num_features=1, ridge=2.0, steps=1)
    >>> task = ik.Task(x=jnp.ones((1, 1)), y=jnp.array([3.0]), x_query=jnp.ones((1, 1)))
    >>> layerwise(model, task).tolist()
    [[0.0], [1.0]]
    """
    own = run_with_cache(model, task, names=("prediction",))[1]["prediction"]
    if probe is None:
        return own
    answers = probe(streams(model, task)).reshape(own.shape)
    return answers.at[-1].set(own[-1])


def streams(model: Transformer, task: Task) -> Float[Array, "layers q d"]:
    """The queries' tokens after every layer, all slots side by side, in the task's dtype.

    >>> import icl_krr as ik
    >>> spec = ik.Architecture(num_features=1, width=8, depth=3, heads=1)
    >>> task = ik.Task(x=jnp.ones((1, 1)), y=jnp.array([3.0]), x_query=jnp.ones((2, 1)))
    >>> streams(ik.init(jax.random.key(0), spec), task).shape
    (4, 2, 9)
    """
    names = model.layout.names
    cache = run_with_cache(model, task, names=names)[1]
    asked = tokens_of_role(("query",), task, model.spec.tokens)
    parts = [cache[name] for name in names if at_all_tokens(model, name)]
    return jnp.concatenate([part[:, asked] for part in parts], axis=-1)


def at_all_tokens(model: Transformer, name: str) -> bool:
    """Slots of one role are cached at that role's tokens only."""
    return len(model.layout[name].at) > 1


def has_slot(model: Transformer) -> bool:
    """Whether the model has a slot of its own for the prediction, as constructions do.

    >>> import icl_krr as ik
    >>> has_slot(ik.constructions.nadaraya_watson(ik.Exponential(), num_features=1))
    True
    """
    return "prediction" in model.layout.names


def fit_probe(model: Transformer, tasks: Task, targets: jax.Array | None = None) -> Probe:
    """The ridge regression of `targets` (by default y_query) on every layer's stream.

    `tasks` is a batch, `targets` [b, q] or [b, q, r]; its last quarter chooses each layer's ridge
    among `RIDGES`, and all of it gives the weights.

    Raises ValueError for one task alone and for targets of other tasks.

    Source: Alain, Bengio, Understanding intermediate layers using linear classifier probes, 2016.

    >>> import icl_krr as ik
    >>> config = ik.tasks.LinearRegression(num_features=2, num_supports=4)
    >>> keys = jax.random.split(jax.random.key(0), 8)
    >>> tasks = jax.vmap(ik.tasks.sample, in_axes=(0, None))(keys, config)
    >>> spec = ik.Architecture(num_features=2, width=8, depth=3, heads=1)
    >>> fit_probe(ik.init(jax.random.key(0), spec), tasks).weights.shape
    (4, 9, 1)
    """
    wanted = jnp.asarray(tasks.y_query if targets is None else targets)
    batch, asked = len(tasks.x), tasks.y_query.shape[:2]
    if batch < 2:
        raise ValueError(f"tasks must be a batch of 2 or more, got {batch}")
    if wanted.shape[:2] != asked:
        raise ValueError(
            f"targets must be [b, q] = {list(asked)} or [b, q, r], got shape {list(wanted.shape)}"
        )
    seen = map_tasks(lambda task: streams(model, task), tasks)
    features = jnp.moveaxis(seen, 1, 0).reshape(seen.shape[1], -1, seen.shape[-1])
    flat = wanted.reshape(features.shape[1], -1)
    cut = max(1, 3 * batch // 4) * asked[1]
    each = jax.lax.map(lambda layer: ridge_regression(layer, flat, cut), features)
    return Probe(*each)


def ridge_regression(
    features: Float[Array, "m d"], targets: Float[Array, "m r"], cut: int
) -> tuple:
    """Weights, mean and offset; the ridge is that of least error on the rows from `cut` on."""

    def solve(features: jax.Array, targets: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Weights for every ridge [k, d, r], mean and offset."""
        mean, offset = jnp.mean(features, axis=0), jnp.mean(targets, axis=0)
        h, y = features - mean[None], targets - offset[None]
        sigma, vectors = eigh(matmul(h.T, h) / len(h))
        turned = matmul(vectors.T, matmul(h.T, y) / len(h))
        ridges = RIDGES.astype(h.dtype) * jnp.mean(sigma) + jnp.finfo(h.dtype).tiny
        shrunk = turned[None] / (jnp.maximum(sigma, 0)[None, :, None] + ridges[:, None, None])
        return jnp.einsum("de,ker->kdr", vectors, shrunk), mean, offset

    weights, mean, offset = solve(features[:cut], targets[:cut])
    answers = jnp.einsum("md,kdr->kmr", features[cut:] - mean[None], weights) + offset[None, None]
    best = jnp.argmin(jnp.sum((answers - targets[None, cut:]) ** 2, axis=(1, 2)))
    weights, mean, offset = solve(features, targets)
    return weights[best], mean, offset
