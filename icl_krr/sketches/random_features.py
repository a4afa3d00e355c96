"""Random features of log-bilinear kernels: positive, and trigonometric."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from .. import checks
from ..kernels import FeatureLayer, Kernel, LogBilinear, project
from ..linalg import one_by_one
from ..numerics import matmul
from ..pytree import checked, static


@checked
class RandomFeatures:
    r"""$\phi(x) = e^{-d |Ux|^2} g(W U x)$: m features whose $\phi(x)^T \phi(z)$ is k on average.

    $g(h) = e^h / \sqrt{m}$ if `kind` is "positive", else $[\cos h, \sin h] / \sqrt{m / 2}$.
    `frequencies` $W$ [m, d] or [m / 2, d], `damping` $d$ and `projection` $U$ [d, p] (or None) are
    traced. `positive_features` and `trigonometric_features` draw them. Calling it maps x [n, p]
    to [n, m].

    >>> RandomFeatures(frequencies=jnp.zeros((4, 1)), damping=0.0)(jnp.ones((1, 1))).tolist()
    [[0.5, 0.5, 0.5, 0.5]]
    """

    frequencies: Any
    damping: Any
    projection: Any = None
    kind: str = static(default="positive")

    @property
    def width(self) -> int:
        """The number m of features."""
        return len(self.frequencies) * (1 if self.kind == "positive" else 2)

    def __call__(self, x: Float[Array, "n p"]) -> Float[Array, "n m"]:
        x = project(self.projection, x)
        frequencies, damping = (jnp.asarray(v, x.dtype) for v in (self.frequencies, self.damping))
        angles = matmul(x, frequencies.T)
        exponent = -damping * jnp.sum(x * x, axis=-1, keepdims=True)
        count = jnp.sqrt(jnp.asarray(len(frequencies), x.dtype))
        if self.kind == "positive":
            return jnp.exp(angles + exponent) / count
        waves = jnp.concatenate([jnp.cos(angles), jnp.sin(angles)], axis=-1)
        return jnp.exp(exponent) * waves / count

    def layer(self, dtype: DTypeLike) -> FeatureLayer:
        """The same map as one layer of a network, in this dtype."""
        frequencies, damping = (jnp.asarray(v, dtype) for v in (self.frequencies, self.damping))
        mix = jnp.eye(self.width, dtype=dtype) / np.sqrt(len(frequencies)).astype(dtype)
        if self.kind == "positive":
            return FeatureLayer(self.projection, "exp", frequencies, None, damping, mix)
        # sin is cos a quarter turn later
        turns = jnp.repeat(jnp.asarray([0, -np.pi / 2], dtype), len(frequencies))
        both = jnp.concatenate([frequencies, frequencies])
        return FeatureLayer(self.projection, "cos", both, turns, damping, mix)


def positive_features(
    key: jax.Array, kernel: Kernel, *, num_features: int, width: int, orthogonal: bool = True
) -> RandomFeatures:
    r"""FAVOR+: $\exp(w^T x - |x|^2 / 2) / \sqrt{m}$ in units of the kernel, unbiased and positive.

    $w \sim N(0, I)$, independent or, if `orthogonal`, in orthogonal blocks with the same norms,
    which lowers the variance. A log-bilinear kernel of $c$ and $d$ has frequencies $\sqrt{c} w$ and
    the damping $(c + d) / 2$. `num_features` p and `width` m are counts; temperature, lengthscale
    and projection are traced.

    Raises ValueError for a kernel that is not log-bilinear, and a count < 1.

    Source: Choromanski et al., Rethinking attention with Performers, ICLR 2021, lemma 1.

    >>> import jax, jax.numpy as jnp
    >>> from icl_krr import Exponential
    >>> phi = positive_features(jax.random.key(0), Exponential(2.0), num_features=3, width=8)
    >>> phi(jnp.ones((5, 3))).shape
    (5, 8)
    """
    return draw(key, kernel, num_features, width, orthogonal, "positive")


def trigonometric_features(
    key: jax.Array, kernel: Kernel, *, num_features: int, width: int, orthogonal: bool = False
) -> RandomFeatures:
    r"""Random Fourier features $[\cos w^T x, \sin w^T x] / \sqrt{m / 2}$: unbiased, of either sign.

    For the exponential kernel they are multiplied by $\exp(|x|^2 / 2)$ in its units, as in random
    feature attention, so that estimates of small values of k can be negative. A log-bilinear kernel
    of $c$ and $d$ has frequencies $\sqrt{c} w$ and the damping $(d - c) / 2$.

    Raises ValueError for a kernel that is not log-bilinear, a count < 1 and a width that is odd.

    Source: Rahimi, Recht, Random features for large-scale kernel machines, 2007; Peng et al.,
    Random feature attention, ICLR 2021.

    >>> import jax, jax.numpy as jnp
    >>> from icl_krr import Gaussian
    >>> phi = trigonometric_features(jax.random.key(0), Gaussian(2.0), num_features=3, width=8)
    >>> phi(jnp.ones((5, 3))).shape
    (5, 8)
    """
    checks.count("width", width, minimum=2)
    if width % 2:
        raise ValueError(f"width must be even, a cosine and a sine each, got {width}")
    return draw(key, kernel, num_features, width // 2, orthogonal, "trigonometric")


def draw(
    key: jax.Array, kernel: Kernel, num_features: int, count: int, orthogonal: bool, kind: str
) -> RandomFeatures:
    checks.count("num_features", num_features)
    checks.count("width", count)
    if not isinstance(kernel, LogBilinear):
        raise ValueError(
            "kernel must be Exponential, Gaussian or another LogBilinear to have random features, "
            f"got {kernel!r}"
        )
    c, d = kernel.coefficients(jnp.result_type(float))
    sign = 1 if kind == "positive" else -1
    damping = (sign * c + (0 if d is None else d)) / 2
    rank = num_features if kernel.projection is None else jnp.shape(kernel.projection)[0]
    directions = (
        orthogonal_normals(key, count, rank)
        if orthogonal
        else jax.random.normal(key, (count, rank))
    )
    return RandomFeatures(jnp.sqrt(c) * directions, damping, kernel.projection, kind)


def orthogonal_normals(key: jax.Array, count: int, d: int) -> Float[Array, "m d"]:
    """Rows that are N(0, I) each and, in blocks of d, orthogonal to one another."""
    blocks = -(-count // d)
    turn, size = jax.random.split(key)
    rotations = jax.lax.map(
        one_by_one(partial(jax.random.orthogonal, n=d)), jax.random.split(turn, blocks)
    )
    lengths = jnp.linalg.norm(jax.random.normal(size, (blocks * d, d)), axis=-1, keepdims=True)
    return (lengths * rotations.reshape(-1, d))[:count]
