"""Matrices P [p, m] that m channels carry P^T x in place of p carrying x."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import checks
from ..kernels import Features, Kernel, check_kernel
from ..linalg import eigh, one_by_one
from ..numerics import matmul


def sketched(kernel: Kernel, sketch: Any) -> Kernel:
    """The kernel that a transformer of less width works with: $k(P^T x, P^T z)$, or of features.

    `sketch` is a matrix $P$ [p, m], which is traced, or a feature map such as `nystrom_features`
    makes, which stands for a kernel of its own. A projection of the kernel is one of $P^T x$.

    Raises TypeError for what is neither, ValueError for a kernel that a matrix cannot precede.

    >>> import jax.numpy as jnp
    >>> from icl_krr import Linear
    >>> sketched(Linear(), jnp.eye(3, 2))(jnp.ones((1, 3)), jnp.ones((1, 3))).tolist()
    [[2.0]]
    """
    check_kernel(kernel)
    if callable(sketch):
        return Features(sketch)
    checks.floating("sketch", sketch)
    if sketch.ndim != 2:
        raise ValueError(f"sketch must be [p, m], got shape {list(sketch.shape)}")
    return kernel.sketched(sketch)


def best(x: Float[Array, "... n p"], width: int) -> Float[Array, "p m"]:
    r"""The m leading eigenvectors of $X^T X$: $P P^T$ keeps $K = X X^T$ best among rank m.

    `x` $X$ [n, p] are the supports of one task, or [b, n, p] of a batch, for the best sketch of the
    distribution that they were drawn from. Then $|K - \hat K|_2 = \sigma_{m+1}$, for those x
    together.

    Raises ValueError for a width that is not in 1 .. p.

    Source: Eckart, Young, 1936; Mirsky, 1960.

    >>> import jax.numpy as jnp
    >>> abs(best(jnp.diag(jnp.array([1.0, 3.0])), 1)).tolist()
    [[0.0], [1.0]]
    """
    check_points(x, 2, 3)
    points = x.reshape(-1, x.shape[-1])
    check_width(width, points.shape[1])
    return eigh(matmul(points.T, points))[1][:, ::-1][:, :width]


def orthonormal(key: jax.Array, num_features: int, width: int) -> Float[Array, "p m"]:
    """Orthonormal columns in uniformly random position: $P^T P = I$.

    >>> import jax
    >>> orthonormal(jax.random.key(0), 4, 2).shape
    (4, 2)
    """
    check_width(width, num_features)
    rotation = one_by_one(partial(jax.random.orthogonal, n=num_features))(key)
    return rotation[:, :width]


def gaussian(key: jax.Array, num_features: int, width: int) -> Float[Array, "p m"]:
    """Independent $N(0, 1 / m)$ entries: the mean of $P P^T$ is $I$.

    >>> import jax
    >>> gaussian(jax.random.key(0), 4, 2).shape
    (4, 2)
    """
    checks.count("num_features", num_features)
    checks.count("width", width)
    return jax.random.normal(key, (num_features, width)) / jnp.sqrt(float(width))


def coordinates(num_features: int, width: int) -> Float[Array, "p m"]:
    """The first m features.

    >>> coordinates(3, 2).tolist()
    [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]
    """
    check_width(width, num_features)
    return jnp.eye(num_features, width)


def landmarks(x: Float[Array, "n p"], width: int) -> Float[Array, "p m"]:
    """The linear kernel's Nystrom features $P^T x = W^{-1/2} L x$ of the first m rows $L$ of x.

    $P P^T$ projects on the span of the landmarks: $W = L L^T$, its null space left out.

    Raises ValueError for a width that is not in 1 .. n.

    >>> import jax.numpy as jnp
    >>> landmarks(jnp.array([[2.0, 0.0], [1.0, 1.0]]), 1).tolist()
    [[1.0], [0.0]]
    """
    check_points(x, 2)
    checks.count("width", width)
    if width > len(x):
        raise ValueError(f"width must be <= n = {len(x)}, the number of points, got {width}")
    chosen = x[:width]
    return matmul(chosen.T, root_inverse(matmul(chosen, chosen.T)))


def root_inverse(gram: Float[Array, "m m"]) -> Float[Array, "m m"]:
    """W^(-1/2), directions below m eps sigma_1 counting as the null space of W."""
    return matmul(*scaled_vectors(gram, gram.shape[0]))


def scaled_vectors(gram: Float[Array, "l l"], width: int) -> tuple[jax.Array, jax.Array]:
    """V s^(-1/2) [l, m] and V^T [m, l] of the m leading eigenpairs, 0 where s is rounding."""
    sigma, vectors = (part[..., ::-1][..., :width] for part in eigh(gram))
    null = sigma <= len(gram) * jnp.finfo(gram.dtype).eps * sigma[0]
    root = jnp.where(null, 0, 1 / jnp.sqrt(jnp.where(null, 1, sigma)))
    return vectors * root[None], vectors.T


def check_points(x: Any, *axes: int) -> None:
    checks.floating("x", x)
    if x.ndim not in axes or 0 in x.shape:
        raise ValueError(f"x must be [n, p] with n, p >= 1, got shape {list(x.shape)}")


def check_width(width: int, num_features: int) -> None:
    checks.count("num_features", num_features)
    checks.count("width", width)
    if width > num_features:
        raise ValueError(f"width must be <= p = {num_features} features, got {width}")
