"""Derivatives of exact kernel ridge regression by explicit formulas.

Notation: A = K + ridge I, alpha = A^-1 y, h(x) = A^-1 k(x), and f(x) = k(x)^T alpha at the q
queries of a task with one output. Derivatives with respect to masked supports are 0. The functions
do not use automatic differentiation, so the two methods can be tested against each other. Results
have the dtype of the task.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import checks, linalg
from ..kernels import Kernel
from ..numerics import matmul
from ..tasks import Task, system
from ..tasks.task import check_one_output
from .algebra import check_system, seen
from .exact import shifted

Ridge = float | Float[Array, ""]


class Solved(NamedTuple):
    r"""Solution of the linear system of a task.

    Attributes:
        x: supports [n, p], zero where masked.
        alpha: coefficients $\alpha = A^{-1} y$ [n].
        hat: rows $h(x)^T = k(x)^T A^{-1}$ of the hat matrix [q, n].
        A: matrix $A$ [n, n].
    """

    x: Float[Array, "n p"]
    alpha: Float[Array, " n"]
    hat: Float[Array, "q n"]
    A: Float[Array, "n n"]


def solved(kernel: Kernel, task: Task, ridge: Ridge) -> Solved:
    check_system(kernel, task, ridge, matrices=3)
    checks.factorable("x", task.x)
    check_one_output(task)
    return solve(kernel, task, ridge)


@jax.jit
def solve(kernel: Kernel, task: Task, ridge: Ridge) -> Solved:
    gram, cross, y = system(kernel, task)
    # one solution for each vector: a product with A^-1 would round |A| |A^-1| times as much
    A = shifted(gram, jnp.asarray(ridge, y.dtype))
    found = linalg.solve(A, jnp.concatenate([y, cross.T], axis=1))
    return Solved(seen(task)[0], found[:, 0], found[:, 1:].T, A)


@checks.suggesting
def derivative_in_y(kernel: Kernel, task: Task, *, ridge: Ridge) -> Float[Array, "q n"]:
    r"""Return the hat matrix $df/dy = k(x)^T A^{-1}$, the derivative of the predictions in y.

    Args:
        kernel: kernel $k$ of the regression.
        task: one task with one output: x [n, p], y [n], x_query [q, p].
        ridge: ridge $\lambda$ > 0, in units of $k(x, x)$.

    Raises:
        ValueError: `ridge` is not > 0, or `task` is a batch or has several outputs.
        TypeError: the dtype of `task` is not float32 or float64, or `kernel` is not one whose
            derivative is known.
        MemoryError: the matrices and the stored steps do not fit into memory.

    >>> from icl_krr import Linear
    >>> task = Task(x=[[1.0]], y=[3.0], x_query=[[1.0]])
    >>> derivative_in_y(Linear(), task, ridge=1.0).round(4).tolist()
    [[0.5]]
    """
    return solved(kernel, task, ridge).hat


@checks.suggesting
def derivative_in_ridge(kernel: Kernel, task: Task, *, ridge: Ridge) -> Float[Array, " q"]:
    r"""Return the derivative of the predictions in the ridge.

    $$df/d\lambda = -k(x)^T A^{-1} \alpha$$

    Args:
        kernel, task, ridge: as in `derivative_in_y`, which also says what is raised.

    >>> from icl_krr import Linear
    >>> task = Task(x=[[1.0]], y=[4.0], x_query=[[1.0]])
    >>> derivative_in_ridge(Linear(), task, ridge=1.0).round(4).tolist()
    [-1.0]
    """
    _, alpha, hat, _ = solved(kernel, task, ridge)
    return -matmul(hat, alpha)


@checks.suggesting
def derivative_in_bandwidth(kernel: Kernel, task: Task, *, ridge: Ridge) -> Float[Array, " q"]:
    r"""Return the derivative of the predictions in the bandwidth $\theta$ of the kernel.

    $$\frac{df}{d\theta} = \frac{dk}{d\theta}^T \alpha - k^T A^{-1} \frac{dK}{d\theta} \alpha$$

    The bandwidth is the temperature or the lengthscale.

    Args:
        kernel: `Exponential`, `Gaussian` or another kernel with a method `derivative_in_bandwidth`.
        task, ridge: as in `derivative_in_y`, which also says what is raised.

    >>> from icl_krr import Gaussian
    >>> task = Task(x=[[1.0]], y=[1.0], x_query=[[1.0]])
    >>> float(abs(derivative_in_bandwidth(Gaussian(2.0), task, ridge=1.0))[0])
    0.0
    """
    x, alpha, hat, _ = solved(kernel, task, ridge)
    cross, gram = (kernel.derivative_in_bandwidth(at, x) for at in (task.x_query, x))
    return matmul(cross - matmul(hat, gram), alpha)


@checks.suggesting
def derivative_in_projection(kernel: Kernel, task: Task, *, ridge: Ridge) -> Float[Array, "q d p"]:
    r"""Return the derivative of the predictions in the projection $U$ of the kernel.

    $$\frac{df}{dU} = \frac{dk}{dU}^T \alpha - k^T A^{-1} \frac{dK}{dU} \alpha$$

    A sketch $P$ of the linear kernel is the projection $U = P^T$. A kernel without a projection has
    $U = I$ and d = p.

    Args:
        kernel: `Linear`, `Polynomial`, `Exponential`, `Gaussian`, Matern or another `LogBilinear`.
        task, ridge: as in `derivative_in_y`, which also says what is raised.

    >>> from icl_krr import Linear
    >>> task = Task(x=[[1.0]], y=[4.0], x_query=[[1.0]])
    >>> derivative_in_projection(Linear(), task, ridge=1.0).round(4).tolist()
    [[[2.0]]]
    """
    x, alpha, hat, _ = solved(kernel, task, ridge)
    cross, gram = (kernel.derivative_in_projection(at, x) for at in (task.x_query, x))
    return contract("qndp,n->qdp", cross, alpha) - contract("qm,mndp,n->qdp", hat, gram, alpha)


@checks.suggesting
def derivative_in_queries(kernel: Kernel, task: Task, *, ridge: Ridge) -> Float[Array, "q p"]:
    r"""Return the derivative of each prediction in its query, $df(x)/dx = (dk(x)/dx)^T \alpha$.

    A prediction does not depend on the other queries.

    Args:
        kernel: `Linear`, `Polynomial`, `Exponential`, `Gaussian`, Matern or another `LogBilinear`.
        task, ridge: as in `derivative_in_y`, which also says what is raised.

    >>> from icl_krr import Linear
    >>> task = Task(x=[[1.0]], y=[4.0], x_query=[[1.0]])
    >>> derivative_in_queries(Linear(), task, ridge=1.0).round(4).tolist()
    [[2.0]]
    """
    x, alpha, _, _ = solved(kernel, task, ridge)
    return contract("qnp,n->qp", kernel.derivative_in_x(task.x_query, x), alpha)


@checks.suggesting
def derivative_in_supports(kernel: Kernel, task: Task, *, ridge: Ridge) -> Float[Array, "q n p"]:
    r"""Return the derivative of every prediction in the features of every support.

    $$df/dx_j = \alpha_j g(x_j, x) - \sum_m (h_j \alpha_m + h_m \alpha_j) g(x_j, x_m)$$

    Here $g(a, b) = dk(a, b)/da$ and $h = A^{-1} k(x)$. A change of $x_j$ changes row j and column j
    of $A$. The diagonal entry of $A$ changes through both arguments of the kernel.

    Args:
        kernel: `Linear`, `Polynomial`, `Exponential`, `Gaussian`, Matern or another `LogBilinear`.
        task, ridge: as in `derivative_in_y`, which also says what is raised.

    >>> from icl_krr import Linear
    >>> task = Task(x=[[1.0]], y=[4.0], x_query=[[1.0]])
    >>> derivative_in_supports(Linear(), task, ridge=1.0).round(4).tolist()
    [[[0.0]]]
    """
    x, alpha, hat, _ = solved(kernel, task, ridge)
    cross, gram = (kernel.derivative_in_x(x, to) for to in (task.x_query, x))
    own = contract("nqp,n->qnp", cross, alpha)
    row = contract("qj,jmp,m->qjp", hat, gram, alpha)
    return own - row - contract("qm,jmp,j->qjp", hat, gram, alpha)


@checks.suggesting
def derivative_in_weights(kernel: Kernel, task: Task, *, ridge: Ridge) -> Float[Array, "q n"]:
    r"""Return the influence of every support, $df/dw_j = \lambda h_j \alpha_j$ at $w = 1$.

    $w_j$ is the weight of support j in the loss $\sum_j w_j (y_j - f(x_j))^2 + \lambda |f|^2$. With
    these weights $A = K + \lambda \, \mathrm{diag}(1 / w)$ and $h = A^{-1} k(x)$.

    Args:
        kernel, task, ridge: as in `derivative_in_y`, which also says what is raised.

    >>> from icl_krr import Linear
    >>> task = Task(x=[[1.0]], y=[4.0], x_query=[[1.0]])
    >>> derivative_in_weights(Linear(), task, ridge=1.0).round(4).tolist()
    [[1.0]]
    """
    _, alpha, hat, _ = solved(kernel, task, ridge)
    return jnp.asarray(ridge, hat.dtype) * hat * alpha[None]


@checks.suggesting
def change_without(kernel: Kernel, task: Task, *, ridge: Ridge) -> Float[Array, "q n"]:
    r"""Return the change of every prediction if support j is left out of the regression.

    $$f_{-j} - f = -h_j \alpha_j / (A^{-1})_{jj}, \quad h = A^{-1} k(x)$$

    The formula is exact and needs no second solution of a linear system.

    Args:
        kernel, task, ridge: as in `derivative_in_y`, which also says what is raised.

    Source: Rasmussen, Williams, Gaussian Processes for Machine Learning, section 5.4.2. The
    formula extends their eq. 5.12 from the supports to the queries.

    >>> from icl_krr import Linear
    >>> task = Task(x=[[1.0]], y=[4.0], x_query=[[1.0]])
    >>> change_without(Linear(), task, ridge=1.0).round(4).tolist()
    [[-2.0]]
    """
    _, alpha, hat, A = solved(kernel, task, ridge)
    return -hat * alpha[None] / linalg.diagonal_of_inverse(A)[None]


def contract(formula: str, *operands: Any) -> jax.Array:
    return jnp.einsum(formula, *operands, precision=jax.lax.Precision.HIGHEST)
