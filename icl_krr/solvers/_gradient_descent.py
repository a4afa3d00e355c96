"""Gradient descent in the function space of the kernel, and in alpha."""

from .._core import step_sizes
from ._run import solver


@solver
def gradient_descent(K, y, *, ridge, step_size=None, spectrum=None):
    r"""Solve kernel ridge regression by functional gradient descent from $\alpha_0 = 0$, $r_0 = y$.

    $$\alpha_{t+1} = \alpha_t + \eta r_t, \quad r_{t+1} = r_t - \eta (K + \lambda I) r_t$$

    Args:
        step_size: step size $\eta$ > 0; default: $2 / (a + b)$. Pass either this or `spectrum`.

    >>> from icl_krr import Linear, Task
    >>> task = Task(x=[[1.0]], y=[3.0], x_query=[[1.0]])
    >>> path = gradient_descent(Linear(), task, ridge=1.0, steps=2, step_size=0.25)
    >>> path.alpha[:, 0].tolist()
    [0.0, 0.75, 1.125]
    """
    return _descend(K, y, ridge, step_sizes.gradient_step(step_size, spectrum), lambda r: r)


@solver
def gradient_descent_in_alpha(K, y, *, ridge, step_size=None, spectrum=None):
    r"""Solve kernel ridge regression by gradient descent in alpha from $\alpha_0 = 0$, $r_0 = y$.

    $$\alpha_{t+1} = \alpha_t + \eta K r_t, \quad r_{t+1} = r_t - \eta (K + \lambda I) K r_t$$

    It follows the Euclidean gradient of $|y - K \alpha|^2 / 2 + \lambda \alpha^T K \alpha / 2$,
    which has one more factor $K$ than that of `gradient_descent`, so the condition number is about
    squared.

    Args:
        step_size: step size $\eta$ > 0; default: $2 / (a (a - \lambda) + b (b - \lambda))$, or half
            of this if $a = \lambda$. If $b = \lambda$ up to rounding, it is finite, and the
            predictions stay near 0. Pass either this or `spectrum`.

    >>> from icl_krr import Linear, Task
    >>> task = Task(x=[[2.0]], y=[3.0], x_query=[[1.0]])
    >>> path = gradient_descent_in_alpha(Linear(), task, ridge=4.0, steps=2, step_size=1 / 64)
    >>> path.alpha[:, 0].tolist()
    [0.0, 0.1875, 0.28125]
    """
    eta = step_sizes.alpha_step(step_size, spectrum, ridge)
    return _descend(K, y, ridge, eta, lambda r: K @ r)


def _descend(K, y, ridge, eta, ascent_of):
    """Change alpha by eta a with the ascent a of the residual r."""

    def step(alpha, r, prediction):
        a = ascent_of(r)
        Ka = K @ a
        return dict(
            alpha=alpha + eta * a, r=r - eta * (Ka + ridge * a), prediction=prediction + eta * Ka
        )

    return dict(alpha=0, r=y, prediction=0), step
