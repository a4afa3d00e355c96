"""Low rank: kernel matrices known from a few points."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from .. import checks
from ..kernels import FeatureLayer, Kernel, check_kernel
from ..linalg import solve
from ..numerics import matmul
from ..pytree import checked
from .matrices import root_inverse, scaled_vectors


@checked
class NystromFeatures:
    r"""Features $\phi(x) = B^T k(Z, x)$, m of them, of the points that a kernel is seen from.

    `landmarks` $Z$ [l, p], `mix` $B$ [l, m]; both are traced, as is the kernel. `nystrom_features`
    makes the one whose $\phi(x)^T \phi(z)$ is the Nystrom approximation of the kernel. Calling it
    maps x [n, p] to [n, m].

    >>> from icl_krr import Linear
    >>> NystromFeatures(Linear(), jnp.eye(2), jnp.eye(2, 1))(jnp.array([[3.0, 4.0]])).tolist()
    [[3.0]]
    """

    kernel: Any
    landmarks: Any
    mix: Any

    @property
    def width(self) -> int:
        """The number m of features."""
        return self.mix.shape[1]

    def __call__(self, x: Float[Array, "n p"]) -> Float[Array, "n m"]:
        return matmul(self.kernel(x, self.landmarks.astype(x.dtype)), self.mix.astype(x.dtype))

    def layer(self, dtype: DTypeLike) -> FeatureLayer:
        """The same map as one layer of a network, in this dtype."""
        seen = self.kernel.seen_from(jnp.asarray(self.landmarks, dtype))
        return seen._replace(mix=jnp.asarray(self.mix, dtype))


def nystrom_features(
    kernel: Kernel, landmarks: Float[Array, "l p"], *, width: int | None = None
) -> NystromFeatures:
    r"""$B = V S^{-1/2}$ for the m leading eigenpairs $S$, $V$ of the landmarks' kernel matrix $W$.

    $\phi(x)^T \phi(z) = k(x, Z) W_m^+ k(Z, z)$, $W_m$ the best rank m of $W$. With all
    supports as landmarks $Z$ that is, at the supports, the best rank-m approximation of $K$ itself;
    with m of them and `width` l, the default, the Nystrom approximation. Directions of $W$ below
    $l \varepsilon \sigma_1$, $\varepsilon$ the dtype's, count as its null space.

    Raises ValueError for a width that is not in 1 .. l.

    Source: Williams, Seeger, Using the Nystrom method to speed up kernel machines, 2001.

    >>> import jax.numpy as jnp
    >>> from icl_krr import Exponential
    >>> phi = nystrom_features(Exponential(), jnp.eye(3), width=2)
    >>> phi(jnp.ones((5, 3))).shape
    (5, 2)
    """
    check_kernel(kernel)
    checks.floating("landmarks", landmarks)
    width = len(landmarks) if width is None else width
    checks.count("width", width)
    if width > len(landmarks):
        raise ValueError(
            f"width must be <= l = {len(landmarks)}, the number of landmarks, got {width}"
        )
    mix, _ = scaled_vectors(kernel(landmarks, landmarks), width)
    return NystromFeatures(kernel, landmarks, mix)


@checked
class Nystrom:
    r"""The Nystrom preconditioner $M = F F^T + \lambda I$ of $K + \lambda I$: m feature channels.

    $F = k(x, Z) W^{-1/2}$ for the `landmarks` $Z$ [m, p] and their kernel matrix $W = k(Z, Z)$, so
    that $F F^T$ is the Nystrom approximation of $K$; `mix` [m, m] is $W^{-1/2}$. By Woodbury
    $M^{-1} v = (v - F C F^T v) / \lambda$ with `core` $C = (F^T F + \lambda I)^{-1}$ [m, m].
    `nystrom` makes it from the supports of a task; it is traced.

    >>> import jax.numpy as jnp
    >>> from icl_krr.kernels import Linear
    >>> x = jnp.array([[2.0, 0.0], [0.0, 1.0]])
    >>> nystrom(Linear(), x, ridge=1.0, rank=1).features(Linear(), x).round(3).tolist()
    [[2.0], [0.0]]
    """

    landmarks: Any
    mix: Any
    core: Any

    @property
    def rank(self) -> int:
        """The number m of feature channels."""
        return self.core.shape[0]

    def features(self, kernel: Kernel, x: Float[Array, "n p"]) -> Float[Array, "n m"]:
        """$F$ [n, m] at points x [n, p]."""
        return matmul(kernel(x, self.landmarks.astype(x.dtype)), self.mix.astype(x.dtype))


def nystrom(
    kernel: Kernel, x: Float[Array, "n p"], *, ridge: float | jax.Array, rank: int
) -> Nystrom:
    r"""The Nystrom preconditioner whose landmarks are the first `rank` rows of x [n, p].

    Directions of $W$ below $m \varepsilon \sigma_1$, $\varepsilon$ the dtype's, count as its null
    space. $M$ is made from these x: for others of the same distribution it is a guess, and for
    conjugate gradient any guess that is positive definite will do. Supports come in no order, so
    the first are as good as any.

    Raises ValueError for a rank that is not in 1 .. n and a ridge that is not > 0.

    Source: Frangella, Tropp, Udell, Randomized Nystrom preconditioning, 2023.

    >>> import jax.numpy as jnp
    >>> from icl_krr.kernels import Linear
    >>> nystrom(Linear(), jnp.eye(3), ridge=1.0, rank=2).core.round(6).tolist()
    [[0.5, 0.0], [0.0, 0.5]]
    """
    check_kernel(kernel)
    checks.positive_scalar("ridge", ridge)
    checks.count("rank", rank)
    if rank > len(x):
        raise ValueError(f"rank must be <= n = {len(x)}, the number of points, got {rank}")
    landmarks = x[:rank]
    mix = root_inverse(kernel(landmarks, landmarks))
    features = matmul(kernel(x, landmarks), mix)
    inner = matmul(features.T, features) + jnp.asarray(ridge, x.dtype) * jnp.eye(
        rank, dtype=x.dtype
    )
    core = solve(inner, jnp.eye(rank, dtype=x.dtype))
    return Nystrom(landmarks, mix, core)
