"""What the oracles share: the system's product, shapes, and the refusal of bad input."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import checks
from ..kernels import Kernel, Linear, PositiveKernel, check_kernel
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


def check_positive(kernel: Kernel) -> None:
    if not isinstance(kernel, PositiveKernel):
        raise TypeError(
            f"kernel must be positive to weigh values by, got {kernel!r}; "
            "use icl_krr.Exponential or icl_krr.Gaussian"
        )


def check_linear(kernel: Kernel) -> None:
    if not isinstance(kernel, Linear):
        raise TypeError(f"kernel must be Linear(), whose features are known, got {kernel!r}")


def seen(task: Task) -> tuple[Float[Array, "n p"], Float[Array, "n r"]]:
    """x and y, zero at masked supports."""
    x, y = task.x, task.y.reshape(task.num_supports, -1)
    if task.mask is None:
        return x, y
    return tuple(jnp.where(task.mask[:, None], value, 0) for value in (x, y))  # pyright: ignore[reportReturnType]
