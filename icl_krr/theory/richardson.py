"""The spectrum that the normaliser leaves as a preconditioner (C12, C13)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import checks
from ..kernels import Kernel, check_kernel
from ..linalg import eigh
from ..tasks import Task, system
from ..tasks.task import check_axes

Number = jax.Array | float


def richardson_bounds(kernel: Kernel, task: Task, *, ridge: Number, sink: Number) -> tuple:
    r"""Bounds $(a, b)$ on the eigenvalues of $(D + cI)^{-1} (K + \lambda I)$ (C12).

    $D$ is the diagonal of row sums $s_i$, `sink` $c$, `ridge` $\lambda$.
    $a = \lambda / (\max_i s_i + c)$, for $K$ is positive semi-definite;
    $b = \max_i (s_i + \lambda) / (s_i + c)$, the largest row sum, which is <= 1 where
    $\lambda \leq c$. Two scalars.

    >>> import jax.numpy as jnp
    >>> from icl_krr import Gaussian, Task
    >>> task = Task(x=jnp.ones((1, 1)), y=jnp.ones(1), x_query=jnp.ones((1, 1)))
    >>> [float(bound) for bound in richardson_bounds(Gaussian(), task, ridge=1.0, sink=1.0)]
    [0.5, 1.0]
    """
    check(kernel, task, ridge, sink)
    sums = jnp.sum(system(kernel, task).gram, axis=1)
    ridge, sink = (jnp.asarray(value, sums.dtype) for value in (ridge, sink))
    return ridge / (jnp.max(sums) + sink), jnp.max((sums + ridge) / (sums + sink))


def preconditioned_eigenvalues(
    kernel: Kernel, task: Task, *, ridge: Number, sink: Number
) -> Float[Array, " n"]:
    r"""The eigenvalues of $(D + cI)^{-1} (K + \lambda I)$, ascending, by a symmetric twin (C13).

    `ridge` is $\lambda$, `sink` $c$. Their condition number still grows with n: $D^{-1}$ does not
    cure it.

    >>> import jax.numpy as jnp
    >>> from icl_krr import Gaussian, Task
    >>> task = Task(x=jnp.ones((1, 1)), y=jnp.ones(1), x_query=jnp.ones((1, 1)))
    >>> preconditioned_eigenvalues(Gaussian(), task, ridge=1.0, sink=1.0).round(4).tolist()
    [1.0]
    """
    check(kernel, task, ridge, sink)
    gram = system(kernel, task).gram
    ridge, sink = (jnp.asarray(value, gram.dtype) for value in (ridge, sink))
    root = 1 / jnp.sqrt(jnp.sum(gram, axis=1) + sink)
    A = gram + ridge * jnp.eye(len(gram), dtype=gram.dtype)
    return eigh(root[:, None] * A * root[None, :])[0]


def check(kernel: Kernel, task: Task, ridge: Number, sink: Number) -> None:
    check_kernel(kernel)
    check_axes(task)
    checks.positive_scalar("ridge", ridge)
    checks.positive_scalar("sink", sink)
