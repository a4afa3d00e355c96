"""Models outside of JAX, such as PyTorch networks, for probes that differentiate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

from ... import checks
from ...tasks import Task
from .derivatives import LayerAnswers

STEP = 1e-3
"""The step of the differences in y, relative to its largest magnitude."""

ArrayAnswers = Callable[[np.ndarray, np.ndarray, np.ndarray], Any]
"""Function from arrays x [n, p], y [n], x_query [q, p] to predictions of layers, [L + 1, q]."""


def array_answers(function: ArrayAnswers, layers: int) -> LayerAnswers:
    r"""Make layer answers from a function of NumPy arrays, which JAX cannot differentiate.

    The derivative in y is that of central differences,
    $\partial f / \partial y_j \approx (f(y + h e_j) - f(y - h e_j)) / 2h$ with h = 0.001 max |y|,
    so a hat matrix takes 2 n calls. It is exact for a model that is linear in y, up to rounding.
    Derivatives in other fields of the task are refused.

    Args:
        function: function of `x` [n, p], `y` [n] and `x_query` [q, p], which are NumPy arrays in
            the dtype of the task, to the predictions before the first layer and after every layer,
            [layers + 1, q], as an array or a list.
        layers: number L of layers, >= 0.

    Returns:
        A function of a `Task` with y [n], for `identify`, `hat_matrix` and other probes. JAX can
        jit, vmap and differentiate it. It calls `function` once for each task.

    Raises:
        TypeError: `function` is not a function, or `layers` is not an integer.
        ValueError: `layers` < 0, or a derivative in another field than y is taken.

    >>> import icl_krr as ik
    >>> task = ik.Task(x=[[1.0]], y=[3.0], x_query=[[2.0]])
    >>> slope = lambda x, y, x_query: [0 * x_query[:, 0], x_query @ (x.T @ y)]
    >>> answers = array_answers(slope, layers=1)
    >>> answers(task).tolist(), ik.probes.hat_matrix(answers, task)[1].round(3).tolist()
    ([[0.0], [6.0]], [[2.0]])
    """
    checks.function("function", function)
    checks.count("layers", layers, minimum=0)

    @jax.custom_jvp
    def answers(x: jax.Array, y: jax.Array, x_query: jax.Array) -> jax.Array:
        shape = jax.ShapeDtypeStruct((layers + 1, len(x_query)), y.dtype)
        return jax.pure_callback(read, shape, x, y, x_query, vmap_method="sequential")

    def read(*arrays: Any) -> np.ndarray:
        x, y, x_query = map(np.array, arrays)
        found = np.asarray(function(x, y, x_query))
        wanted = (layers + 1, len(x_query))
        if found.shape != wanted:
            raise ValueError(
                f"function must return predictions [layers + 1, q] = {list(wanted)}, "
                f"got shape {list(found.shape)}"
            )
        return found.astype(y.dtype)

    def differences(x: Any, y: Any, x_query: Any) -> np.ndarray:
        y = np.asarray(y)
        step = STEP * (np.abs(y).max() or 1)
        shifts = step * np.eye(len(y), dtype=y.dtype)
        up, down = (
            np.stack([read(x, y + sign * shift, x_query) for shift in shifts])
            for sign in (y.dtype.type(1), y.dtype.type(-1))
        )
        return np.moveaxis((up - down) / (2 * step), 0, -1).astype(y.dtype)

    def derive(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
        x, y, x_query = primals
        if not all(isinstance(tangents[i], SymbolicZero) for i in (0, 2)):
            raise ValueError(
                "a function of arrays has no derivative in x or x_query; write the model in JAX"
            )
        value = answers(x, y, x_query)
        if isinstance(tangents[1], SymbolicZero):
            return value, jnp.zeros_like(value)
        shape = jax.ShapeDtypeStruct((*value.shape, len(y)), y.dtype)
        hat = jax.pure_callback(differences, shape, x, y, x_query, vmap_method="sequential")
        return value, jnp.einsum("lqn,n->lq", hat, tangents[1], precision="highest")

    answers.defjvp(derive, symbolic_zeros=True)

    def of_task(task: Task) -> jax.Array:
        return answers(task.x, task.y, task.x_query)

    return of_task
