"""Estimates of the rounding errors of a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.typing import DTypeLike

_SAMPLES = 4
"""Number of random perturbations of the arguments."""

UNITS = 4.0
"""Size of a relative change, in units of the unit roundoff."""

MARGIN = 10.0
"""The error is mostly below, and hardly ever above, this multiple of the largest change."""


def cast(tree: Any, dtype: DTypeLike) -> Any:
    """Return the tree with all its floating-point arrays in another dtype.

    Other leaves, also Python's numbers, stay as they are.
    """
    return jax.tree.map(lambda leaf: leaf.astype(dtype) if is_floating(leaf) else leaf, tree)


def is_floating(leaf: Any) -> bool:
    return hasattr(leaf, "astype") and jnp.issubdtype(leaf.dtype, jnp.floating)


def in_float64(function: Callable, *args: Any) -> Any:
    """Call a function in float64, or in the widest dtype that JAX allows if values are traced.

    The function casts its arguments itself (`cast`).
    """
    eager = not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(args))
    with jax.enable_x64(eager or jax.config.jax_enable_x64):  # pyright: ignore[reportAttributeAccessIssue]
        return function(*args)


def with_rounding_error(function: Callable, *args: Any) -> tuple[Any, Any]:
    r"""Call a function, and estimate the rounding errors of its result.

    The function is called four more times, with all numbers of the arguments multiplied by
    $1 \pm 4 u$ with random signs, which changes the result by about its rounding error.

    Source: Vignes, A stochastic arithmetic for reliable scientific computation, 1993.

    >>> _, change = with_rounding_error(lambda x: x - 1, jnp.full(1, 1 + 1e-6))
    >>> bool(1e-7 < change[0] < 1e-6)
    True
    """
    leaves, structure = jax.tree.flatten(args)
    place = [i for i, leaf in enumerate(leaves) if is_floating(leaf)]
    results = [function(*args)]
    for perturbed in _perturbed([leaves[i] for i in place]):
        new_leaves = dict(enumerate(leaves)) | dict(zip(place, perturbed, strict=True))
        results.append(function(*structure.unflatten(new_leaves.values())))
    return results[0], _largest_changes(*results)


@jax.jit
def _perturbed(leaves: list) -> list[list]:
    rng, samples = np.random.default_rng(0), []
    precisions = [float(jnp.finfo(leaf.dtype).eps) for leaf in leaves]
    for _ in range(_SAMPLES):
        signs = [rng.integers(0, 2, np.shape(leaf)) * 2 - 1 for leaf in leaves]
        factors = [1 + s * UNITS * eps for s, eps in zip(signs, precisions, strict=True)]
        samples.append([v * jnp.asarray(f, v.dtype) for v, f in zip(leaves, factors, strict=True)])
    return samples


@jax.jit
def _largest_changes(result: Any, *perturbed: Any) -> Any:
    def largest(value: jax.Array, *others: jax.Array) -> jax.Array:
        return jnp.max(jnp.abs(jnp.stack(others) - value[None]), axis=0)

    return jax.tree.map(largest, result, *perturbed)
