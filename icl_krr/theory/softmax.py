"""The sink and the normaliser that it recovers (C1, C3)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from ..kernels import Kernel, PositiveKernel, check_kernel, check_positive
from ..tasks import Task
from ..tasks.task import check_axes


def log_normaliser(kernel: PositiveKernel, task: Task) -> Float[Array, " n+q"]:
    r"""$\log Z_i = \log \sum_j k(x_i, x_j)$ over the supports j, at every support and query (C1).

    Shape [n + q] in the task's dtype; the sum is taken in the logarithm, so none overflows.

    Raises TypeError for a kernel that is not positive everywhere.

    >>> import jax.numpy as jnp
    >>> from icl_krr import Gaussian, Task
    >>> task = Task(x=jnp.ones((4, 1)), y=jnp.ones(4), x_query=jnp.ones((1, 1)))
    >>> jnp.exp(log_normaliser(Gaussian(), task)).round(4).tolist()
    [4.0, 4.0, 4.0, 4.0, 4.0]
    """
    check_kernel(kernel)
    check_axes(task)
    check_positive(kernel, "to have a normaliser")
    keep = jnp.ones(task.num_supports, bool) if task.mask is None else task.mask
    x = jnp.where(keep[:, None], task.x, 0)
    logits = kernel.log(jnp.concatenate([x, task.x_query]), x)
    return jax.nn.logsumexp(jnp.where(keep[None], logits, -jnp.inf), axis=1)


def log_sink(kernel: Kernel, task: Task) -> Float[Array, ""]:
    r"""The least integer $\log c \geq \log Z_i$ for all tokens i: a shift of all logits (C3).

    Every sink weight $c / (Z_i + c)$ is then in $[1/2, 1)$, and no entry of $K / c$ exceeds 1:
    neither can over- or underflow before the range of $K$ is spent. An integer is exact as a logit
    in every dtype, so that the shift is undone to the last digit. A scalar of the task's dtype.

    That of a `Mixture` serves each of its kernels.

    Raises TypeError for a kernel that is not positive everywhere.

    >>> import jax.numpy as jnp
    >>> from icl_krr import Exponential, Task
    >>> task = Task(x=jnp.ones((2, 1)), y=jnp.ones(2), x_query=jnp.ones((1, 1)))
    >>> float(log_sink(Exponential(temperature=0.1), task))
    11.0
    """
    check_kernel(kernel)
    logarithms = [log_normaliser(part, task) for _, part in kernel.parts]
    return jnp.ceil(jnp.max(jnp.stack(logarithms)))


def sink_weight(log_normaliser: Float[Array, "..."], log_sink: jax.Array | float) -> jax.Array:
    """$c / (Z + c)$, from the logarithms of both (C3).

    >>> float(sink_weight(jnp.array(2.0), 2.0))
    0.5
    """
    return jax.nn.sigmoid(log_sink - log_normaliser)


def recovery_error(
    logit_bound: jax.Array | float, log_sink: jax.Array | float, num_features: int, dtype: DTypeLike
) -> Float[Array, ""]:
    r"""Rounding of $c$ times numerator over sink weight, relative to $\sum_j k_{ij} |v_j|$ (C3).

    An inner product of p terms rounds a logit by at most $p u L$, $u$ the unit roundoff and $L$ a
    bound on |logit|, its difference to the largest logit by another $u (L + |\log c|)$, and the
    exponential turns an absolute error into a relative one; sums, quotients and products add a
    few $u$ for numerator and sink weight each: $2u (pL + L + |\log c| + 8)$.

    >>> float(recovery_error(8.0, 2.0, 2, jnp.float32)) < 1e-5
    True
    """
    u = float(jnp.finfo(dtype).eps / 2)
    return 2 * u * ((num_features + 1) * logit_bound + jnp.abs(log_sink) + 8)


def dominant_sink_error(log_normaliser: Float[Array, "..."], log_sink: jax.Array | float):
    r"""$Z / (Z + c)$: what $c$ times the numerator lacks of $K v$ if no quotient is taken (C3).

    For $\log c$ far above $\log Z$ one softmax head applies the unnormalised kernel with no
    arithmetic after it. The weights keep their relative precision, so the price is rounding of
    $u \log c$ alone.

    >>> float(dominant_sink_error(jnp.array(0.0), 30.0)) < 1e-13
    True
    """
    return jax.nn.sigmoid(log_normaliser - log_sink)
