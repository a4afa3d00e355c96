"""Hat matrices: the derivative of every layer's predictions with respect to the supports' y."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import capacity, checks
from ..tasks import Task
from ..tasks.task import check_axes

LayerAnswers = Callable[[Task], jax.Array]
"""Function from a task to the predictions after every layer, [L + 1, q] or [L + 1, q, r]."""


def hat_matrix(layer_answers: LayerAnswers, task: Task) -> Float[Array, "layers q ..."]:
    """Compute the hat matrix $J = df / dy$ of every layer.

    If a solver is linear in $y$, its predictions are $f = J y$. The predictions of conjugate
    gradient are not linear in $y$, but they are homogeneous of degree 1. Thus $J y = f$ still
    holds. The derivative uses reverse mode if there are fewer predictions than supports, else
    forward mode.

    Args:
        layer_answers: function from a task with y [n] to predictions [L + 1, q], or with y [n, r]
            to predictions [L + 1, q, r], such as `partial(layerwise, model)`.
        task: one task.

    Returns:
        The hat matrices [L + 1, q, n], or [L + 1, q, r, n, r] for r outputs.

    Raises:
        ValueError: `task` is a batch.

    >>> import jax.numpy as jnp
    >>> import icl_krr as ik
    >>> task = ik.Task(x=jnp.ones((1, 1)), y=jnp.array([3.0]), x_query=jnp.ones((1, 1)))
    >>> solve = lambda task: ik.solvers.exact(ik.Linear(), task, ridge=1.0).prediction[None]
    >>> hat_matrix(solve, task).round(6).tolist()
    [[[0.5]]]
    """
    checks.function("layer_answers", layer_answers)
    check_axes(task)
    return jacobian(lambda y: layer_answers(task.replace(y=y)), task.y)


def jacobian(function: Callable[[Any], jax.Array], at: Any) -> Any:
    """Jacobian: reverse mode if there are fewer outputs than inputs, else forward mode."""
    count = jax.eval_shape(function, at).size
    numbers = sum(jnp.size(leaf) for leaf in jax.tree.leaves(at))
    capacity.check("derivatives", count * numbers, jax.tree.leaves(at)[0])
    derive = jax.jacrev if count < numbers else jax.jacfwd
    return derive(function)(at)
