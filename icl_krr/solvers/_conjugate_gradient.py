"""Conjugate gradient, with separate step sizes for each output."""

from .._core import checks
from ._run import solver


@solver
def conjugate_gradient(K, y, *, ridge, form="textbook"):
    r"""Solve $A \alpha = y$ with $A = K + \lambda I$ by conjugate gradient from $\alpha_0 = 0$.

    $$\gamma_t = |r_t|^2 / p_t^T A p_t, \quad \alpha_{t+1} = \alpha_t + \gamma_t p_t, \quad
    r_{t+1} = r_t - \gamma_t A p_t,$$
    $$\beta_t = |r_{t+1}|^2 / |r_t|^2, \quad p_{t+1} = r_{t+1} + \beta_t p_t$$

    Each output has its own $\gamma_t$ and $\beta_t$. A quotient whose divisor underflows is 0, so
    all values and gradients stay finite after convergence. If $r$ becomes 0 before the last step,
    later steps contribute no derivative: the Jacobian with respect to y is 0 at y = 0, and if y is
    a sum of fewer eigenvectors of $K$ than there are steps, it is that of exact regression in their
    directions. For other y, rounding keeps $r$ from 0.

    The three forms compute the same iterates up to rounding. As weights, a step of "textbook" takes
    5 blocks with linear attention and 7 with softmax attention, where a sum takes two sublayers: an
    MLP computes the summands, and a head their mean.

    Args:
        form: order of the operations. "textbook" (default) is the recurrence above. "fused"
            computes all inner products in parallel, with $\gamma = r^T p / p^T A p$ and
            $\beta = (\gamma |A p|^2 - r^T A p) / p^T A p$, in 3 blocks or 5. "pipelined" also
            updates $s = A p$, $s_{t+1} = A r_t - \gamma_t A s_t + \beta_t A p_t$, so that inner
            products and products with $A$ run in parallel, in 2 blocks or 4. Recurrences for $A r$
            and $A p$ would save no depth and accumulate rounding errors.

    Source: Hestenes, Stiefel, Methods of conjugate gradients for solving linear systems, 1952;
    Chronopoulos, Gear, s-step iterative methods for symmetric linear systems, 1989; Ghysels,
    Vanroose, Hiding global synchronization latency in the preconditioned conjugate gradient
    algorithm, 2014.

    >>> from icl_krr import Linear, Task
    >>> task = Task(x=[[1.0]], y=[3.0], x_query=[[1.0]])
    >>> conjugate_gradient(Linear(), task, ridge=2.0, steps=1).prediction[:, 0].tolist()
    [0.0, 1.0]
    """
    forms = {"textbook": textbook, "fused": fused, "pipelined": pipelined}
    checks.choice("form", form, tuple(forms))
    return forms[form](K, y, ridge=ridge)


def textbook(K, y, *, ridge):
    start = dict(alpha=0, r=y, p=y, rr=y @ y, prediction=0)

    def step(alpha, r, p, rr, prediction):
        Kp = K @ p
        Ap = Kp + ridge * p
        pAp = p @ Ap
        gamma = rr / pAp
        r = r - gamma * Ap
        rr_next = r @ r
        beta = rr_next / rr
        return dict(
            alpha=alpha + gamma * p,
            r=r,
            p=r + beta * p,
            rr=rr_next,
            prediction=prediction + gamma * Kp,
        )

    return start, step


def fused(K, y, *, ridge):
    def step(alpha, r, p, prediction):
        Kp = K @ p
        Ap = Kp + ridge * p
        gamma, beta = _quotients(r, p, Ap)
        r = r - gamma * Ap
        return dict(
            alpha=alpha + gamma * p, r=r, p=r + beta * p, prediction=prediction + gamma * Kp
        )

    return dict(alpha=0, r=y, p=y, prediction=0), step


def pipelined(K, y, *, ridge):
    def A(v):
        return K @ v + ridge * v

    def step(alpha, r, p, s, prediction):
        gamma, beta = _quotients(r, p, s)
        r_next = r - gamma * s
        return dict(
            alpha=alpha + gamma * p,
            r=r_next,
            p=r_next + beta * p,
            s=A(r) - gamma * A(s) + beta * A(p),
            prediction=prediction + gamma * (K @ p),
        )

    return dict(alpha=0, r=y, p=y, s=A(y), prediction=0), step


def _quotients(r, p, s):
    """Compute gamma = r.p / p.s and beta = -r'.s / p.s from r, p and s = Ap, with r' the next r.

    In exact arithmetic r.p = r.r and r.s = p.s. With r.p, gamma minimises the error along p for
    every p; with r.r and p.s, rounding errors would grow after convergence.
    """
    ps = p @ s
    gamma = (r @ p) / ps
    growth = (s @ s) / ps
    drop = (r @ s) / ps
    return gamma, gamma * growth - drop
