"""Conjugate gradient with a Jacobi or a Nystrom preconditioner, or the normaliser."""

from .. import Nystrom
from .._core import checks
from ._run import solver


@solver
def preconditioned_conjugate_gradient(K, y, *, ridge, preconditioner="jacobi"):
    r"""Solve $A \alpha = y$ with $A = K + \lambda I$ by conjugate gradient with preconditioner $M$.

    $$\gamma_t = r_t^T z_t / p_t^T A p_t, \quad \alpha_{t+1} = \alpha_t + \gamma_t p_t, \quad
    r_{t+1} = r_t - \gamma_t A p_t,$$
    $$z_{t+1} = M^{-1} r_{t+1}, \quad \beta_t = r_{t+1}^T z_{t+1} / r_t^T z_t, \quad
    p_{t+1} = z_{t+1} + \beta_t p_t$$

    A quotient whose divisor underflows is 0, as in `conjugate_gradient`.

    Args:
        preconditioner: "jacobi" (default) uses the diagonal of $A$ as $M$, and "normaliser" uses
            $M = D + \lambda I$ with the row sums $D$ of a positive kernel. An `icl_krr.Nystrom` of
            the same kernel and ridge uses $M = F F^T + \lambda I$ with its features $F$.

    Source: Saad, Iterative methods for sparse linear systems, algorithm 9.1.

    >>> from icl_krr import Linear, Task
    >>> task = Task(x=[[2.0, 0.0], [0.0, 2.0]], y=[8.0, 4.0], x_query=[[1.0, 1.0]])
    >>> path = preconditioned_conjugate_gradient(Linear(), task, ridge=4.0, steps=1)
    >>> path.alpha.tolist()
    [[0.0, 0.0], [1.0, 0.5]]
    """
    if isinstance(preconditioner, Nystrom):
        preconditioner.check(None if K.sketched else K.kernel, ridge)
        P = K.nystrom(preconditioner)
        return textbook(K, y, ridge, lambda r: (r - P @ r) / ridge)
    checks.choice("preconditioner", preconditioner, ("jacobi", "normaliser"))
    if preconditioner == "normaliser":
        return normalised(K, y, ridge)
    return jacobi(K, y, ridge=ridge)


def jacobi(K, y, *, ridge):
    inverse_diagonal = 1 / (K.diagonal + ridge)
    return textbook(K, y, ridge, lambda r: inverse_diagonal * r)


def textbook(K, y, ridge, solve):
    z = solve(y)
    start = dict(alpha=0, r=y, p=z, rz=y @ z, prediction=0)

    def step(alpha, r, p, rz, prediction):
        Kp = K @ p
        Ap = Kp + ridge * p
        pAp = p @ Ap
        gamma = rz / pAp
        r = r - gamma * Ap
        z = solve(r)
        rz_next = r @ z
        beta = rz_next / rz
        return dict(
            alpha=alpha + gamma * p,
            r=r,
            p=z + beta * p,
            rz=rz_next,
            prediction=prediction + gamma * Kp,
        )

    return start, step


def normalised(K, y, ridge):
    """Run conjugate gradient on B = (D + ridge)^-1 A in the inner product of D + ridge.

    Nothing undoes the softmax of a head then: z is (D + ridge)^-1 r, and there is no state r.
    """
    N = K.normalised(ridge)
    z = N.sink * y / ridge
    start = dict(alpha=0, z=z, p=z, zz=(N.normaliser * z) @ z, prediction=0)

    def step(alpha, z, p, zz, prediction):
        Bp = N @ p + N.sink * p
        weighted_p = N.normaliser * p
        pBp = weighted_p @ Bp
        gamma = zz / pBp
        z = z - gamma * Bp
        weighted_z = N.normaliser * z
        zz_next = weighted_z @ z
        beta = zz_next / zz
        return dict(
            alpha=alpha + gamma * p,
            z=z,
            p=z + beta * p,
            zz=zz_next,
            prediction=prediction + gamma * (K @ p),
        )

    return start, step
