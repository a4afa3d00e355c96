"""Code that the solvers share: the product with A, shapes of results, checks of the input."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import Task
from .._core import checks, memory_limit
from .._core.numerics import matmul
from ..kernels import Kernel
from ..kernels._kernel import check_kernel
from ..tasks._task import check_axes


def apply(gram: Float[Array, "n n"], ridge: jax.Array, v: Float[Array, "n r"]) -> jax.Array:
    """Return (K + ridge I) v."""
    return matmul(gram, v) + ridge * v


def like(y: jax.Array, result: jax.Array) -> jax.Array:
    """Remove the axis of outputs if the y of the task has none."""
    return result[..., 0] if y.ndim == 1 else result


def check_system(kernel: Kernel, task: Task, ridge, steps: int = 1, matrices: int = 1) -> None:
    """Check the input of a solver that forms so many matrices [n, n] and stores all its steps."""
    check_kernel(kernel)
    check_axes(task)
    checks.positive_scalar("ridge", ridge)
    checks.count("steps", steps)
    n, q = task.num_supports, task.num_queries
    system, trajectory = n * (matrices * n + q), (steps + 1) * (3 * n + q) * task.num_outputs
    memory_limit.check("regression", system + trajectory, task.x)


def featured(kernel: Kernel, task: Task) -> Task:
    """Return the task with the features of the kernel in place of x and x_query."""
    phi = kernel.feature_map
    return task.replace(x=phi(task.x), x_query=phi(task.x_query))


def masked_arrays(task: Task) -> tuple[Float[Array, "n p"], Float[Array, "n r"]]:
    """Return x and y with zeros at masked supports."""
    x, y = task.x, task.y.reshape(task.num_supports, -1)
    if task.mask is None:
        return x, y
    return tuple(jnp.where(task.mask[:, None], value, 0) for value in (x, y))  # pyright: ignore[reportReturnType]
