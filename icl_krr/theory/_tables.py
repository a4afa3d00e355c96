"""Errors of piecewise-linear tables (C14), and the depth and width that reach an error (C28)."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from .._core import checks
from .._core.readable import readable

Number = jax.Array | float


def product_table_error(a: Number, b: Number, width: Number) -> jax.Array:
    """Return the bound $ab / w^2$ on the error of a product from a table of squares (C14).

    The product is computed as $(s^2 - d^2) ab / 4$, where $s$ and $d$ are the sum and the
    difference of the factors after scaling to $[-1, 1]$. The table of squares has $w$ equal
    segments of length $h = 4 / w$. The interpolated square exceeds the true square by at most
    $h^2 / 4$, and is exact at the knots. The bound is attained if $s$ is the midpoint of a segment
    and $d$ is a knot.

    Args:
        a, b: bounds on the absolute values of the factors.
        width: number $w$ of segments.

    >>> float(product_table_error(2.0, 4.0, 4))
    0.5
    """
    checks.positives(a=a, b=b, width=width)
    return jnp.asarray(a) * b / jnp.asarray(width) ** 2


def reciprocal_table_error(low: Number, high: Number, width: Number) -> jax.Array:
    r"""Return the largest relative error of $1 / x$ from a table of w segments on $[a, b]$ (C14).

    The knots are in geometric progression with ratio $\rho = (b / a)^{1 / w}$. The error is
    $(\rho - 1)^2 / 4\rho$, at the midpoint of each segment.

    >>> float(reciprocal_table_error(1.0, 4.0, 1))
    0.5625
    """
    checks.spectrum((low, high))
    checks.positives(width=width)
    rho = (jnp.asarray(high) / low) ** (1 / jnp.asarray(width))
    return (rho - 1) ** 2 / (4 * rho)


@readable
class Budget(NamedTuple):
    """The size of a model with a known error.

    Attributes:
        width: width of the tables of `icl_krr.ReLU`.
    """

    steps: int
    width: int


def budget(
    error: float,
    num_supports: int,
    ridge: float,
    *,
    largest: float = 1.0,
    radius: float = 4.0,
    margin: float = 1.25,
) -> Budget:
    r"""Return steps and table width of `preconditioned_chebyshev` for an error (C28).

    Half of the error is for the depth. As $|f_t - f^\ast| \leq |e_t|_A \sqrt{\kappa}$ and
    $|e_0|_A = \sqrt{y^T A^{-1} y} \leq |y| / \sqrt{\lambda}$, the steps are the least $t$ with

    $$T_t(1 + 2 \lambda / (n \kappa)) \geq 2 \sqrt{n \kappa / \lambda} / \epsilon$$

    Half is for the tables, whose products have errors of $ab / w^2$ each. An error $\delta$ of all
    $z_t$ moves the limit of the iteration by $A^{-1} (D + \lambda I) \delta$, which is at most
    $\sqrt{n \kappa} (n \kappa + \lambda) |\delta|_\infty / 2 \sqrt{\lambda}$ in $f$. The tables of
    $|x|^2 / 2$ multiply the values of the kernel by $1 \pm R^2 / w^2$, and the last product, with
    the normaliser, adds one error of a table. The width is sufficient for the sum of the three.

    Args:
        error: largest error $\epsilon$ > 0 of a prediction, in units of the largest |y|.
        largest: bound $\kappa$ > 0 on all values of the kernel; 1 for the Gaussian kernel.
        radius: bound $R$ > 0 on $\sqrt{p}$ times the largest entry of x over the lengthscale.
        margin: margin of `icl_krr.operand_bounds`.

    >>> budget(0.01, 64, 0.1).steps
    117
    """
    checks.positives(error=error, ridge=ridge, largest=largest, radius=radius, margin=margin)
    checks.count("num_supports", num_supports)
    mass, more = num_supports * largest, math.sqrt(num_supports)
    target = math.acosh(max(2 * math.sqrt(mass / ridge) / error, 1.0))
    steps = math.ceil(target / (2 * math.asinh(math.sqrt(ridge / mass))))
    operand = margin * 4 * (1 + more) / ridge  # of z: the coefficients are below 4
    of_z = operand * math.sqrt(mass) * (mass + ridge) / (2 * math.sqrt(ridge))
    of_kernel = (margin * radius) ** 2 * mass * more / (2 * ridge**1.5)
    of_output = (margin * (mass + 1)) ** 2
    width = 2 * math.ceil(math.sqrt(2 * (of_z + of_kernel + of_output) / error) / 2)
    return Budget(max(1, steps), max(2, width))
