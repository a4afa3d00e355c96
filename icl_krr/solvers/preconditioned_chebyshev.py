"""The Chebyshev iteration, preconditioned by the normaliser of the kernel."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..kernels import Kernel, check_positive
from ..step_sizes import Momentum, chebyshev, normalised_spectrum
from ..tasks import Task
from .algebra import apply, check_system
from .paths import trajectory
from .results import Trajectory


def preconditioned_chebyshev(
    kernel: Kernel,
    task: Task,
    *,
    ridge: float | Float[Array, ""],
    steps: int,
    num_supports: int | Float[Array, ""],
    largest: float | Float[Array, ""] | None = None,
) -> Trajectory:
    r"""Solve $A \alpha = y$ by the Chebyshev iteration, preconditioned by the normaliser.

    $$z_t = (D + \lambda I)^{-1} (y - A \alpha_t), \quad
    \alpha_{t+1} = \alpha_t + b_t z_t + a_t (\alpha_t - \alpha_{t-1}), \quad A = K + \lambda I$$

    $D$ is the diagonal matrix of the row sums of $K$. The coefficients follow from the interval
    $[\lambda / (n \kappa + \lambda), 1]$, which contains the eigenvalues of
    $(D + \lambda I)^{-1} A$ if $0 \leq k \leq \kappa$
    (`icl_krr.constructions.preconditioned_chebyshev` has the proof).

    Args:
        task, ridge, steps: as in `icl_krr.solvers`, which also says what is raised.
        kernel: positive kernel $k$, such as `Exponential` or `Gaussian`.
        num_supports: largest number of supports n, >= 1.
        largest: bound $\kappa$ > 0 on all values of the kernel; default None: 1 for `Gaussian`;
            other kernels need a value.

    Source: Golub and Varga, Chebyshev semi-iterative methods, 1961.

    >>> from icl_krr import Gaussian, Task
    >>> task = Task(x=[[1.0]], y=[3.0], x_query=[[1.0]])
    >>> path = preconditioned_chebyshev(Gaussian(), task, ridge=1.0, steps=1, num_supports=1)
    >>> path.alpha[:, 0].tolist()
    [0.0, 2.0]
    """
    check_system(kernel, task, ridge, steps)
    check_positive(kernel)
    momentum = chebyshev(steps, normalised_spectrum(kernel, ridge, num_supports, largest))
    return follow(kernel, task, ridge, momentum)


@jax.jit
def follow(kernel: Kernel, task: Task, ridge: jax.Array, momentum: Momentum) -> Trajectory:
    momentum = jax.tree.map(lambda value: jnp.asarray(value, task.y.dtype), momentum)
    return trajectory(kernel, task, ridge, iterate, momentum)


def iterate(gram, ridge, y, momentum):
    scale = 1 / (jnp.sum(gram, axis=1, keepdims=True) + ridge)

    def step(state, coefficients):
        (alpha, last), (a, b) = state, coefficients
        ahead = alpha + a * (alpha - last) + b * scale * (y - apply(gram, ridge, alpha))
        return (ahead, alpha), alpha

    zero = jnp.zeros_like(y)
    first = momentum.first * scale * y
    _, path = jax.lax.scan(step, (first, zero), (momentum.a, momentum.b))
    alpha = jnp.concatenate([zero[None], path])
    r = y[None] - apply(gram, ridge, alpha)
    return alpha, r, None
