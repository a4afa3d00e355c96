"""Hat matrices and other derivatives of the predictions of every layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ... import Task
from ..._core import checks, memory_limit
from ..._core.readable import readable
from ...tasks._task import check_axes, check_one_output

LayerPredictions = Callable[[Task], jax.Array]
"""Function from a task to the predictions after every layer, [L + 1, q] or [L + 1, q, r]."""


def hat_matrix(layer_predictions: LayerPredictions, task: Task) -> Float[Array, "layers q ..."]:
    """Compute the hat matrix $J = df / dy$ of every layer: [L + 1, q, n], or [L + 1, q, r, n, r].

    If a solver is linear in $y$, its predictions are $f = J y$. Those of conjugate gradient are
    not linear but homogeneous of degree 1 in $y$, so $J y = f$ still holds. The derivative uses
    reverse mode if there are fewer predictions than supports, else forward mode.

    Args:
        layer_predictions: function from a task with y [n] to predictions [L + 1, q], or with y
            [n, r] to predictions [L + 1, q, r], such as `partial(layerwise, model)`.

    >>> import icl_krr as ik
    >>> task = ik.Task(x=[[1.0]], y=[3.0], x_query=[[1.0]])
    >>> solve = lambda task: ik.solvers.exact(ik.Linear(), task, ridge=1.0).prediction[None]
    >>> hat_matrix(solve, task).round(6).tolist()
    [[[0.5]]]
    """
    checks.function("layer_predictions", layer_predictions)
    check_axes(task)
    return jacobian(lambda y: layer_predictions(task.replace(y=y)), task.y)


@readable
class Sensitivities(NamedTuple):
    """Derivatives of the predictions at each query, by field of the task.

    The field `x_query` is for the features of the same query, `x` for those of every support, and
    `y` is the hat matrix.
    """

    x_query: Float[Array, "layers q p"]
    x: Float[Array, "layers q n p"]
    y: Float[Array, "layers q n"]


def sensitivities(layer_predictions: LayerPredictions, task: Task) -> Sensitivities:
    """Differentiate the predictions of every layer with respect to queries, supports and outputs.

    All derivatives are computed together, as one Jacobian. A prediction depends only on the
    features of its own query, so derivatives with respect to other queries are left out. Wrap the
    call in `jax.jit` to compile one program.

    Args:
        layer_predictions: as in `hat_matrix`, for a task with y [n].

    >>> import icl_krr as ik
    >>> task = ik.Task(x=[[1.0]], y=[4.0], x_query=[[1.0]])
    >>> model = ik.constructions.conjugate_gradient(ik.Linear(), num_features=1, ridge=1.0, steps=1)
    >>> found = sensitivities(lambda task: ik.predict(model, task)[None], task)
    >>> found.x_query.tolist(), found.y.tolist()
    ([[[2.0]]], [[[0.5]]])
    """
    checks.function("layer_predictions", layer_predictions)
    check_one_output(task)
    check_axes(task)
    fields = {name: getattr(task, name) for name in Sensitivities._fields}
    derivatives = jacobian(lambda fields: layer_predictions(task.replace(**fields)), fields)
    same_query = jnp.einsum("lqqp->lqp", derivatives["x_query"])
    return Sensitivities(same_query, derivatives["x"], derivatives["y"])


def parameter_sensitivities(predict: Callable[[Any], jax.Array], parameters: Any) -> Any:
    r"""Differentiate predictions with respect to parameters: $df / d\theta$ for a pytree $\theta$.

    Args:
        predict: function from parameters to an array of predictions, such as a function that builds
            a model and predicts.
        parameters: pytree of numbers and arrays, such as temperature, lengthscale, ridge, step
            sizes, bounds, projection or sketch of a construction, or a whole `Transformer`.

    Returns:
        A pytree with the structure of `parameters`. The shape of each leaf is the shape of the
        predictions, followed by the shape of the parameter.

    >>> import icl_krr as ik
    >>> task = ik.Task(x=[[1.0]], y=[4.0], x_query=[[1.0]])
    >>> def predict(ridge):
    ...     cg = ik.constructions.conjugate_gradient
    ...     return ik.predict(cg(ik.Linear(), num_features=1, ridge=ridge, steps=1), task)
    >>> parameter_sensitivities(predict, 1.0).tolist()
    [-1.0]
    """
    checks.function("predict", predict)
    if not (leaves := jax.tree.leaves(parameters)):
        raise ValueError(f"parameters must have at least one leaf, got {parameters!r}")
    for leaf in leaves:
        checks.numeric("parameters", leaf)
        if not jnp.issubdtype(jnp.result_type(leaf), jnp.floating):
            raise TypeError(f"parameters must be floating point, got {checks.short_repr(leaf)}")
    return jacobian(predict, jax.tree.map(jnp.asarray, parameters))


def jacobian(function: Callable[[Any], jax.Array], at: Any) -> Any:
    """Jacobian: reverse mode if there are fewer outputs than inputs, else forward mode."""
    count = jax.eval_shape(function, at).size
    numbers = sum(jnp.size(leaf) for leaf in jax.tree.leaves(at))
    memory_limit.check("derivatives", count * numbers, jax.tree.leaves(at)[0])
    return (jax.jacrev if count < numbers else jax.jacfwd)(function)(at)
