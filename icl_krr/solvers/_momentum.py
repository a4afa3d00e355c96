"""Heavy ball and Chebyshev: methods with momentum and without inner products."""

from .._core import step_sizes
from ._language.trace import per_step
from ._run import solver


@solver
def heavy_ball(K, y, *, ridge, steps, step_size=None, momentum=None, spectrum=None):
    r"""Solve $A \alpha = y$ with $A = K + \lambda I$ by the heavy-ball method of Polyak.

    $$\alpha_{t+1} = \alpha_t + p_t, \quad r_{t+1} = r_t - A p_t, \quad
    p_{t+1} = \mu p_t + \eta r_{t+1}$$

    The iteration starts from $\alpha_0 = 0$ and $p_0 = \eta y$. Pass either `step_size` and
    `momentum`, or `spectrum` alone.

    Args:
        step_size: step size $\eta$ > 0; default: $4 / (\sqrt{b} + \sqrt{a})^2$.
        momentum: momentum $\mu$ >= 0; default: $((\sqrt{b} - \sqrt{a}) / (\sqrt{b} + \sqrt{a}))^2$.

    Source: Polyak, Some methods of speeding up the convergence of iteration methods, 1964.

    >>> from icl_krr import Linear, Task
    >>> task = Task(x=[[1.0]], y=[3.0], x_query=[[1.0]])
    >>> path = heavy_ball(Linear(), task, ridge=1.0, steps=2, step_size=0.25, momentum=0.5)
    >>> path.alpha[:, 0].tolist()
    [0.0, 0.75, 1.5]
    """
    momentum = step_sizes.heavy_ball(steps, step_size, momentum, spectrum)
    return descend(K, y, ridge=ridge, momentum=momentum)


@solver
def chebyshev(K, y, *, ridge, steps, spectrum=None):
    r"""Solve $A \alpha = y$ with $A = K + \lambda I$ by the Chebyshev iteration.

    The iteration is that of `heavy_ball` with a $\mu_t$ and an $\eta_t$ for each step, the optimal
    choice if only the bounds $(a, b)$ on the spectrum are known. The error falls as
    $2 ((\sqrt{\kappa} - 1) / (\sqrt{\kappa} + 1))^t$ with $\kappa = b / a$.

    Source: Saad, Iterative methods for sparse linear systems, algorithm 12.1.

    >>> from icl_krr import Linear, Task
    >>> task = Task(x=[[1.0]], y=[3.0], x_query=[[1.0]])
    >>> path = chebyshev(Linear(), task, ridge=1.0, steps=1, spectrum=(2.0, 2.0))
    >>> path.alpha[:, 0].tolist()
    [0.0, 1.5]
    """
    return descend(K, y, ridge=ridge, momentum=step_sizes.chebyshev(steps, spectrum))


def descend(K, y, *, ridge, momentum):
    a, b = per_step(momentum.a), per_step(momentum.b)

    def step(alpha, r, p, prediction):
        Kp = K @ p
        r = r - (Kp + ridge * p)
        return dict(alpha=alpha + p, r=r, p=a * p + b * r, prediction=prediction + Kp)

    return dict(alpha=0, r=y, p=momentum.first * y, prediction=0), step
