"""Numbers from which a model is built: NumPy arrays if concrete, JAX arrays if traced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from numpy.lib.mixins import NDArrayOperatorsMixin

from . import checks
from .numerics import matmul


def as_constant(value: Any) -> Any:
    """Return a JAX array that is not traced as a NumPy array, and other values unchanged.

    Operations of NumPy compile nothing, and a trace takes its arrays as constants.

    >>> type(as_constant(np.ones(2))).__name__, as_constant(0.5)
    ('ndarray', 0.5)
    """
    if not isinstance(value, jax.Array) or jnp.issubdtype(value.dtype, jax.dtypes.extended):
        return value  # NumPy has no random keys
    array = checks.concrete(value)
    return value if array is None else array


def as_jax(value: Any) -> jax.Array:
    """Return an array as one of JAX; unlike `jnp.asarray`, this compiles nothing."""
    return value if isinstance(value, jax.Array) else jax.device_put(value)


class PerStep(NDArrayOperatorsMixin):
    """An array that differs between solver steps; operators and `xp` treat it as one array.

    So a step is recorded once, as a function that `jax.vmap` traces.

    Args:
        values: the entries of all steps, [steps, ...].

    >>> (1 - PerStep(np.array([1.0, 2.0]))).values.tolist()
    [0.0, -1.0]
    """

    def __init__(self, values: Any):
        self.values = values
        self.shape, self.ndim, self.dtype = values.shape[1:], values.ndim - 1, values.dtype

    def astype(self, dtype: DTypeLike) -> PerStep:
        return PerStep(self.values.astype(dtype))

    def __getitem__(self, index: Any) -> PerStep:
        return _map_steps(lambda value: value[index], (self,))

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *args: Any) -> PerStep:
        return _map_steps(getattr(xp, ufunc.__name__), args)


def _map_steps(function: Callable, args: Any) -> PerStep:
    leaves, structure = jax.tree.flatten(args)

    def apply(*per_step: Any) -> Any:
        each = iter(per_step)
        entries = [next(each) if isinstance(leaf, PerStep) else leaf for leaf in leaves]
        return function(*structure.unflatten(entries))

    per_step = [leaf.values for leaf in leaves if isinstance(leaf, PerStep)]
    if any_instance(jax.Array, (leaves, per_step)):
        return PerStep(jax.vmap(apply)(*per_step))
    return PerStep(np.stack([apply(*values) for values in zip(*per_step, strict=True)]))


def stacked_steps(array: Any) -> Any:
    """Return an array [steps, ...] for a `PerStep`, or [1, ...] for one that all steps share."""
    return array.values if isinstance(array, PerStep) else array[None]


class NumpyOrJax:
    """The functions of NumPy if no argument is an array of JAX, else those of `jax.numpy`.

    Weights are computed with `xp`: from concrete numbers without compiling, from traced ones within
    the trace. Their arrays start with `xp.asarray`.

    >>> type(xp.exp(np.ones(2))).__name__, jax.eval_shape(xp.exp, np.ones(2)).shape
    ('ndarray', (2,))
    """

    def __getattr__(self, name: str) -> Callable:
        def function(*args: Any, **options: Any) -> Any:
            if any_instance(PerStep, args):
                return _map_steps(lambda *args: getattr(self, name)(*args, **options), args)
            return getattr(jnp if any_instance(jax.Array, args) else np, name)(*args, **options)

        return function

    def asarray(self, value: Any, dtype: DTypeLike | None = None) -> Any:
        """Return an array, a NumPy one if the value is concrete, in a dtype that JAX has."""
        value = as_constant(value)
        if isinstance(value, jax.Array):
            return jnp.asarray(value, dtype)
        dtype = jnp.result_type(value if dtype is None else dtype)
        return value.astype(dtype) if hasattr(value, "astype") else np.asarray(value, dtype)

    def matmul(self, a: Any, b: Any) -> Any:
        """Compute a @ b at full precision."""
        if any_instance(PerStep, (a, b)):
            return _map_steps(self.matmul, (a, b))
        if any_instance(jax.Array, (a, b)):
            return matmul(a, b)
        return np.matmul(a, b).astype(np.result_type(a, b))  # NumPy turns bfloat16 into float32


def any_instance(kind: type, args: Any) -> bool:
    return any(
        any_instance(kind, arg) if isinstance(arg, (tuple, list)) else isinstance(arg, kind)
        for arg in args
    )


xp = NumpyOrJax()
