"""Errors of a sketch K^ = Phi P P^T Phi^T of K = Phi Phi^T with m columns (C16 to C20, C35)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._core import checks

Number = jax.Array | float


def beyond(sigma: Float[Array, " n"], width: Number) -> jax.Array:
    """Which of the eigenvalues the best sketch loses."""
    checks.shapes(sigma=(sigma, "n"))
    checks.nonnegatives(width=width)
    return jnp.arange(len(sigma)) < len(sigma) - jnp.asarray(width)


def sketch_error_tail(sigma: Float[Array, " n"], width: Number) -> jax.Array:
    r"""Return $\sum_{i > m} \sigma_i$, the claimed bound on $|K - \hat K|_2$ for any sketch (C16).

    The bound is true for the best sketch, but not for every sketch.

    >>> float(sketch_error_tail(jnp.array([1.0, 2.0, 4.0]), 1))
    3.0
    """
    return jnp.sum(jnp.where(beyond(sigma, width), sigma, 0))


def sketch_error_best(sigma: Float[Array, " n"], width: Number) -> jax.Array:
    r"""Return $\sigma_{m+1}$, the least error $|K - \hat K|_2$ of all matrices of rank m (C16).

    >>> float(sketch_error_best(jnp.array([1.0, 2.0, 4.0]), 1))
    2.0
    """
    return jnp.max(jnp.where(beyond(sigma, width), sigma, 0))


def inverse_error_tail(sigma: Float[Array, " n"], width: Number, ridge: Number) -> jax.Array:
    r"""Return $\sum_{i > m} \sigma_i / \lambda^2$, the claimed bound for the inverse (C17).

    It is claimed to bound $|A^{-1} - \hat A^{-1}|_2$ for any sketch, and does for the best one
    only.

    >>> float(inverse_error_tail(jnp.array([1.0, 2.0, 4.0]), 1, 0.5))
    12.0
    """
    checks.positives(ridge=ridge)
    return sketch_error_tail(sigma, width) / ridge**2


def inverse_error_best(sigma: Float[Array, " n"], width: Number, ridge: Number) -> jax.Array:
    r"""Return $\sigma_{m+1} / (\lambda (\lambda + \sigma_{m+1}))$, the best sketch's error (C17).

    It is the error $|A^{-1} - \hat A^{-1}|_2$.

    >>> float(inverse_error_best(jnp.array([1.0, 2.0, 4.0]), 1, 2.0))
    0.25
    """
    checks.positives(ridge=ridge)
    error = sketch_error_best(sigma, width)
    return error / (ridge * (ridge + error))


def inverse_error_bound(error: Number, ridge: Number) -> jax.Array:
    r"""Bound $|A^{-1} - \hat A^{-1}|_2$ by $\min(e / \lambda^2, 1 / \lambda)$ for any sketch (C17).

    The first term holds because the error equals $|A^{-1} (\hat K - K) \hat A^{-1}|_2$. The second
    term holds because the eigenvalues of both inverses lie between 0 and $1 / \lambda$.

    Args:
        error: error $e = |K - \hat K|_2$ of the sketch.

    >>> float(inverse_error_bound(4.0, 0.5))
    2.0
    """
    checks.nonnegatives(error=error)
    checks.positives(ridge=ridge)
    return jnp.minimum(jnp.asarray(error) / ridge**2, 1 / jnp.asarray(ridge))


def query_error_dual(
    cross: Float[Array, "... n"], y: Float[Array, " n"], inverse_error: Number
) -> jax.Array:
    r"""Bound the prediction error that the change of alpha causes (C18).

    $$|k^T (A^{-1} - \hat A^{-1}) y| \leq |k| |y| |A^{-1} - \hat A^{-1}|_2$$

    Args:
        cross: kernel values $k = k(x)$ between queries and supports [..., n].
        inverse_error: error $|A^{-1} - \hat A^{-1}|_2$ of the inverse.

    >>> float(query_error_dual(jnp.array([3.0, 4.0]), jnp.array([1.0, 0.0]), 0.5))
    2.5
    """
    checks.shapes(cross=(cross, "... n"), y=(y, "n"))
    checks.nonnegative_scalar("inverse_error", inverse_error)
    return jnp.linalg.norm(cross, axis=-1) * jnp.linalg.norm(y) * inverse_error


def query_error_features(
    cross_gap: Float[Array, "... n"], y: Float[Array, " n"], ridge: Number
) -> jax.Array:
    r"""Bound the prediction error that the change of the features of the query causes (C18).

    $$|(k - \hat k)^T \hat A^{-1} y| \leq |k - \hat k| |y| / \lambda$$

    Args:
        cross_gap: change $k - \hat k$ of the kernel values of the queries [..., n].

    >>> float(query_error_features(jnp.array([3.0, 4.0]), jnp.array([1.0, 0.0]), 0.5))
    10.0
    """
    checks.shapes(cross_gap=(cross_gap, "... n"), y=(y, "n"))
    checks.positive_scalar("ridge", ridge)
    return jnp.linalg.norm(cross_gap, axis=-1) * jnp.linalg.norm(y) / ridge


def expected_gap(
    sigma: Float[Array, " n"], width: Number, ridge: Number, signal: Number, noise: Number
) -> jax.Array:
    r"""Return the expected relative gap of the best sketch for a Gaussian process with noise (C19).

    $$\sqrt{\sum_{i > m} w_i^2 v_i / \sum_i w_i^2 v_i}$$

    The gap is the root mean square of $\hat f - f^\ast$ over the supports, divided by that of
    $f^\ast$, where kernel ridge regression predicts $\hat f$ with the kernel of the sketch. The
    true function is a draw from $GP(0, sK)$, so $y$ has variance $v_i = s \sigma_i + \nu$ along the
    i-th eigenvector. The weights $w_i$ are those of `lost_share_bound`.

    Args:
        signal: scale $s$ of the covariance of the function.
        noise: variance $\nu$ of the noise.

    >>> round(float(expected_gap(jnp.array([1.0, 1.0]), 1, 1.0, 1.0, 0.0)), 4)
    0.7071
    """
    checks.nonnegative_scalar("signal", signal)
    checks.nonnegative_scalar("noise", noise)
    checks.positive_scalar("ridge", ridge)
    tail = beyond(sigma, width)
    shrunk = (sigma / (sigma + ridge)) ** 2 * (signal * sigma + noise)
    return jnp.sqrt(jnp.sum(jnp.where(tail, shrunk, 0)) / jnp.sum(shrunk))


def logit_perturbation(logits: Float[Array, "n n"], sketched: Float[Array, "n n"]) -> Array:
    r"""Bound the change of every entry $e^s$ if a sketch changes the logits $s$ to $\hat s$ (C20).

    $$|e^s - e^{\hat s}| \leq e^{\max(s, \hat s)} |s - \hat s|$$

    >>> logit_perturbation(jnp.zeros((1, 1)), jnp.zeros((1, 1))).tolist()
    [[0.0]]
    """
    checks.shapes(logits=(logits, "m n"), sketched=(sketched, "m n"))
    return jnp.exp(jnp.maximum(logits, sketched)) * jnp.abs(logits - sketched)


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
        sine: $\sin \theta$ in [0, 1]; larger values count as 1.

    >>> float(relative_inverse_error_angle(jnp.array([1.0, 2.0, 4.0]), 1, 0.5, 0.0))
    4.0
    >>> float(relative_inverse_error_angle(jnp.array([1.0, 2.0, 4.0]), 1, 0.5, 1.0))
    8.0
    """
    checks.shapes(sigma=(sigma, "n"))
    checks.positives(ridge=ridge)
    checks.nonnegatives(sine=sine)
    square = jnp.minimum(jnp.asarray(sine), 1) ** 2
    largest, error = sigma[-1] / ridge, sketch_error_best(sigma, width) / ridge
    above = square * largest + (1 - square) * error + largest * error
    return above / (1 + (1 - square) * largest + square * error)


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
    separated = gap > 2 * perturbation
    return jnp.where(separated, perturbation / jnp.where(separated, gap - perturbation, 1), 1.0)
