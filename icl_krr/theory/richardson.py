"""Eigenvalues of the system that the softmax normaliser preconditions (C12, C13)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import checks
from ..kernels import PositiveKernel, check_positive
from ..linalg import eigenvalues
from ..pytree import compiled
from ..tasks import Task, system
from ..tasks.linear_system import check_matrices
from .softmax import seen

Number = jax.Array | float


def preconditioned_eigenvalues(
    kernel: PositiveKernel, task: Task, *, ridge: Number, sink: Number
) -> Float[Array, " n"]:
    r"""Return the eigenvalues of $(D + cI)^{-1} (K + \lambda I)$, ascending (C13).

    $D$ is the diagonal matrix of the row sums of $K$. The eigenvalues are computed from
    the similar symmetric matrix $(D + cI)^{-1/2} A (D + cI)^{-1/2}$ with $A = K + \lambda I$. The
    ratio of the largest to the smallest eigenvalue still grows with n, in spite of the
    preconditioner. In place of each masked support, the smallest eigenvalue is repeated.

    Args:
        sink: as in `icl_krr.theory`.

    >>> from icl_krr import Gaussian, Task
    >>> task = Task(x=[[1.0]], y=[1.0], x_query=[[1.0]])
    >>> preconditioned_eigenvalues(Gaussian(), task, ridge=1.0, sink=1.0).round(4).tolist()
    [1.0]
    """
    check(kernel, task, ridge, sink)
    return preconditioned(kernel, task, ridge, sink)


@compiled
def preconditioned(kernel: PositiveKernel, task: Task, ridge: Number, sink: Number) -> jax.Array:
    gram = system(kernel, task).gram
    ridge, sink = (jnp.asarray(value, gram.dtype) for value in (ridge, sink))
    root = 1 / jnp.sqrt(jnp.sum(gram, axis=1) + sink)
    A = gram + ridge * jnp.eye(len(gram), dtype=gram.dtype)
    _, keep = seen(task)
    sigma = eigenvalues(jnp.where(keep[:, None], root[:, None] * A * root[None, :], 0))
    # a masked support adds the eigenvalue 0, and all others are > 0
    return jnp.maximum(sigma, sigma.at[jnp.sum(~keep)].get(mode="clip"))


def check(kernel: PositiveKernel, task: Task, ridge: Number, sink: Number) -> None:
    check_matrices(kernel, task)
    check_positive(kernel, "to have a normaliser")
    checks.positive_scalar("ridge", ridge)
    checks.positive_scalar("sink", sink)
