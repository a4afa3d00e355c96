"""What the oracles share: the system's product, shapes, and the refusal of bad input."""

from __future__ import annotations

import jax
from jaxtyping import Array, Float

from .. import checks
from ..kernels import Kernel, check_kernel
from ..numerics import matmul
from ..tasks import Task, check_axes


def apply(gram: Float[Array, "n n"], ridge: jax.Array, v: Float[Array, "n r"]) -> jax.Array:
    """(K + ridge I) v."""
    return matmul(gram, v) + ridge * v


def like(y: jax.Array, result: jax.Array) -> jax.Array:
    """Drop the axis of outputs where the task's y has none."""
    return result[..., 0] if y.ndim == 1 else result


def check_system(kernel: Kernel, task: Task, ridge: object, steps: int = 1) -> None:
    check_kernel(kernel)
    check_axes(task)
    checks.positive_scalar("ridge", ridge)
    checks.count("steps", steps)
