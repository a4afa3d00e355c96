"""Hat matrices: the derivative of every layer's predictions with respect to the supports' y."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import capacity, checks
from ..tasks import Task
from ..tasks.task import check_axes, check_one_output

LayerAnswers = Callable[[Task], jax.Array]
"""Function from a task to the predictions after every layer, [L + 1, q]."""


def hat_matrix(layer_answers: LayerAnswers, task: Task) -> Float[Array, "layers q n"]:
    """Compute the hat matrix $J = df / dy$ of every layer.

    If a solver is linear in $y$, its predictions are $f = J y$. The predictions of conjugate
    gradient are not linear in $y$, but they are homogeneous of degree 1. Thus $J y = f$ still
    holds. The derivative uses reverse mode if there are fewer predictions than supports, else
    forward mode.

    Args:
        layer_answers: function from a task with y [n] to predictions [L + 1, q], such as
            `partial(layerwise, model)`.
        task: one task with y [n].

    Returns:
        The hat matrices [L + 1, q, n].

    Raises:
        ValueError: `task` has several outputs or is a batch.

    >>> import jax.numpy as jnp
    >>> import icl_krr as ik
    >>> task = ik.Task(x=jnp.ones((1, 1)), y=jnp.array([3.0]), x_query=jnp.ones((1, 1)))
    >>> solve = lambda task: ik.solvers.exact(ik.Linear(), task, ridge=1.0).prediction[None]
    >>> hat_matrix(solve, task).round(6).tolist()
    [[[0.5]]]
    """
    checks.function("layer_answers", layer_answers)
    check_one_output(task)
    check_axes(task)
    return jacobian(lambda y: layer_answers(task.replace(y=y)), task.y)


def jacobian(function: Callable[[Any], jax.Array], at: Any) -> Any:
    """Jacobian: reverse mode if there are fewer outputs than inputs, else forward mode."""
    count = jax.eval_shape(function, at).size
    numbers = sum(jnp.size(leaf) for leaf in jax.tree.leaves(at))
    capacity.check("derivatives", count * numbers, jax.tree.leaves(at)[0])
    derive = jax.jacrev if count < numbers else jax.jacfwd
    return derive(function)(at)
