"""Influence of each support on the predictions: by its attention weight, and by leaving it out."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ... import Task
from ..._core import checks
from ..._core.readable import readable
from ...tasks._task import check_one_output, support_mask
from ...transformer import Transformer, Where, predict, run_with_hooks
from ...transformer._hook_points import Hook, Request
from ...transformer._run_plan import check_compatible, prepare_run
from .derivatives import jacobian


@readable
class Influence(NamedTuple):
    """Change of each query's prediction if support j is left out.

    Attributes:
        first_order: minus the derivative of the prediction in the support's weight (`weighted`).
        exact: prediction without the support minus the prediction with it.
    """

    first_order: Float[Array, "q n"]
    exact: Float[Array, "q n"]


def influence(model: Transformer, task: Task) -> Influence:
    r"""Compute the influence of every support, for constructed and trained models.

    `first_order` is minus the derivative of `weighted` at weights 1. In a model with positional
    embeddings, `first_order` keeps the position of the support, while `exact` removes it.

    For exact kernel ridge regression, `first_order` is $-\lambda h_j \alpha_j$ and `exact` is
    $-h_j \alpha_j / (A^{-1})_{jj}$, with $A = K + \lambda I$, $\alpha = A^{-1} y$ and
    $h = A^{-1} k(x)$ for the query $x$. They differ by the factor $1 / (1 - H_{jj})$, where
    $H = K A^{-1}$ and $H_{jj}$ is the leverage of the support. The task has y [n].

    Source: Koh, Liang, Understanding black-box predictions via influence functions, ICML 2017.

    >>> import icl_krr as ik
    >>> task = ik.Task(x=[[1.0]], y=[4.0], x_query=[[1.0]])
    >>> model = ik.constructions.conjugate_gradient(ik.Linear(), num_features=1, ridge=1.0, steps=1)
    >>> found = influence(model, task)
    >>> found.first_order.tolist(), found.exact.tolist()
    ([[-1.0]], [[-2.0]])
    """
    check_compatible(model, task)
    check_one_output(task)
    hooks = _pattern_hooks(model, lambda pattern, where: pattern)
    copies = min(task.num_supports, task.num_queries)
    prepare_run(model, task, Request(hooks=hooks), copies=copies)
    ones = jnp.ones(task.num_supports, task.x.dtype)
    mask = jnp.asarray(support_mask(task))

    def without(j: jax.Array) -> jax.Array:
        return predict(model, task.replace(mask=mask.at[j].set(False)))

    left = jax.lax.map(without, jnp.arange(task.num_supports)).T
    slope = jacobian(partial(weighted, model, task), ones)
    return Influence(-slope, left - predict(model, task)[:, None])


def weighted(model: Transformer, task: Task, weights: Float[Array, " n"]) -> jax.Array:
    """Predict as if support j occurred `weights[j]` times.

    Every attention pattern is multiplied by the weights of its keys. A softmax pattern is then
    divided by its sum. Weight 2 is the same as a support that occurs twice, and weight 0 is the
    same as a masked support. This does not hold in a model with positional embeddings, because the
    weight does not change the positions.

    >>> import numpy as np
    >>> import icl_krr as ik
    >>> task = ik.Task(x=[[1.0], [1.0]], y=[0.0, 3.0], x_query=[[1.0]])
    >>> head = ik.constructions.nadaraya_watson(ik.Exponential(), num_features=1)
    >>> weighted(head, task, np.array([1.0, 2.0])).round(4).tolist()
    [2.0]
    """
    check_compatible(model, task)
    checks.shapes(x=(task.x, "n p"), weights=(weights, "n"))
    support_weights = jnp.repeat(weights, 2) if model.spec.tokens == "interleaved" else weights
    # the aggregator and the queries have weight 1
    token_weights = jnp.pad(support_weights, (1, task.num_queries), constant_values=1)

    def reweigh(pattern: jax.Array, where: Where) -> jax.Array:
        pattern = pattern * token_weights.astype(pattern.dtype)[None, None]
        if model.spec.attention == "linear":
            return pattern
        return pattern / jnp.sum(pattern, axis=-1, keepdims=True)

    return run_with_hooks(model, task, dict(_pattern_hooks(model, reweigh)))


def _pattern_hooks(model: Transformer, hook: Hook) -> tuple[tuple[str, Hook], ...]:
    """The same hook at all patterns of a model."""
    groups = range(max(len(block.attention) for block in model.blocks))
    return tuple((f"blocks.*.heads.{j}.pattern", hook) for j in groups)
