"""Softmax heads that emulate the dot product: K v from logits e <x, z> for small e (C9)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from ..numerics import matmul

Number = jax.Array | float


def emulated_product(
    scores: Float[Array, "m n"],
    values: Float[Array, "n d"],
    epsilon: Number,
    *,
    symmetric: bool,
) -> Float[Array, "m d"]:
    r"""The product $S v$ by softmax heads of small logits, a head and the mean or a pair (C9).

    $$\frac{n}{\epsilon} (\mathrm{softmax}(\epsilon S) - 1/n) v \quad or \quad
    \frac{n}{2 \epsilon} (\mathrm{softmax}(\epsilon S) - \mathrm{softmax}(-\epsilon S)) v$$

    For centred $v$ (columns of mean 0) this is $S v$ up to $O(\epsilon)$, or $O(\epsilon^2)$ for
    the `symmetric` pair, and rounding of about $u / \epsilon$. `scores` $S$ [m, n], `values` $v$
    [n, d].

    >>> S, v = jnp.array([[1.0, 2.0]]), jnp.array([[1.0], [-1.0]])
    >>> float(emulated_product(S, v, 1e-2, symmetric=True)[0, 0].round(3))
    -1.0
    """
    n = scores.shape[1]
    plus = jax.nn.softmax(epsilon * scores, axis=1)
    minus = jax.nn.softmax(-epsilon * scores, axis=1) if symmetric else jnp.full_like(plus, 1 / n)
    return n / (epsilon * (2 if symmetric else 1)) * matmul(plus - minus, values)


def emulation_truncation(logit_bound: Number, epsilon: Number, *, symmetric: bool) -> jax.Array:
    r"""The error of an entry $s$ of $K$ that the sink recovers from heads of $\epsilon s$ (C9).

    Those heads apply $\sinh(\epsilon s) / \epsilon$ if `symmetric`, else
    $(e^{\epsilon s} - 1) / \epsilon$: kernels as well, for their series have no negative terms.
    Their distance to $s$ is largest at $|s| = L$, `logit_bound`: $L ((\epsilon L)^2 / 6 + ...)$ or
    $L (\epsilon L / 2 + ...)$.

    >>> float(emulation_truncation(2.0, 0.05, symmetric=False)) < 0.11
    True
    """
    z = jnp.asarray(epsilon) * logit_bound
    return (jnp.sinh(z) if symmetric else jnp.expm1(z)) / epsilon - logit_bound


def emulation_rounding(epsilon: Number, dtype: DTypeLike) -> jax.Array:
    r"""$4u / \epsilon$: an entry is the difference of two weights near 1 over $\epsilon$ (C9).

    $u$ is the unit roundoff of `dtype`.

    >>> float(emulation_rounding(1.0, jnp.float32)) < 1e-6
    True
    """
    return 4 * float(jnp.finfo(dtype).eps / 2) / jnp.asarray(epsilon)


def best_epsilon(logit_bound: Number, *, symmetric: bool = True, dtype: DTypeLike) -> jax.Array:
    r"""The $\epsilon$ at which truncation, to leading order, and rounding together are least (C9).

    $(12u)^{1/3} / L$ if `symmetric`, else $(8u)^{1/2} / L$, for `logit_bound` $L = \max |x^T z|$
    and the dtype's unit roundoff $u$: in float32 errors of about 4e-5 L and 7e-4 L remain, at any
    $\epsilon$.

    >>> round(float(best_epsilon(10.0, symmetric=True, dtype=jnp.float32)), 4)
    0.0009
    """
    u = jnp.finfo(dtype).eps / 2
    return float((12 * u) ** (1 / 3) if symmetric else (8 * u) ** 0.5) / jnp.asarray(logit_bound)
