"""Results of the solvers."""

from __future__ import annotations

from typing import NamedTuple

from jaxtyping import Array, Float


class Solution(NamedTuple):
    r"""Exact kernel ridge regression: $\alpha = (K + \lambda I)^{-1} y$ and its predictions.

    Attributes:
        alpha: coefficients $\alpha$, [n] or [n, r] like y.
        prediction: predictions at the queries, [q] or [q, r].
        residual: relative residual $|y - (K + \lambda I) \alpha| / |y|$, a scalar that measures the
            rounding error. It is NaN or infinite if the factorisation failed or the kernel
            overflowed. For y = 0 it is the absolute residual.
    """

    alpha: Float[Array, "..."]
    prediction: Float[Array, "..."]
    residual: Float[Array, ""]


class Trajectory(NamedTuple):
    r"""All iterates of a solver, from iterate 0 to iterate L = steps.

    Attributes:
        alpha: coefficients, [L + 1, n] or [L + 1, n, r], or None for a solver without coefficients.
        r: residual $r = y - (K + \lambda I) \alpha$, [L + 1, n] or [L + 1, n, r].
        p: search direction, [L + 1, n] or [L + 1, n, r], or None for a solver without search
            directions.
        prediction: predictions at the queries, [L + 1, q] or [L + 1, q, r].
    """

    alpha: Float[Array, "..."] | None
    r: Float[Array, "..."]
    p: Float[Array, "..."] | None
    prediction: Float[Array, "..."]


class Smoothing(NamedTuple):
    """Predictions of a linear smoother: weights times y.

    Attributes:
        prediction: predictions at the queries, [q] or [q, r].
        weights: weight of every support in every prediction [q, n].
    """

    prediction: Float[Array, "..."]
    weights: Float[Array, "q n"]


class Posterior(NamedTuple):
    """Posterior of a Gaussian process at the queries.

    Attributes:
        mean: posterior mean, [q] or [q, r].
        variance: posterior variance of the function value [q], the same for all outputs.
    """

    mean: Float[Array, "..."]
    variance: Float[Array, " q"]
