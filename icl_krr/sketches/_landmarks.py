"""Low-rank approximations of a kernel matrix from landmark points."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from .._core import checks
from .._core.constants import xp
from .._core.linalg import solve
from .._core.numerics import matmul
from .._core.pytree import pytree_dataclass
from ..kernels import FeatureLayer, Features, Kernel
from ..kernels._kernel import check_kernel
from ._matrices import check_at_most, root_inverse, scaled_vectors


@pytree_dataclass
class NystromFeatures:
    r"""Feature map $\phi(x) = B^T k(Z, x)$ from kernel values at landmarks.

    `nystrom_features` computes the $B$ for which $\phi(x)^T \phi(z)$ approximates $k(x, z)$.

    In a model, an MLP computes the Gaussian kernel at landmarks from inner products and squares. In
    float32, this loses digits if all points are far from 0. So centre such data before you choose
    landmarks.

    Args:
        landmarks: landmarks $Z$ [l, p]; traced, as all arguments are.
        mix: matrix $B$ [l, m].

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
        """Return the same map as one layer of a network."""
        layer = self.kernel.nystrom_features(xp.asarray(self.landmarks, dtype))
        return layer.times(xp.asarray(self.mix, dtype))


def nystrom_features(
    kernel: Kernel, landmarks: Float[Array, "l p"], *, width: int | None = None
) -> NystromFeatures:
    r"""Compute the Nystrom features of a kernel at landmarks.

    $$\phi(x) = B^T k(Z, x), \quad B = V S^{-1/2}, \quad \phi(x)^T \phi(z) = k(x, Z) W_m^+ k(Z, z)$$

    $S$ and $V$ are the m leading eigenvalues and eigenvectors of the landmarks' kernel matrix
    $W = k(Z, Z)$, and $W_m$ is the best rank-m approximation of $W$. If all supports are landmarks,
    the features give the best rank-m approximation of $K$ at the supports. Eigenvalues of $W$ below
    $l \varepsilon \sigma_1$ are treated as 0. Here $\sigma_1$ is the largest eigenvalue of $W$, and
    $\varepsilon$ is the machine epsilon of the dtype.

    Args:
        width: number m of features, 1 to l; default: l, which gives the full Nystrom approximation.

    Source: Williams, Seeger, Using the Nystrom method to speed up kernel machines, 2001.

    >>> from icl_krr import Exponential
    >>> phi = nystrom_features(Exponential(), jnp.eye(3), width=2)
    >>> phi(jnp.ones((5, 3))).shape
    (5, 2)
    """
    check_kernel(kernel)
    checks.shapes(landmarks=(landmarks, "l p"))
    width = len(landmarks) if width is None else width
    most = len(landmarks)
    check_at_most("width", width, most, f"l = {most}, the number of landmarks")
    mix, _ = scaled_vectors(kernel(landmarks, landmarks), width)
    return NystromFeatures(kernel, landmarks, mix)


@pytree_dataclass
class Nystrom:
    r"""Nystrom preconditioner $M = F F^T + \lambda I$ of $K + \lambda I$ with m features.

    $F = k(x, Z) W^{-1/2}$ and $W = k(Z, Z)$, so $F F^T$ is the Nystrom approximation of $K$. By the
    Woodbury identity $M^{-1} v = (v - F C F^T v) / \lambda$ with $C = (F^T F + \lambda I)^{-1}$.
    `nystrom` computes the preconditioner from the supports of a task.

    Args:
        landmarks: landmarks $Z$ [m, p]; traced, as all arguments are.
        mix: matrix $W^{-1/2}$ [m, m].
        core: matrix $C$ [m, m].

    >>> from icl_krr.kernels import Linear
    >>> x = jnp.array([[2.0, 0.0], [0.0, 1.0]])
    >>> nystrom(Linear(), x, ridge=1.0, rank=1).features(x).round(3).tolist()
    [[2.0], [0.0]]
    """

    landmarks: Any
    mix: Any
    core: Any
    kernel: Kernel
    ridge: Any

    @property
    def rank(self) -> int:
        """The number m of features."""
        return self.core.shape[0]

    def check(self, kernel: Kernel | None, ridge: Any) -> None:
        """Raise an error if the preconditioner was made for another kernel (if given) or ridge."""
        pairs = ("kernel", kernel, self.kernel), ("ridge", ridge, self.ridge)
        for name, value, expected in pairs:
            if value is not None and not _equal(value, expected):
                raise ValueError(
                    f"{name} must be {checks.short_repr(expected)}, for which the preconditioner "
                    f"was made, got {checks.short_repr(value)}; make it anew with icl_krr.nystrom"
                )

    def features(self, x: Float[Array, "n p"]) -> Float[Array, "n m"]:
        """Compute the features $F = k(x, Z) W^{-1/2}$."""
        return matmul(self.kernel(x, self.landmarks.astype(x.dtype)), self.mix.astype(x.dtype))


def _equal(a: Any, b: Any) -> bool:
    """Whether two pytrees have the same structure and the same numbers, as far as is known."""
    if jax.tree.structure(a) != jax.tree.structure(b):
        return False
    leaves = [map(checks.concrete, jax.tree.leaves(tree)) for tree in (a, b)]
    return all(
        one is None
        or other is None
        or (one.shape == other.shape and np.allclose(one, other, rtol=1e-6, atol=0))
        for one, other in zip(*leaves, strict=True)
    )


def nystrom(kernel: Kernel, x: Float[Array, "n p"], *, ridge: float | Array, rank: int) -> Nystrom:
    r"""Compute the Nystrom preconditioner with the first `rank` points as landmarks.

    Small eigenvalues of the landmarks' kernel matrix $W$ are treated as in `nystrom_features`. The
    matrix $C$ of `Nystrom` is computed from `x`. At other points of the same distribution, this $C$
    gives only an approximation of $M^{-1}$. Conjugate gradient still converges if it is positive
    definite. Supports have no order, so the first points are as good as any others.

    Args:
        rank: number m of landmarks, 1 to n.

    Source: Frangella, Tropp, Udell, Randomized Nystrom preconditioning, 2023.

    >>> from icl_krr.kernels import Linear
    >>> nystrom(Linear(), jnp.eye(3), ridge=1.0, rank=2).core.round(6).tolist()
    [[0.5, 0.0], [0.0, 0.5]]
    """
    check_kernel(kernel)
    checks.positive_scalar("ridge", ridge)
    checks.shapes(x=(x, "n p"))
    check_at_most("rank", rank, len(x), f"n = {len(x)}, the number of points")
    landmarks = x[:rank]
    mix = root_inverse(kernel(landmarks, landmarks))
    features = matmul(kernel(x, landmarks), mix)
    return Nystrom(landmarks, mix, _core(features, ridge), kernel, ridge)


@jax.jit
def _core(features: Float[Array, "n m"], ridge: Any) -> Float[Array, "m m"]:
    eye = jnp.eye(features.shape[1], dtype=features.dtype)
    return solve(matmul(features.T, features) + jnp.asarray(ridge, features.dtype) * eye, eye)


def featured(kernel: Kernel, landmarks: Float[Array, "l p"]) -> tuple[Kernel, Kernel | None]:
    """A kernel with a feature map, if possible itself, and the kernel that it approximates."""
    if kernel.featured:
        return kernel, None
    return Features(nystrom_features(kernel, landmarks)), kernel
