"""Positive and trigonometric random features of log-bilinear and Matern kernels."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from .._core import checks
from .._core.constants import xp
from .._core.numerics import matmul
from .._core.pytree import pytree_dataclass, static
from .._core.xla_workarounds import sequential_on_cpu
from ..kernels import FeatureLayer, Gaussian, Kernel, LogBilinear
from ..kernels._algebra import project
from ..kernels._kernel import check_kernel


@pytree_dataclass
class RandomFeatures:
    r"""Random feature map $\phi(x) = e^{-\delta |Ux|^2} g(W U x)$ with m features.

    `positive_features` and `trigonometric_features` draw the frequencies for a given kernel $k$.
    The mean of $\phi(x)^T \phi(z)$ over the draws is then $k(x, z)$.

    Args:
        frequencies: frequencies $W$, [m, d] for positive and [m / 2, d] for trigonometric features;
            traced.
        damping: factor $\delta$ of $|Ux|^2$, a scalar; traced.
        projection: projection $U$ [d, p] of the points, or None for the identity; traced.
        kind: "positive" for $g(h) = e^h / \sqrt{m}$, "trigonometric" for
            $g(h) = [\cos h, \sin h] / \sqrt{m / 2}$.

    >>> RandomFeatures(frequencies=np.zeros((4, 1)), damping=0.0)(np.ones((1, 1))).tolist()
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

    @jax.jit
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
        """Return the same map as one layer of a network."""
        frequencies, damping = (xp.asarray(v, dtype) for v in (self.frequencies, self.damping))
        layer = FeatureLayer(self.projection, "exp", frequencies, None, damping)
        layer = layer._replace(scale=1 / np.sqrt(len(frequencies)).astype(dtype))
        if self.kind == "positive":
            return layer
        # sin(h) = cos(h - pi / 2)
        turns = np.repeat(np.asarray([0, -np.pi / 2], dtype), len(frequencies))
        both = xp.concatenate([frequencies, frequencies])
        return layer._replace(function="cos", frequencies=both, offsets=turns)


def positive_features(
    key: jax.Array, kernel: Kernel, *, num_features: int, width: int, orthogonal: bool = True
) -> RandomFeatures:
    r"""Draw positive random features (FAVOR+), an unbiased estimate of a log-bilinear kernel.

    $$\exp(w^T x - |x|^2 / 2) / \sqrt{m}, \quad w \sim N(0, I)$$

    The formula is for the exponential kernel at unit temperature. For the log-bilinear kernel
    $\exp(c \langle x, z \rangle - d (|x|^2 + |z|^2) / 2)$ the frequencies are $\sqrt{c} w$ and the
    damping is $(c + d) / 2$.

    Args:
        num_features: number p of features of x; not used if the kernel has a projection.
        width: number m of random features.
        orthogonal: whether to draw the frequencies in orthogonal blocks with the same distribution
            of norms, which lowers the variance, or independently.

    Source: Choromanski et al., Rethinking attention with Performers, ICLR 2021, lemma 1.

    >>> from icl_krr import Exponential
    >>> phi = positive_features(jax.random.key(0), Exponential(2.0), num_features=3, width=8)
    >>> phi(np.ones((5, 3))).shape
    (5, 8)
    """
    return draw(key, kernel, num_features, width, orthogonal, "positive")


def trigonometric_features(
    key: jax.Array, kernel: Kernel, *, num_features: int, width: int, orthogonal: bool = False
) -> RandomFeatures:
    r"""Draw random Fourier features, an unbiased estimate of a log-bilinear or Matern kernel.

    $$[\cos w^T x, \sin w^T x] / \sqrt{m / 2}, \quad w \sim N(0, I)$$

    The formula is for a Gaussian kernel of unit lengthscale. For the log-bilinear kernel
    $\exp(c \langle x, z \rangle - d (|x|^2 + |z|^2) / 2)$ the frequencies are $\sqrt{c} w$ and the
    damping is $(d - c) / 2$. For the exponential kernel the features are multiplied by
    $\exp(|x|^2 / 2)$ at unit temperature, as in random feature attention. For a Matern kernel of
    order $\nu$ the frequencies are those of the Gaussian kernel, each divided by the root mean
    square of $2 \nu$ standard normal numbers (Student's t-distribution). Estimates can be negative,
    especially if $k(x, z)$ is small.

    Args:
        width: number m of random features, even: one cosine and one sine for each frequency.
        orthogonal: as in `positive_features`.

    Source: Rahimi, Recht, Random features for large-scale kernel machines, 2007; Peng et al.,
    Random feature attention, ICLR 2021.

    >>> from icl_krr import Gaussian
    >>> phi = trigonometric_features(jax.random.key(0), Gaussian(2.0), num_features=3, width=8)
    >>> phi(np.ones((5, 3))).shape
    (5, 8)
    """
    checks.even("width", width)
    return draw(key, kernel, num_features, width // 2, orthogonal, "trigonometric")


def draw(
    key: jax.Array, kernel: Kernel, num_features: int, count: int, orthogonal: bool, kind: str
) -> RandomFeatures:
    checks.key("key", key)
    checks.count("num_features", num_features)
    checks.count("width", count)
    checks.flag("orthogonal", orthogonal)
    check_kernel(kernel)
    if kernel.spectral_freedom and kind == "trigonometric":
        scale_key, key = jax.random.split(key)
        fields: Any = kernel
        gaussian = Gaussian(fields.lengthscale, fields.projection)
        features = draw(key, gaussian, num_features, count, orthogonal, kind)
        scales = root_mean_squares(scale_key, count, kernel.spectral_freedom)
        return dataclasses.replace(features, frequencies=features.frequencies / scales)
    if not isinstance(kernel, LogBilinear):
        hint = "; use trigonometric_features" if kernel.spectral_freedom else ""
        raise ValueError(
            "kernel must be Exponential, Gaussian or another LogBilinear to have random features, "
            f"got {kernel!r}{hint}"
        )
    c, d = kernel.scalars(jnp.result_type(float))
    sign = 1 if kind == "positive" else -1
    damping = (sign * c + (0 if d is None else d)) / 2
    rank = num_features if kernel.projection is None else jnp.shape(kernel.projection)[0]
    frequencies = normals(key, c, count, rank, orthogonal)
    return RandomFeatures(frequencies, damping, kernel.projection, kind)


@partial(jax.jit, static_argnums=(1, 2))
def root_mean_squares(key: jax.Array, count: int, numbers: int) -> Float[Array, "m 1"]:
    """Root mean squares of standard normal numbers; not 0, so that quotients stay finite."""
    squares = jax.random.normal(key, (count, numbers)) ** 2
    result = jnp.sqrt(jnp.mean(squares, axis=1, keepdims=True))
    return jnp.maximum(result, jnp.finfo(result.dtype).eps)


@partial(jax.jit, static_argnums=(2, 3, 4))
def normals(key: jax.Array, c: Any, count: int, d: int, orthogonal: bool) -> Float[Array, "m d"]:
    """Draw rows that are N(0, c I) each, and are orthogonal within blocks of d rows if asked."""
    if not orthogonal:
        return jnp.sqrt(c) * jax.random.normal(key, (count, d))
    blocks = -(-count // d)
    turn, size = jax.random.split(key)
    rotation = sequential_on_cpu(partial(jax.random.orthogonal, n=d))
    rotations = jax.lax.map(rotation, jax.random.split(turn, blocks)).reshape(-1, d)
    lengths = jnp.linalg.norm(jax.random.normal(size, (blocks * d, d)), axis=-1, keepdims=True)
    return jnp.sqrt(c) * (lengths * rotations)[:count]
