"""Derivatives of exact kernel ridge regression by explicit formulas.

Notation: A = K + ridge I, alpha = A^-1 y, h(x) = A^-1 k(x), and f(x) = k(x)^T alpha at the q
queries of a task with one output. Derivatives with respect to masked supports are 0. Nothing is
differentiated automatically, so the two methods test each other.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import Kernel
from .._core import checks, linalg
from .._core.numerics import matmul
from ..tasks import Task, system
from ..tasks._task import check_one_output
from ._algebra import check_system, masked_arrays
from ._exact import shifted

Ridge = float | Float[Array, ""]


_Solved = tuple[jax.Array, jax.Array, jax.Array, jax.Array]
"""x [n, p], zero where masked, alpha [n], rows h(x)^T of the hat matrix [q, n], and A [n, n]."""


def solved(kernel: Kernel, task: Task, ridge: Ridge) -> _Solved:
    check_system(kernel, task, ridge, matrices=3)
    checks.factorable("x", task.x)
    check_one_output(task)
    return _solve(kernel, task, ridge)


@jax.jit
def _solve(kernel: Kernel, task: Task, ridge: Ridge) -> _Solved:
    gram, cross, y = system(kernel, task)
    # one solution for each vector: a product with A^-1 would round |A| |A^-1| times as much
    A = shifted(gram, jnp.asarray(ridge, y.dtype))
    solution = linalg.solve(A, jnp.concatenate([y, cross.T], axis=1))
    return masked_arrays(task)[0], solution[:, 0], solution[:, 1:].T, A


@checks.suggest_keywords
def derivative_in_y(kernel: Kernel, task: Task, *, ridge: Ridge) -> Float[Array, "q n"]:
    """Return the hat matrix $df/dy = k(x)^T A^{-1}$, the derivative of the predictions in y.

    As all derivatives, it takes a task with one output.

    >>> from icl_krr import Linear
    >>> task = Task(x=[[1.0]], y=[3.0], x_query=[[1.0]])
    >>> derivative_in_y(Linear(), task, ridge=1.0).round(4).tolist()
    [[0.5]]
    """
    return solved(kernel, task, ridge)[2]


@checks.suggest_keywords
def derivative_in_ridge(kernel: Kernel, task: Task, *, ridge: Ridge) -> Float[Array, " q"]:
    r"""Return the derivative in the ridge, $df/d\lambda = -k(x)^T A^{-1} \alpha$.

    >>> from icl_krr import Linear
    >>> task = Task(x=[[1.0]], y=[4.0], x_query=[[1.0]])
    >>> derivative_in_ridge(Linear(), task, ridge=1.0).round(4).tolist()
    [-1.0]
    """
    _, alpha, hat, _ = solved(kernel, task, ridge)
    return -matmul(hat, alpha)


@checks.suggest_keywords
def derivative_in_bandwidth(kernel: Kernel, task: Task, *, ridge: Ridge) -> Float[Array, " q"]:
    r"""Return the derivative in the bandwidth $\theta$, a temperature or lengthscale.

    $$\frac{df}{d\theta} = \frac{dk}{d\theta}^T \alpha - k^T A^{-1} \frac{dK}{d\theta} \alpha$$

    >>> from icl_krr import Gaussian
    >>> task = Task(x=[[1.0]], y=[1.0], x_query=[[1.0]])
    >>> float(abs(derivative_in_bandwidth(Gaussian(2.0), task, ridge=1.0))[0])
    0.0
    """
    x, alpha, hat, _ = solved(kernel, task, ridge)
    cross, gram = (kernel.derivative_in_bandwidth(at, x) for at in (task.x_query, x))
    return matmul(cross - matmul(hat, gram), alpha)


@checks.suggest_keywords
def derivative_in_projection(kernel: Kernel, task: Task, *, ridge: Ridge) -> Float[Array, "q d p"]:
    r"""Return the derivative of the predictions in the projection $U$ of the kernel.

    $$\frac{df}{dU} = \frac{dk}{dU}^T \alpha - k^T A^{-1} \frac{dK}{dU} \alpha$$

    A sketch $P$ of the linear kernel is the projection $U = P^T$. A kernel without a projection has
    $U = I$ and d = p.

    >>> from icl_krr import Linear
    >>> task = Task(x=[[1.0]], y=[4.0], x_query=[[1.0]])
    >>> derivative_in_projection(Linear(), task, ridge=1.0).round(4).tolist()
    [[[2.0]]]
    """
    x, alpha, hat, _ = solved(kernel, task, ridge)
    cross, gram = (kernel.derivative_in_projection(at, x) for at in (task.x_query, x))
    return _contract("qndp,n->qdp", cross, alpha) - _contract("qm,mndp,n->qdp", hat, gram, alpha)


@checks.suggest_keywords
def derivative_in_queries(kernel: Kernel, task: Task, *, ridge: Ridge) -> Float[Array, "q p"]:
    r"""Return the derivative of each prediction in its query, $df(x)/dx = (dk(x)/dx)^T \alpha$.

    >>> from icl_krr import Linear
    >>> task = Task(x=[[1.0]], y=[4.0], x_query=[[1.0]])
    >>> derivative_in_queries(Linear(), task, ridge=1.0).round(4).tolist()
    [[2.0]]
    """
    x, alpha, _, _ = solved(kernel, task, ridge)
    return _contract("qnp,n->qp", kernel.derivative_in_x(task.x_query, x), alpha)


@checks.suggest_keywords
def derivative_in_supports(kernel: Kernel, task: Task, *, ridge: Ridge) -> Float[Array, "q n p"]:
    r"""Return the derivative of every prediction in the features of every support.

    $$df/dx_j = \alpha_j g(x_j, x) - \sum_m (h_j \alpha_m + h_m \alpha_j) g(x_j, x_m)$$

    Here $g(a, b) = dk(a, b)/da$ and $h = A^{-1} k(x)$: $x_j$ is in row j and column j of $A$, and
    in both arguments of its diagonal entry.

    >>> from icl_krr import Linear
    >>> task = Task(x=[[1.0]], y=[4.0], x_query=[[1.0]])
    >>> derivative_in_supports(Linear(), task, ridge=1.0).round(4).tolist()
    [[[0.0]]]
    """
    x, alpha, hat, _ = solved(kernel, task, ridge)
    cross, gram = (kernel.derivative_in_x(x, to) for to in (task.x_query, x))
    direct = _contract("nqp,n->qnp", cross, alpha)
    row = _contract("qj,jmp,m->qjp", hat, gram, alpha)
    return direct - row - _contract("qm,jmp,j->qjp", hat, gram, alpha)


@checks.suggest_keywords
def derivative_in_weights(kernel: Kernel, task: Task, *, ridge: Ridge) -> Float[Array, "q n"]:
    r"""Return the influence of every support, $df/dw_j = \lambda h_j \alpha_j$ at $w = 1$.

    $w_j$ is the weight of support j in the loss $\sum_j w_j (y_j - f(x_j))^2 + \lambda |f|^2$. With
    these weights $A = K + \lambda \, \mathrm{diag}(1 / w)$ and $h = A^{-1} k(x)$.

    >>> from icl_krr import Linear
    >>> task = Task(x=[[1.0]], y=[4.0], x_query=[[1.0]])
    >>> derivative_in_weights(Linear(), task, ridge=1.0).round(4).tolist()
    [[1.0]]
    """
    _, alpha, hat, _ = solved(kernel, task, ridge)
    return jnp.asarray(ridge, hat.dtype) * hat * alpha[None]


@checks.suggest_keywords
def change_without(kernel: Kernel, task: Task, *, ridge: Ridge) -> Float[Array, "q n"]:
    r"""Return the change of every prediction if support j is left out of the regression.

    $$f_{-j} - f = -h_j \alpha_j / (A^{-1})_{jj}, \quad h = A^{-1} k(x)$$

    The formula is exact; it extends eq. 5.12 of the source from the supports to the queries.

    Source: Rasmussen, Williams, Gaussian Processes for Machine Learning, section 5.4.2.

    >>> from icl_krr import Linear
    >>> task = Task(x=[[1.0]], y=[4.0], x_query=[[1.0]])
    >>> change_without(Linear(), task, ridge=1.0).round(4).tolist()
    [[-2.0]]
    """
    _, alpha, hat, A = solved(kernel, task, ridge)
    return -hat * alpha[None] / linalg.diagonal_of_inverse(A)[None]


def _contract(formula: str, *operands: Any) -> jax.Array:
    return jnp.einsum(formula, *operands, precision=jax.lax.Precision.HIGHEST)
