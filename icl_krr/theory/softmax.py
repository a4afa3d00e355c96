"""The normaliser of a softmax head, recovered from the weight of an attention sink (C1, C3)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float

from .. import checks
from ..kernels import Kernel, PositiveKernel, check_positive
from ..pytree import compiled
from ..tasks import Task
from ..tasks.linear_system import check_matrices
from ..tasks.task import kept


def log_normaliser(kernel: PositiveKernel, task: Task) -> Float[Array, " n+q"]:
    r"""Return $\log Z_i = \log \sum_j k(x_i, x_j)$ over the supports j, for every token i (C1).

    The tokens are the supports, then the queries. The sum is computed in the logarithm, so it does
    not overflow. Masked supports do not count in the sum, and their own entries are $-\infty$.
    Without unmasked supports all entries are $-\infty$.

    Args:
        kernel, task: as in `icl_krr.theory`, which also says what is raised.

    >>> import numpy as np
    >>> from icl_krr import Gaussian, Task
    >>> task = Task(x=[[1.0], [1.0], [1.0], [1.0]], y=[1.0, 1.0, 1.0, 1.0], x_query=[[1.0]])
    >>> np.exp(log_normaliser(Gaussian(), task)).round(4).tolist()
    [4.0, 4.0, 4.0, 4.0, 4.0]
    """
    check_matrices(kernel, task)
    check_positive(kernel, "to have a normaliser")
    return logarithms(kernel, task)


@compiled
def logarithms(kernel: PositiveKernel, task: Task) -> jax.Array:
    x, keep = seen(task)
    logits = kernel.log(jnp.concatenate([x, task.x_query]), x)
    counts = jnp.pad(keep, (0, task.num_queries), constant_values=True)[:, None] & keep[None, :]
    return jax.nn.logsumexp(jnp.where(counts, logits, -jnp.inf), axis=1)


def seen(task: Task) -> tuple[Float[Array, "n p"], Bool[Array, " n"]]:
    """Return x with zeros at masked supports, and which supports are not masked."""
    keep = kept(task)
    return jnp.where(keep[:, None], task.x, 0), keep


def log_sink(kernel: Kernel, task: Task) -> Float[Array, ""]:
    r"""Choose the sink's logit: the least integer $\log c \geq \log Z_i$ for all tokens i (C3).

    With this sink every sink weight $c / (Z_i + c)$ is in $[1/2, 1)$ and no entry of $K / c$
    exceeds 1. So neither overflows, and no sink weight underflows. A small integer is exact in
    every dtype, so $\log c$ is not rounded. Masked supports do not count. If all are masked,
    $\log c = 0$.

    Args:
        task: as in `icl_krr.theory`, which also says what is raised.
        kernel: positive kernel $k$, or a `Mixture`. For a `Mixture` the result is large
            enough for each of its kernels.

    Raises:
        TypeError: `kernel` is neither a positive kernel nor a `Mixture`.

    >>> from icl_krr import Exponential, Task
    >>> task = Task(x=[[1.0], [1.0]], y=[1.0, 1.0], x_query=[[1.0]])
    >>> float(log_sink(Exponential(temperature=0.1), task))
    11.0
    """
    check_matrices(kernel, task)
    return least_logit([part for _, part in kernel.parts], task)


@compiled
def least_logit(kernels: list[PositiveKernel], task: Task) -> jax.Array:
    largest = jnp.max(jnp.stack([log_normaliser(kernel, task) for kernel in kernels]))
    return jnp.where(jnp.isneginf(largest), 0, jnp.ceil(largest))


def sink_weight(log_normaliser: Float[Array, "..."], log_sink: jax.Array | float) -> jax.Array:
    r"""Return the softmax weight $c / (Z + c)$ of the sink (C3).

    Args:
        log_normaliser: logarithms $\log Z$, of any shape [...].
        log_sink: logit $\log c$ of the sink.

    Returns:
        The weights in (0, 1], in the shape of `log_normaliser`; 1 where $Z = 0$.

    >>> import numpy as np
    >>> float(sink_weight(np.array(2.0), 2.0))
    0.5
    """
    return jax.nn.sigmoid(above(log_normaliser, log_sink))


def recovery_error(
    logit_bound: jax.Array | float, log_sink: jax.Array | float, num_features: int, dtype: DTypeLike
) -> Float[Array, ""]:
    r"""Bound the rounding error of $K v$ if a softmax head with a sink computes it (C3).

    The result is $c$ times the output of the head, divided by the weight of the sink. The error is
    relative to $\sum_j k_{ij} |v_j|$. The bound is $2u (pL + L + |\log c| + 8)$ with the unit
    roundoff $u$. A logit is an inner product of p terms, so its rounding error is at most $p u L$.
    Subtracting the largest logit adds an error of at most $u (L + |\log c|)$. The exponential turns
    these absolute errors into relative errors. Sums, quotients and products add a few $u$. The
    factor 2 is needed because the output and the weight of the sink both have this error.

    Args:
        logit_bound: bound $L$ on the absolute logits.
        log_sink: logit $\log c$ of the sink.
        num_features: number p of features of x.
        dtype: floating-point dtype of the head.

    >>> import jax.numpy as jnp
    >>> import numpy as np
    >>> float(recovery_error(8.0, 2.0, 2, np.float32) / jnp.finfo(np.float32).eps)
    34.0
    """
    checks.nonnegatives(logit_bound=logit_bound)
    checks.reals(log_sink=log_sink)
    checks.count("num_features", num_features)
    dtype = checks.floating_dtype(dtype)
    u = float(jnp.finfo(dtype).eps / 2)
    return 2 * u * ((num_features + 1) * logit_bound + jnp.abs(log_sink) + 8)


def dominant_sink_error(log_normaliser: Float[Array, "..."], log_sink: jax.Array | float):
    r"""Return the relative error $Z / (Z + c)$ of $K v$ without division by the sink's weight (C3).

    The head's output times $c$ approximates $K v$. The error is small if $\log c$ is much larger
    than $\log Z$. The head then applies the unnormalised kernel, and no division by the weight of
    the sink is necessary. A large $\log c$ adds a relative rounding error of about $u \log c$,
    where $u$ is the unit roundoff.

    Args:
        log_normaliser, log_sink: as in `sink_weight`.

    >>> import numpy as np
    >>> float(dominant_sink_error(np.array(0.0), 30.0)) < 1e-13
    True
    """
    return jax.nn.sigmoid(-above(log_normaliser, log_sink))


def above(log_normaliser: Float[Array, "..."], log_sink: jax.Array | float) -> jax.Array:
    """How far the logit of the sink is above each normaliser, which is 0 at a masked support."""
    checks.reals(log_sink=log_sink)
    checks.scalar("log_sink", log_sink)
    checks.numeric("log_normaliser", log_normaliser)
    if (known := checks.concrete(log_normaliser)) is not None:
        checks.each("log_normaliser", known, known < jnp.inf, "< inf")
    return log_sink - jnp.asarray(log_normaliser)
