"""Errors of products and reciprocals by piecewise-linear interpolation in a table (C14)."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from .. import checks

Number = jax.Array | float


def product_table_error(a: Number, b: Number, width: Number) -> jax.Array:
    """Return the bound $ab / w^2$ on the error of a product from a table of squares (C14).

    The product is computed as $(s^2 - d^2) ab / 4$, with both squares from the table. Here $s$ and
    $d$ are the sum and the difference of the factors after scaling to $[-1, 1]$, so both are in
    $[-2, 2]$. The table has $w$ equal segments of length $h = 4 / w$. The interpolated square
    exceeds the true square by at most $h^2 / 4$. It is exact at the knots. The bound is attained if
    $s$ is the midpoint of a segment and $d$ is a knot.

    Args:
        a: bound on the first factor, which lies in $[-a, a]$.
        b: bound on the second factor, which lies in $[-b, b]$.
        width: number $w$ of segments.

    Returns:
        The largest absolute error, a scalar.

    >>> float(product_table_error(2.0, 4.0, 4))
    0.5
    """
    checks.positives(a=a, b=b, width=width)
    return jnp.asarray(a) * b / jnp.asarray(width) ** 2


def reciprocal_table_error(low: Number, high: Number, width: Number) -> jax.Array:
    r"""Return the largest relative error of $1 / x$ from a table on $[a, b]$ (C14).

    The knots are in geometric progression with ratio $\rho = (b / a)^{1 / w}$. The largest error is
    $(\rho - 1)^2 / 4\rho$ on each of the $w$ segments. It occurs at the midpoint of the segment.

    Args:
        low: lower end $a$ > 0 of the table.
        high: upper end $b$ of the table.
        width: number $w$ of segments.

    Returns:
        The largest relative error, a scalar.

    >>> float(reciprocal_table_error(1.0, 4.0, 1))
    0.5625
    """
    checks.spectrum((low, high))
    checks.positives(width=width)
    rho = (jnp.asarray(high) / low) ** (1 / jnp.asarray(width))
    return (rho - 1) ** 2 / (4 * rho)


def table_width(a: Number, b: Number, error: Number) -> jax.Array:
    """Return the least even width at which `product_table_error` is at most `error` (C14).

    Args:
        a: bound on the first factor, which lies in $[-a, a]$.
        b: bound on the second factor, which lies in $[-b, b]$.
        error: largest absolute error of the product, > 0.

    Returns:
        The number of segments, a scalar.

    >>> int(table_width(2.0, 4.0, 0.5))
    4
    """
    checks.positives(a=a, b=b, error=error)
    return 2 * jnp.ceil(jnp.sqrt(jnp.asarray(a) * b / error) / 2)
