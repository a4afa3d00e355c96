"""Errors of a sketch K^ = Phi P P^T Phi^T of K = Phi Phi^T, where P has m columns (C16 to C20).

A = K + ridge I and A^ = K^ + ridge I. The array sigma [n] has the eigenvalues of K in ascending
order. In formulas, sigma_1 is the largest eigenvalue. Widths may be traced.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import checks

Number = jax.Array | float


def beyond(sigma: Float[Array, " n"], width: Number) -> jax.Array:
    """Which of the eigenvalues the best sketch loses."""
    checks.shapes(sigma=(sigma, "n"))
    checks.nonnegatives(width=width)
    return jnp.arange(len(sigma)) < len(sigma) - jnp.asarray(width)


def sketch_error_tail(sigma: Float[Array, " n"], width: Number) -> jax.Array:
    r"""Return $\sum_{i > m} \sigma_i$, the claimed bound on $|K - \hat K|_2$ for any sketch (C16).

    The bound is true for the best sketch, but not for every sketch.

    Args:
        sigma, width: as in `icl_krr.theory`.

    >>> import numpy as np
    >>> float(sketch_error_tail(np.array([1.0, 2.0, 4.0]), 1))
    3.0
    """
    return jnp.sum(jnp.where(beyond(sigma, width), sigma, 0))


def sketch_error_best(sigma: Float[Array, " n"], width: Number) -> jax.Array:
    r"""Return $\sigma_{m+1}$, the error $|K - \hat K|_2$ of the best sketch (C16).

    No matrix of rank m has a smaller error.

    Args:
        sigma, width: as in `icl_krr.theory`.

    >>> import numpy as np
    >>> float(sketch_error_best(np.array([1.0, 2.0, 4.0]), 1))
    2.0
    """
    return jnp.max(jnp.where(beyond(sigma, width), sigma, 0))


def inverse_error_tail(sigma: Float[Array, " n"], width: Number, ridge: Number) -> jax.Array:
    r"""Return $\sum_{i > m} \sigma_i / \lambda^2$, the claimed bound for the inverse (C17).

    It is claimed to bound $|A^{-1} - \hat A^{-1}|_2$ for any sketch. The bound is
    true for the best sketch, but not for every sketch.

    Args:
        sigma, width: as in `icl_krr.theory`.

    >>> import numpy as np
    >>> float(inverse_error_tail(np.array([1.0, 2.0, 4.0]), 1, 0.5))
    12.0
    """
    checks.positives(ridge=ridge)
    return sketch_error_tail(sigma, width) / ridge**2


def inverse_error_best(sigma: Float[Array, " n"], width: Number, ridge: Number) -> jax.Array:
    r"""Return the error $|A^{-1} - \hat A^{-1}|_2$ of the best sketch (C17).

    The error is $\sigma_{m+1} / (\lambda (\lambda + \sigma_{m+1}))$.

    Args:
        sigma, width: as in `icl_krr.theory`.

    >>> import numpy as np
    >>> float(inverse_error_best(np.array([1.0, 2.0, 4.0]), 1, 2.0))
    0.25
    """
    checks.positives(ridge=ridge)
    lost = sketch_error_best(sigma, width)
    return lost / (ridge * (ridge + lost))


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

    >>> import numpy as np
    >>> float(query_error_dual(np.array([3.0, 4.0]), np.array([1.0, 0.0]), 0.5))
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

    >>> import numpy as np
    >>> float(query_error_features(np.array([3.0, 4.0]), np.array([1.0, 0.0]), 0.5))
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
    $f^\ast$. Kernel ridge regression predicts $f^\ast$ with $K$, and $\hat f$ with the kernel of
    the sketch. The true function is a draw from $GP(0, sK)$, so $y$ has variance
    $v_i = s \sigma_i + \nu$ along the i-th eigenvector. Kernel ridge regression multiplies the
    component of $y$ along this eigenvector by $w_i = \sigma_i / (\sigma_i + \lambda)$.

    Args:
        sigma, width: as in `icl_krr.theory`.
        signal: scale $s$ of the covariance of the function.
        noise: variance $\nu$ of the noise.

    >>> import numpy as np
    >>> round(float(expected_gap(np.array([1.0, 1.0]), 1, 1.0, 1.0, 0.0)), 4)
    0.7071
    """
    checks.nonnegative_scalar("signal", signal)
    checks.nonnegative_scalar("noise", noise)
    checks.positive_scalar("ridge", ridge)
    lost = beyond(sigma, width)
    kept = (sigma / (sigma + ridge)) ** 2 * (signal * sigma + noise)
    return jnp.sqrt(jnp.sum(jnp.where(lost, kept, 0)) / jnp.sum(kept))


def logit_perturbation(
    logits: Float[Array, "n n"], sketched: Float[Array, "n n"]
) -> Float[Array, "n n"]:
    r"""Bound the change of every entry $e^s$ if a sketch changes the logits $s$ to $\hat s$ (C20).

    $$|e^s - e^{\hat s}| \leq e^{\max(s, \hat s)} |s - \hat s|$$

    >>> import numpy as np
    >>> logit_perturbation(np.zeros((1, 1)), np.zeros((1, 1))).tolist()
    [[0.0]]
    """
    checks.shapes(logits=(logits, "m n"), sketched=(sketched, "m n"))
    return jnp.exp(jnp.maximum(logits, sketched)) * jnp.abs(logits - sketched)
