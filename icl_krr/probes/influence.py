"""What a prediction owes to each support: by the weight it has in attention, and without it."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..tasks import Task
from ..tasks.task import check_one_output
from ..transformer import HookPlace, Transformer, predict, run_with_hooks
from .hat import jacobian


class Influence(NamedTuple):
    """The change of each query's answer where support j is left out, [q, n].

    `first_order` is minus its derivative in the support's weight, `exact` is that of the model
    that does not see it.
    """

    first_order: Float[Array, "q n"]
    exact: Float[Array, "q n"]


def influence(model: Transformer, task: Task) -> Influence:
    r"""The influence of every support, for constructed and trained models alike.

    Weights are those of `weighted`; for a model with positions `first_order` leaves the support
    its place among them, which `exact` does not. Exact kernel ridge regression has
    $-\lambda h_j \alpha_j$ and $-h_j \alpha_j / (A^{-1})_{jj}$, with $h = A^{-1} k(x)$: the first
    order lacks the quotient $1 / (1 - H_{jj})$ of the support's leverage on itself,
    $H = K A^{-1}$.

    Raises ValueError for a task of several outputs, and as `predict` does.

    Source: Koh, Liang, Understanding black-box predictions via influence functions, ICML 2017.

    >>> import icl_krr as ik
    >>> task = ik.Task(x=jnp.ones((1, 1)), y=jnp.array([4.0]), x_query=jnp.ones((1, 1)))
    >>> model = ik.constructions.conjugate_gradient(ik.Linear(), num_features=1, ridge=1.0, steps=1)
    >>> found = influence(model, task)
    >>> found.first_order.tolist(), found.exact.tolist()
    ([[-1.0]], [[-2.0]])
    """
    check_one_output(task)
    ones = jnp.ones(task.num_supports, task.x.dtype)
    keep = jnp.ones(task.num_supports, bool) if task.mask is None else task.mask
    without = lambda j: predict(model, task.replace(mask=keep.at[j].set(False)))  # noqa: E731
    left = jax.lax.map(without, jnp.arange(task.num_supports)).T
    slope = jacobian(partial(weighted, model, task), ones)
    return Influence(-slope, left - predict(model, task)[:, None])


def weighted(model: Transformer, task: Task, weights: Float[Array, " n"]) -> jax.Array:
    """The prediction of a model for which support j is there `weights[j]` times.

    Every attention pattern is multiplied by the weights of its keys and, if it is a softmax,
    divided by its sum: a weight of 2 is a support that is there twice, and one of 0 is one that is
    masked. Not so for models with positions: they count a token once whatever its weight is.

    >>> import icl_krr as ik
    >>> task = ik.Task(x=jnp.ones((2, 1)), y=jnp.array([0.0, 3.0]), x_query=jnp.ones((1, 1)))
    >>> head = ik.constructions.nadaraya_watson(ik.Exponential(), num_features=1)
    >>> weighted(head, task, jnp.array([1.0, 2.0])).round(4).tolist()
    [2.0]
    """
    each = jnp.repeat(weights, 2) if model.spec.tokens == "interleaved" else weights
    every = jnp.pad(each, (1, task.num_queries), constant_values=1)  # aggregator, queries

    def reweigh(pattern: jax.Array, where: HookPlace) -> jax.Array:
        pattern = pattern * every.astype(pattern.dtype)[None, None]
        if model.spec.attention == "linear":
            return pattern
        return pattern / jnp.sum(pattern, axis=-1, keepdims=True)

    groups = range(max(len(block.attention) for block in model.blocks))
    return run_with_hooks(model, task, {f"blocks.*.heads.{j}.pattern": reweigh for j in groups})
