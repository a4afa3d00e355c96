"""How much every layer's answers depend on what the model was told, and on its parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..tasks import Task
from ..tasks.task import check_one_output
from .hat import LayerAnswers, jacobian


class Sensitivities(NamedTuple):
    """Derivatives of every layer's answers at each query in the fields of its task.

    `x_query` [L + 1, q, p] in the query's own features, `x` [L + 1, q, n, p] in those of every
    support, `y` [L + 1, q, n] in the supports' outputs: the hat matrix.
    """

    x_query: Float[Array, "layers q p"]
    x: Float[Array, "layers q n p"]
    y: Float[Array, "layers q n"]


def sensitivities(layer_answers: LayerAnswers, task: Task) -> Sensitivities:
    """$df / dx$ in queries and in supports and $df / dy$ of every layer, for any model.

    `layer_answers` gives [L + 1, q] for a task whose y is [n], such as `partial(layerwise, model)`
    or `lambda task: predict(model, task)[None]`. An answer depends on no other query. The last is
    `hat_matrix`; all of them are one batch of products with one Jacobian. Jit it for one program.

    Raises ValueError for a task of several outputs, or of a batch.

    >>> import icl_krr as ik
    >>> task = ik.Task(x=jnp.ones((1, 1)), y=jnp.array([4.0]), x_query=jnp.ones((1, 1)))
    >>> model = ik.constructions.conjugate_gradient(ik.Linear(), num_features=1, ridge=1.0, steps=1)
    >>> found = sensitivities(lambda task: ik.predict(model, task)[None], task)
    >>> found.x_query.tolist(), found.y.tolist()
    ([[[2.0]]], [[[0.5]]])
    """
    check_one_output(task)
    told = {name: getattr(task, name) for name in Sensitivities._fields}
    found = jacobian(lambda told: layer_answers(task.replace(**told)), told)
    own = jnp.einsum("lqqp->lqp", found["x_query"])
    return Sensitivities(own, found["x"], found["y"])


def parameter_sensitivities(answers: Callable[[Any], jax.Array], parameters: Any) -> Any:
    r"""$df / d\theta$ for `parameters` $\theta$: a pytree as these, of leaves `[*answers, *leaf]`.

    `answers(parameters)` builds a model and asks it: through the weights of a construction that
    is temperature, lengthscale, ridge, step sizes, bounds, a projection or a sketch, and with a
    whole `Transformer` as parameters every weight.

    >>> import icl_krr as ik
    >>> task = ik.Task(x=jnp.ones((1, 1)), y=jnp.array([4.0]), x_query=jnp.ones((1, 1)))
    >>> def answers(ridge):
    ...     cg = ik.constructions.conjugate_gradient
    ...     return ik.predict(cg(ik.Linear(), num_features=1, ridge=ridge, steps=1), task)
    >>> parameter_sensitivities(answers, 1.0).tolist()
    [-1.0]
    """
    return jacobian(answers, jax.tree.map(jnp.asarray, parameters))
