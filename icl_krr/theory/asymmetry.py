"""Attention scores whose queries and keys have different weights (C32)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import checks, shapes
from ..linalg import eigh

Number = jax.Array | float


def opposite_pair_eigenvalue(form: Float[Array, "p p"], temperature: Number) -> Float[Array, ""]:
    r"""Return the smallest eigenvalue $2 \sinh(\mu / \tau)$ of the scores of two points (C32).

    The scores are $\exp(x^T M z / \tau)$ for a symmetric matrix $M = W_Q^T W_K$ with smallest
    eigenvalue $\mu$. The points are the unit eigenvector of $\mu$ and its negative. So if $M$ has a
    negative eigenvalue, the scores are no positive semi-definite kernel. If $M$ has none, they are
    one on every set of points.

    Args:
        form: symmetric matrix $M$ [p, p].
        temperature: temperature $\tau$ > 0.

    >>> import numpy as np
    >>> round(float(opposite_pair_eigenvalue(-np.eye(2), 1.0)), 2)
    -2.35
    """
    shapes.check(form=(form, "p p"))
    checks.positive_scalar("temperature", temperature)
    return 2 * jnp.sinh(eigh(form)[0][0] / temperature)
