"""What the oracles share: products at full precision, shapes, and the refusal of bad input."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import checks
from ..kernels import Kernel
from ..tasks import Task, check_axes

HIGHEST = jax.lax.Precision.HIGHEST


def apply(gram: Float[Array, "n n"], ridge: jax.Array, v: Float[Array, "n r"]) -> jax.Array:
    """(K + ridge I) v."""
    return matmul(gram, v) + ridge * v


def matmul(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.matmul(a, b, precision=HIGHEST)


def like(y: jax.Array, result: jax.Array) -> jax.Array:
    """Drop the axis of outputs where the task's y has none."""
    return result[..., 0] if y.ndim == 1 else result


def check_system(kernel: Kernel, task: Task, ridge: object, steps: int = 1) -> None:
    if not isinstance(kernel, Kernel):
        raise TypeError(f"kernel must be a kernel such as icl_krr.Linear(), got {kernel!r}")
    check_axes(task)
    checks.positive_scalar("ridge", ridge)
    checks.count("steps", steps)
