"""Predictive distributions: mixtures of Gaussians."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..readable import readable


@readable
class Predictive(NamedTuple):
    r"""The predictive distribution of an observed output, a mixture of G Gaussians.

    $$p(y) = \sum_g w_g \, N(y; m_g, v_g)$$

    The distribution is that of the output with its noise, not that of the function. One Gaussian is
    a mixture with G = 1. Leading axes are those of the outputs, such as [q] or [q, r].

    Attributes:
        weights: probabilities $w_g$ of the Gaussians, [..., G].
        means: means $m_g$, [..., G].
        variances: variances $v_g$, [..., G].

    >>> import numpy as np
    >>> both = Predictive(np.array([0.5, 0.5]), np.array([-1.0, 1.0]), np.array([2.0, 2.0]))
    >>> float(both.mean), float(both.variance)
    (0.0, 3.0)
    """

    weights: Float[Array, "... G"]
    means: Float[Array, "... G"]
    variances: Float[Array, "... G"]

    @property
    def mean(self) -> Float[Array, "..."]:
        """The mean of the mixture."""
        return jnp.sum(self.weights * self.means, axis=-1)

    @property
    def variance(self) -> Float[Array, "..."]:
        """The variance of the mixture: mean of the variances, plus variance of the means."""
        gaps = self.means - self.mean[..., None]
        return jnp.sum(self.weights * (self.variances + gaps**2), axis=-1)
