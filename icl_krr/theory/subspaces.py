"""Errors of a sketch in terms of the angle between its features and the leading eigenvectors (C35).

X holds the features of the supports, K = X X^T, and K^ = X P P^T X^T for a sketch P with m
orthonormal columns. A = K + ridge I and A^ = K^ + ridge I.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import checks
from .width import sketch_error_best

Number = jax.Array | float


def relative_inverse_error_angle(
    sigma: Float[Array, " n"], width: Number, ridge: Number, sine: Number
) -> jax.Array:
    r"""Bound the relative error of the inverse for a sketch at an angle $\theta$ (C35).

    $$\rho = |A^{1/2} (A^{-1} - \hat A^{-1}) A^{1/2}|_2 \leq \frac{(\sigma_1 + \lambda)
    (\sigma_{m+1} + \lambda)}{\lambda (\sigma_1 \cos^2 \theta + \sigma_{m+1} \sin^2 \theta +
    \lambda)} - 1 \leq \frac{\sigma_{m+1}}{\lambda \cos^2 \theta} + \tan^2 \theta$$

    $\theta$ is the largest principal angle between the columns of $P$ and the m leading
    eigenvectors of $X^T X$. The first bound is attained if $\sigma_1 = \sigma_m$ and
    $\sigma_{m+1} = \sigma_p$. It is $\sigma_{m+1} / \lambda$ for $\theta = 0$, the best sketch, and
    $\sigma_1 / \lambda$ for $\theta = 90$ degrees, which every sketch satisfies. The solutions
    $\alpha = A^{-1} y$ and $\hat \alpha = \hat A^{-1} y$ satisfy
    $|\hat \alpha - \alpha|_A \leq \rho |\alpha|_A$, and
    $|A^{-1} - \hat A^{-1}|_2 \leq \rho / ((1 + \rho) \lambda)$.

    Proof: $\Pi = P P^T$ is a projection, so $K - \hat K$ is positive semi-definite, and
    $1 + \rho$ is the largest value of $v^T A v / v^T \hat A v$. With $u = X^T v$ it follows that
    $\rho$ is the largest value of $|u - \Pi u|^2 / (|\Pi u|^2 + \lambda u^T (X^T X)^{-1} u)$.
    Replace $X^T X$ by the larger matrix $\sigma_1 Q + \sigma_{m+1} (I - Q)$, where $Q$ projects on
    its m leading eigenvectors. The quotient grows, and depends on the projections $\Pi$ and $Q$.
    These split into planes, one for each principal angle, and into lines. In a plane with angle
    $\theta_i$ the maximum is the first bound at $\theta_i$, which increases with $\theta_i$. On a
    line it is $0$, $\sigma_{m+1} / \lambda$ or, for an angle of 90 degrees, $\sigma_1 / \lambda$.

    Args:
        sigma, width: as in `icl_krr.theory`.
        sine: $\sin \theta$ in [0, 1]; larger values count as 1.

    >>> import numpy as np
    >>> float(relative_inverse_error_angle(np.array([1.0, 2.0, 4.0]), 1, 0.5, 0.0))
    4.0
    >>> float(relative_inverse_error_angle(np.array([1.0, 2.0, 4.0]), 1, 0.5, 1.0))
    8.0
    """
    checks.shapes(sigma=(sigma, "n"))
    checks.positives(ridge=ridge)
    checks.nonnegatives(sine=sine)
    square = jnp.minimum(jnp.asarray(sine), 1) ** 2
    kept, lost = sigma[-1] / ridge, sketch_error_best(sigma, width) / ridge
    above = square * kept + (1 - square) * lost + kept * lost
    return above / (1 + (1 - square) * kept + square * lost)


def subspace_sine(gap: Number, perturbation: Number) -> jax.Array:
    r"""Bound $\sin \theta$ of a leading eigenspace that is computed from a perturbed matrix (C35).

    $$\sin \theta \leq \min(1, e / (g - e))$$

    $\theta$ is the largest angle between the m leading eigenvectors of a symmetric matrix $C$ and
    those of $\hat C$. $g = \sigma_m(C) - \sigma_{m+1}(C)$ is the eigengap and
    $e = |\hat C - C|_2$. If the gap is at most $2 e$, the bound is 1 and says nothing.

    Proof: let $V$ be the m leading eigenvectors of $C$ and $W$ the other eigenvectors of
    $\hat C$. Then $W^T (\hat C - C) V = \hat \Lambda S - S \Lambda$, where $S = W^T V$ has the norm
    $\sin \theta$. The eigenvalues in $\Lambda$ are at least $\sigma_m(C)$, and by Weyl's inequality
    those in $\hat \Lambda$ are at most $\sigma_{m+1}(C) + e$. So the right side has at least the
    norm $(g - e) \sin \theta$, and the left side has at most the norm $e$.

    Args:
        gap: eigengap $g$ >= 0.
        perturbation: size $e$ >= 0 of the perturbation.

    Source: Davis, Kahan, The rotation of eigenvectors by a perturbation, 1970.

    >>> float(subspace_sine(1.0, 0.2))
    0.25
    >>> float(subspace_sine(0.1, 0.2))
    1.0
    """
    checks.nonnegatives(gap=gap, perturbation=perturbation)
    gap, perturbation = jnp.asarray(gap), jnp.asarray(perturbation)
    apart = gap > 2 * perturbation
    return jnp.where(apart, perturbation / jnp.where(apart, gap - perturbation, 1), 1.0)
