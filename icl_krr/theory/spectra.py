"""Spectra and what they imply."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import checks
from ..kernels import Kernel, check_kernel
from ..linalg import eigh
from ..tasks import Task, system
from ..tasks.task import check_axes


def eigenvalues(kernel: Kernel, task: Task) -> Float[Array, " n"]:
    """The eigenvalues of $K$ on the supports, ascending, those below 0 by rounding set to 0.

    Shape [n] in the task's dtype; a masked support contributes a 0, and these come first.

    >>> import jax.numpy as jnp
    >>> from icl_krr import Linear, Task
    >>> task = Task(x=jnp.eye(2) * 2, y=jnp.ones(2), x_query=jnp.ones((1, 2)))
    >>> eigenvalues(Linear(), task).tolist()
    [4.0, 4.0]
    """
    check_kernel(kernel)
    check_axes(task)
    checks.factorable("x", task.x)
    return jnp.maximum(eigh(system(kernel, task).gram)[0], 0)


def spectral_bounds(kernel: Kernel, task: Task, *, ridge: float | Float[Array, ""]) -> tuple:
    r"""The smallest and largest eigenvalue (low, high) of $K + \lambda I$.

    Two scalars in the task's dtype: what gradient descent must know in advance.

    Raises ValueError for a `ridge` $\lambda$ that is not > 0.

    >>> import jax.numpy as jnp
    >>> from icl_krr import Linear, Task
    >>> task = Task(x=jnp.eye(2) * 2, y=jnp.ones(2), x_query=jnp.ones((1, 2)))
    >>> [float(bound) for bound in spectral_bounds(Linear(), task, ridge=1.0)]
    [5.0, 5.0]
    """
    checks.positive_scalar("ridge", ridge)
    sigma = eigenvalues(kernel, task)
    ridge = jnp.asarray(ridge, sigma.dtype)
    masked = 0 if task.mask is None else task.num_supports - jnp.sum(task.mask)
    return sigma[masked] + ridge, sigma[-1] + ridge


def effective_dimension(sigma: Float[Array, " n"], ridge: float | jax.Array) -> Float[Array, ""]:
    r"""$\mathrm{tr} K A^{-1} = \sum_i \sigma_i / (\sigma_i + \lambda)$, the effective dimension.

    `sigma` are the eigenvalues of $K$, `ridge` is $\lambda$, $A = K + \lambda I$.

    >>> import jax.numpy as jnp
    >>> float(effective_dimension(jnp.array([1.0, 3.0]), 1.0))
    1.25
    """
    checks.positive_scalar("ridge", ridge)
    return jnp.sum(sigma / (sigma + ridge))


def distinct_eigenvalues(sigma: Float[Array, " n"]) -> Float[Array, ""]:
    r"""How many eigenvalues differ by more than rounding, $\sqrt{\varepsilon}$ of the largest (C8).

    After that many steps conjugate gradient is exact, were there no rounding: its polynomial
    can vanish on all of them. `sigma` [n] ascends; $\varepsilon$ is the dtype's.

    >>> import jax.numpy as jnp
    >>> int(distinct_eigenvalues(jnp.array([0.0, 0.0, 1.0, 3.0])))
    3
    """
    gap = jnp.sqrt(jnp.finfo(sigma.dtype).eps) * sigma[-1]
    return 1 + jnp.sum(jnp.diff(sigma) > gap)
