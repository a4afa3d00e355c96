"""Hat matrices: the derivative of every layer's answers in the supports' y."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..tasks import Task
from ..tasks.task import check_one_output

LayerAnswers = Callable[[Task], jax.Array]
"""From a task to the answers of every layer, [L + 1, q]."""


def hat_matrix(layer_answers: LayerAnswers, task: Task) -> Float[Array, "layers q n"]:
    """$J = df / dy$ [L + 1, q, n], by one batch of products with the Jacobian.

    `layer_answers` gives [L + 1, q] for a task whose y is [n]. Where there are fewer answers than
    supports they are products from the left, else from the right. A solver that is linear in $y$ is
    $h(x)^T y$; one that only scales with it, as conjugate gradient, still has $J y = f$.

    Raises ValueError for a task of several outputs, or of a batch.

    >>> import jax.numpy as jnp
    >>> import icl_krr as ik
    >>> task = ik.Task(x=jnp.ones((1, 1)), y=jnp.array([3.0]), x_query=jnp.ones((1, 1)))
    >>> solve = lambda task: ik.solvers.exact(ik.Linear(), task, ridge=1.0).prediction[None]
    >>> hat_matrix(solve, task).round(6).tolist()
    [[[0.5]]]
    """
    check_one_output(task)
    return jacobian(lambda y: layer_answers(task.replace(y=y)), task.y)


def jacobian(function: Callable[[Any], jax.Array], at: Any) -> Any:
    """By products from the left where there are fewer answers than numbers, else from the right."""
    count = jax.eval_shape(function, at).size
    numbers = sum(jnp.size(leaf) for leaf in jax.tree.leaves(at))
    derive = jax.jacrev if count < numbers else jax.jacfwd
    return derive(function)(at)
