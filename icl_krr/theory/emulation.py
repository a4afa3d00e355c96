"""Softmax heads that emulate the product K v with small logits epsilon <x, z> (C9)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from .. import checks
from ..numerics import matmul

Number = jax.Array | float


def emulated_product(
    scores: Float[Array, "m n"], values: Float[Array, "n d"], epsilon: Number, *, symmetric: bool
) -> Float[Array, "m d"]:
    r"""Compute the product $S v$ by softmax heads with small logits (C9).

    $$\frac{n}{\epsilon} (\mathrm{softmax}(\epsilon S) - 1/n) v \quad or \quad
    \frac{n}{2 \epsilon} (\mathrm{softmax}(\epsilon S) - \mathrm{softmax}(-\epsilon S)) v$$

    The result approximates $S v$ if the columns of $v$ have mean 0. The truncation error is
    $O(\epsilon)$ for the first form and $O(\epsilon^2)$ for the second. The rounding error is about
    $u / \epsilon$ for the unit roundoff $u$.

    Args:
        epsilon: scale $\epsilon$ > 0 of the logits.
        symmetric: True uses two heads, with $\epsilon$ and $-\epsilon$. False uses one head and
            the constant weights 1 / n, as in the first form.

    >>> import numpy as np
    >>> S, v = np.array([[1.0, 2.0]]), np.array([[1.0], [-1.0]])
    >>> float(emulated_product(S, v, 1e-2, symmetric=True)[0, 0].round(3))
    -1.0
    """
    checks.shapes(scores=(scores, "m n"), values=(values, "n d"))
    checks.positive_scalar("epsilon", epsilon)
    checks.flag("symmetric", symmetric)
    n = scores.shape[1]
    plus = jax.nn.softmax(epsilon * scores, axis=1)
    minus = jax.nn.softmax(-epsilon * scores, axis=1) if symmetric else jnp.full_like(plus, 1 / n)
    return n / (epsilon * (2 if symmetric else 1)) * matmul(plus - minus, values)


def best_epsilon(logit_bound: Number, *, symmetric: bool = True, dtype: DTypeLike) -> jax.Array:
    r"""Choose the $\epsilon$ that minimises truncation plus rounding error, to leading order (C9).

    This $\epsilon$ is $(12u)^{1/3} / L$ for the symmetric pair and $(8u)^{1/2} / L$ for one head,
    with the unit roundoff $u$. An entry $s$ of the kernel matrix becomes
    $\sinh(\epsilon s) / \epsilon$ or $(e^{\epsilon s} - 1) / \epsilon$, whose truncation error is
    largest at $s = L$: $L (\epsilon L)^2 / 6$ or $L \epsilon L / 2$. As a difference of weights
    near 1, divided by $\epsilon$, it has a rounding error of about $4u / \epsilon$. In float32 the
    sum of both errors is then about 4e-5 L for the pair and 7e-4 L for one head.

    Args:
        logit_bound: bound $L$ on $|x^T z|$ over all pairs of tokens.

    >>> import numpy as np
    >>> round(float(best_epsilon(10.0, symmetric=True, dtype=np.float32)), 4)
    0.0009
    """
    checks.positives(logit_bound=logit_bound)
    checks.flag("symmetric", symmetric)
    dtype = checks.floating_dtype(dtype)
    u = jnp.finfo(dtype).eps / 2
    return float((12 * u) ** (1 / 3) if symmetric else (8 * u) ** 0.5) / jnp.asarray(logit_bound)
