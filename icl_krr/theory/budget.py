"""Depth and table width that reach an error, from the number of supports and the ridge (C28)."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from .. import checks
from ..readable import readable
from .tables import table_width

Number = jax.Array | float


@readable
class Budget(NamedTuple):
    """The size of a model with a known error.

    Attributes:
        steps: number of steps, which is the number of blocks after the first ones.
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
        num_supports: number of supports n, >= 1.
        ridge: ridge $\lambda$ > 0.
        largest: bound $\kappa$ > 0 on all values of the kernel; default 1, for the Gaussian kernel.
        radius: bound $R$ > 0 on $\sqrt{p}$ times the largest entry of x over the lengthscale;
            default 4.
        margin: margin of `icl_krr.operand_bounds`, 1.25 by default.

    Returns:
        A `Budget`.

    Raises:
        ValueError: a number is out of range.

    >>> budget(0.01, 64, 0.1).steps
    117
    """
    numbers = {"error": error, "ridge": ridge, "largest": largest, "radius": radius}
    for name, value in (numbers | {"margin": margin}).items():
        checks.positive_scalar(name, value)
    checks.count("num_supports", num_supports)
    n, mass = num_supports, num_supports * largest
    target = jnp.arccosh(jnp.maximum(2 * jnp.sqrt(mass / ridge) / error, 1.0))
    steps = jnp.ceil(target / jnp.arccosh(1 + 2 * ridge / mass))
    operand = margin * 4 * (1 + jnp.sqrt(float(n))) / ridge  # of z: the coefficients are below 4
    of_z = operand * jnp.sqrt(float(mass)) * (mass + ridge) / (2 * jnp.sqrt(ridge))
    of_kernel = (margin * radius) ** 2 * mass * jnp.sqrt(float(n)) / (2 * ridge**1.5)
    of_output = (margin * (mass + 1)) ** 2
    width = table_width(1.0, 1.0, error / (2 * (of_z + of_kernel + of_output)))
    return Budget(max(1, int(steps)), max(2, int(width)))
