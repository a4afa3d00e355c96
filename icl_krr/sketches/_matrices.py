"""Sketch matrices P [p, m]: the m features P^T x replace the p features of x."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._core import checks
from .._core.linalg import eigh
from .._core.numerics import matmul
from .._core.xla_workarounds import sequential_on_cpu
from ..kernels import Features, Kernel
from ..kernels._kernel import check_kernel


def sketched(kernel: Kernel, sketch: Any) -> Kernel:
    """Return the kernel $k(P^T x, P^T z)$ of sketched inputs, or the kernel of a feature map.

    If m < p, a transformer that uses this kernel needs a smaller width. If the kernel has a
    projection, the projection applies to $P^T x$.

    Args:
        sketch: matrix $P$ [p, m], which is traced, or a feature map such as the result of
            `nystrom_features`, which replaces the kernel.

    >>> from icl_krr import Linear
    >>> sketched(Linear(), jnp.eye(3, 2))(jnp.ones((1, 3)), jnp.ones((1, 3))).tolist()
    [[2.0]]
    """
    check_kernel(kernel)
    if callable(sketch):
        return Features(sketch)
    checks.shapes(sketch=(sketch, "p m"))
    return kernel.sketched(sketch)


def best(x: Float[Array, "... n p"], width: int) -> Float[Array, "p m"]:
    r"""Return the m leading eigenvectors of $X^T X$, the best sketch of the linear kernel at x.

    Among all matrices of rank m, $\hat K = X P P^T X^T$ is closest to $K = X X^T$ in the spectral
    norm, and $|K - \hat K|_2 = \sigma_{m+1}$. For a batch, $X$ holds the points of all tasks. The
    result then approximates the best sketch for their distribution.

    Args:
        x: supports of one task [n, p] or of a batch of tasks [b, n, p], float32 or float64.
        width: number m of columns, 1 to p.

    Source: Eckart, Young, 1936; Mirsky, 1960.

    >>> abs(best(jnp.diag(jnp.array([1.0, 3.0])), 1)).tolist()
    [[0.0], [1.0]]
    """
    check_points(x, 2, 3)
    points = x.reshape(-1, x.shape[-1])
    check_width(width, points.shape[1])
    return eigh(matmul(points.T, points))[1][:, ::-1][:, :width]


def orthonormal(key: jax.Array, num_features: int, width: int) -> Float[Array, "p m"]:
    """Draw a sketch with orthonormal columns, $P^T P = I$, uniformly at random.

    Args:
        width: number m of columns, 1 to p.

    >>> orthonormal(jax.random.key(0), 4, 2).shape
    (4, 2)
    """
    checks.key("key", key)
    check_width(width, num_features)
    return sequential_on_cpu(partial(jax.random.orthogonal, n=num_features))(key)[:, :width]


def gaussian(key: jax.Array, num_features: int, width: int) -> Float[Array, "p m"]:
    """Draw a sketch with independent $N(0, 1 / m)$ entries, so that the mean of $P P^T$ is $I$.

    Args:
        width: number m of columns, >= 1; may exceed p.

    >>> gaussian(jax.random.key(0), 4, 2).shape
    (4, 2)
    """
    checks.key("key", key)
    checks.count("num_features", num_features)
    checks.count("width", width)
    return jax.random.normal(key, (num_features, width)) / jnp.sqrt(float(width))


def coordinates(num_features: int, width: int) -> Float[Array, "p m"]:
    """Return the sketch that keeps the first m features.

    Args:
        width: as in `orthonormal`.

    >>> coordinates(3, 2).tolist()
    [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]
    """
    check_width(width, num_features)
    return jnp.eye(num_features, width)


def landmarks(x: Float[Array, "n p"], width: int) -> Float[Array, "p m"]:
    """Return the sketch for which $P^T x = W^{-1/2} L x$, the linear kernel's Nystrom features.

    The rows of $L$ are the first m points, the landmarks, and $W = L L^T$. $P P^T$ is the
    projection on the span of the landmarks. $W^{-1/2}$ is 0 on the null space of $W$.

    Args:
        width: number m of landmarks, 1 to n.

    >>> landmarks(jnp.array([[2.0, 0.0], [1.0, 1.0]]), 1).tolist()
    [[1.0], [0.0]]
    """
    check_points(x, 2)
    check_at_most("width", width, len(x), f"n = {len(x)}, the number of points")
    points = x[:width]
    return matmul(points.T, root_inverse(matmul(points, points.T)))


def root_inverse(gram: Float[Array, "m m"]) -> Float[Array, "m m"]:
    """Return W^(-1/2). Eigenvalues below m eps sigma_1 are treated as 0."""
    return matmul(*scaled_vectors(gram, gram.shape[0]))


def scaled_vectors(gram: Float[Array, "l l"], width: int) -> tuple[jax.Array, jax.Array]:
    """Return V s^(-1/2) [l, m] and V^T [m, l] for the m leading eigenpairs of W.

    A column of the first matrix is 0 if s is not above the rounding error.
    """
    return _scaled(*eigh(gram), width)


@partial(jax.jit, static_argnums=2)
def _scaled(sigma: jax.Array, vectors: jax.Array, width: int) -> tuple[jax.Array, jax.Array]:
    sigma, vectors = (part[..., ::-1][..., :width] for part in (sigma, vectors))
    null = sigma <= len(vectors) * jnp.finfo(sigma.dtype).eps * sigma[0]
    root = jnp.where(null, 0, 1 / jnp.sqrt(jnp.where(null, 1, sigma)))
    return vectors * root[None], vectors.T


def check_points(x: Any, *axes: int) -> None:
    checks.floating("x", x)
    if x.ndim not in axes or 0 in x.shape:
        shape = "[n, p] or [b, n, p]" if 3 in axes else "[n, p]"
        raise ValueError(f"x must be {shape} with no axis of size 0, got shape {list(x.shape)}")
    checks.finite("x", x)


def check_width(width: int, num_features: int) -> None:
    checks.count("num_features", num_features)
    check_at_most("width", width, num_features, f"p = {num_features} features")


def check_at_most(name: str, value: int, most: int, words: str) -> None:
    checks.count(name, value)
    if value > most:
        raise ValueError(f"{name} must be <= {words}, got {value}")
