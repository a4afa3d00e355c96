"""How far rounding errors move the results of a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

CHANGES = 4
"""Number of random changes of the arguments."""

UNITS = 4.0
"""Size of a relative change, in units of the unit roundoff."""

MARGIN = 10.0
"""The error is mostly below, and hardly ever above, this multiple of the largest change."""


def cast(tree: Any, dtype: DTypeLike) -> Any:
    """Return the tree with all its floating-point arrays in another dtype.

    Args:
        tree: pytree of arrays and other objects.
        dtype: floating-point dtype.

    Returns:
        The tree; other leaves, also Python's numbers, stay as they are.

    >>> [str(leaf.dtype) for leaf in cast((jnp.ones(1), jnp.arange(1)), jnp.bfloat16)]
    ['bfloat16', 'int32']
    """
    return jax.tree.map(lambda leaf: leaf.astype(dtype) if is_floating(leaf) else leaf, tree)


def is_floating(leaf: Any) -> bool:
    return hasattr(leaf, "astype") and jnp.issubdtype(leaf.dtype, jnp.floating)


def spread(function: Callable, *given: Any) -> tuple[Any, Any]:
    r"""Call a function, and estimate how far rounding errors move its result.

    The function is called four times more, with all numbers of the arguments multiplied by
    $1 \pm 4 u$ with random signs. This moves the result as far as rounding errors do: those of the
    problem, if it is ill-conditioned, and those of the algorithm, which are others each time.

    Args:
        function: function of arrays whose result is a pytree of arrays.
        given: arguments of the function, pytrees; their floating-point arrays are changed.

    Returns:
        The result, and the largest changes of its numbers in the same pytree.

    Source: Vignes, A stochastic arithmetic for reliable scientific computation, 1993.

    >>> _, change = spread(lambda x: x - 1, jnp.full(1, 1 + 1e-6))
    >>> bool(1e-7 < change[0] < 1e-6)
    True
    """
    known, found = function(*given), []
    for number in range(CHANGES):
        rng = np.random.default_rng(number)
        changed = function(*jax.tree.map(lambda leaf, rng=rng: nudged(leaf, rng), given))
        found.append(jax.tree.map(lambda a, b: jnp.abs(a - b), changed, known))
    return known, jax.tree.map(lambda *changes: jnp.max(jnp.stack(changes), axis=0), *found)


def nudged(leaf: Any, rng: np.random.Generator) -> Any:
    if not is_floating(leaf):
        return leaf
    signs = rng.integers(0, 2, np.shape(leaf)) * 2 - 1
    return leaf * jnp.asarray(1 + signs * UNITS * float(jnp.finfo(leaf.dtype).eps), leaf.dtype)
