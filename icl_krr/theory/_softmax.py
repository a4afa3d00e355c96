"""Unnormalised products from softmax heads: by a sink (C1, C3), or by small logits (C9)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float

from .. import Task
from .._core import checks
from .._core.numerics import matmul
from .._core.pytree import jit_if_concrete
from ..kernels import Kernel, PositiveKernel
from ..tasks._linear_system import check_matrices
from ..tasks._task import support_mask

Number = jax.Array | float


def _unmasked(task: Task) -> tuple[Float[Array, "n p"], Bool[Array, " n"]]:
    """Return x with zeros at masked supports, and which supports are not masked."""
    keep = support_mask(task)
    return jnp.where(keep[:, None], task.x, 0), keep


def log_sink(kernel: Kernel, task: Task) -> Float[Array, ""]:
    r"""Choose the sink's logit: the least integer $\log c \geq \log Z_i$ for all tokens i (C3).

    $Z_i = \sum_j k(x_i, x_j)$ sums over the supports j. With this sink every sink weight
    $c / (Z_i + c)$ is in $[1/2, 1)$ and no entry of $K / c$ exceeds 1: neither overflows, and no
    sink weight underflows. A small integer is exact in every dtype. Masked supports do not count;
    if all are masked, $\log c = 0$. For a `Mixture` the result is large enough for each of its
    kernels.

    >>> from icl_krr import Exponential, Task
    >>> task = Task(x=[[1.0], [1.0]], y=[1.0, 1.0], x_query=[[1.0]])
    >>> float(log_sink(Exponential(temperature=0.1), task))
    11.0
    """
    check_matrices(kernel, task)
    return least_logit([part for _, part in kernel.parts], task)


@jit_if_concrete
def least_logit(kernels: list[PositiveKernel], task: Task) -> jax.Array:
    x, keep = _unmasked(task)
    points = jnp.concatenate([x, task.x_query])
    counts = jnp.pad(keep, (0, task.num_queries), constant_values=True)[:, None] & keep[None, :]
    logits = [jnp.where(counts, kernel.log(points, x), -jnp.inf) for kernel in kernels]
    largest = jnp.max(jax.nn.logsumexp(jnp.stack(logits), axis=-1))
    return jnp.where(jnp.isneginf(largest), 0, jnp.ceil(largest))


def recovery_error(
    logit_bound: Number, log_sink: Number, num_features: int, dtype: DTypeLike
) -> Float[Array, ""]:
    r"""Bound the rounding error of $K v$ if a softmax head with a sink computes it (C3).

    The result is $c$ times the output of the head, divided by the weight of the sink. The error is
    relative to $\sum_j k_{ij} |v_j|$. The bound is $2u (pL + L + |\log c| + 8)$ with the unit
    roundoff $u$. A logit is an inner product of p terms, so its rounding error is at most $p u L$.
    Subtracting the largest logit adds an error of at most $u (L + |\log c|)$. The exponential turns
    these absolute errors into relative errors. Sums, quotients and products add a few $u$. The
    factor 2 is needed because the output and the weight of the sink both have this error.

    Args:
        log_sink: logit $\log c$ of the sink.

    >>> float(recovery_error(8.0, 2.0, 2, jnp.float32) / jnp.finfo(jnp.float32).eps)
    34.0
    """
    checks.nonnegatives(logit_bound=logit_bound)
    checks.reals(log_sink=log_sink)
    checks.count("num_features", num_features)
    dtype = checks.floating_dtype(dtype)
    u = float(jnp.finfo(dtype).eps / 2)
    return 2 * u * ((num_features + 1) * logit_bound + jnp.abs(log_sink) + 8)


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

    >>> S, v = jnp.array([[1.0, 2.0]]), jnp.array([[1.0], [-1.0]])
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
    near 1, divided by $\epsilon$, it has a rounding error of about $4u / \epsilon$.

    >>> round(float(best_epsilon(10.0, symmetric=True, dtype=jnp.float32)), 4)
    0.0009
    """
    checks.positives(logit_bound=logit_bound)
    checks.flag("symmetric", symmetric)
    dtype = checks.floating_dtype(dtype)
    u = jnp.finfo(dtype).eps / 2
    return float((12 * u) ** (1 / 3) if symmetric else (8 * u) ** 0.5) / jnp.asarray(logit_bound)
