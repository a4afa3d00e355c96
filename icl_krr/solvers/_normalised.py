"""Richardson's and the Chebyshev iteration, preconditioned by the normaliser of the kernel."""

from .._core import checks
from .._core.step_sizes import chebyshev, normalised_spectrum, richardson_step
from ._language.trace import per_step
from ._run import solver


@solver
def richardson(K, y, *, ridge, step_size=1.0, sink=None):
    r"""Solve $A \alpha = y$ by Richardson's iteration, preconditioned by the kernel's normaliser.

    $$\alpha_{t+1} = \alpha_t + \eta (D + cI)^{-1} (y - A \alpha_t), \quad A = K + \lambda I$$

    $D$ is the diagonal matrix of the row sums $s_i$ of $K$. If $\lambda \leq c$, every eigenvalue
    of $(D + cI)^{-1} A$ lies in $(0, 1]$: the matrix is similar to a symmetric positive definite
    one, and its row sums $(s_i + \lambda) / (s_i + c)$ are <= 1. So the iteration converges for
    every $\eta$ in $(0, 2)$ and every n.

    Args:
        step_size: step size $\eta$ in (0, 2).
        sink: weight $c$ > 0 of the attention sink, which adds $c$ to every row sum; default: the
            ridge.

    >>> from icl_krr import Gaussian, Task
    >>> task = Task(x=[[1.0]], y=[3.0], x_query=[[1.0]])
    >>> richardson(Gaussian(), task, ridge=1.0, steps=2).alpha[:, 0].tolist()
    [0.0, 1.5, 1.5]
    """
    eta = richardson_step(step_size)
    if sink is not None:
        checks.positive_scalar("sink", sink)
    return _descend(K, y, ridge, ridge if sink is None else sink, eta, eta)


@solver
def preconditioned_chebyshev(K, y, *, ridge, steps, num_supports, largest=None):
    r"""Solve $A \alpha = y$ by the Chebyshev iteration, preconditioned by the normaliser.

    $$z_t = (D + \lambda I)^{-1} (y - A \alpha_t), \quad
    \alpha_{t+1} = \alpha_t + b_t z_t + a_t (\alpha_t - \alpha_{t-1})$$

    $D$ is the diagonal matrix of the row sums of $K$.

    **Theorem.** Let $0 \leq k \leq \kappa$ and let K be positive semidefinite. Then the eigenvalues
    of $(D + \lambda I)^{-1} A$ are in $[\lambda / (n \kappa + \lambda), 1]$, and the error in the
    A-norm after t steps is at most $1 / T_t(1 + 2 \lambda / (n \kappa))$ times the initial error,
    where $T_t$ is the Chebyshev polynomial. So $O(\sqrt{n \kappa / \lambda} \log(1 / \epsilon))$
    steps reach the error $\epsilon$, where `richardson` needs
    $O((n \kappa / \lambda) \log(1 / \epsilon))$.

    *Proof.* The matrix is similar to a symmetric positive definite one, so its eigenvalues are
    real. Its entries are >= 0 and its row sums are 1, so no eigenvalue exceeds 1. As
    $s_i \leq n \kappa$, the smallest is at least that of $A$ over $n \kappa + \lambda$, and
    $A \geq \lambda I$. The matrix is self-adjoint in the inner product of $A$, so the residual
    polynomial on this interval, the scaled Chebyshev polynomial, bounds the error in the A-norm.
    Its value is $1 / T_t(\theta / \delta)$ with centre $\theta$ and half length $\delta$, and
    $\theta / \delta = 1 + 2 \lambda / (n \kappa)$. ∎

    `icl_krr.theory.budget` computes the number of steps for an error.

    Args:
        num_supports: largest number of supports n, >= 1.
        largest: bound $\kappa$ > 0 on all values of the kernel; default None: 1 for `Gaussian` and
            Matern kernels; other kernels need a value.

    Source: Golub and Varga, Chebyshev semi-iterative methods, 1961.

    >>> from icl_krr import Gaussian, Task
    >>> task = Task(x=[[1.0]], y=[3.0], x_query=[[1.0]])
    >>> path = preconditioned_chebyshev(Gaussian(), task, ridge=1.0, steps=1, num_supports=1)
    >>> path.alpha[:, 0].tolist()
    [0.0, 2.0]
    """
    first, a, b = chebyshev(steps, normalised_spectrum(K.kernel, ridge, num_supports, largest))
    return _descend(K, y, ridge, ridge, first, per_step(b), per_step(a))


def _descend(K, y, ridge, c, first, b, a=None):
    """Change alpha by b z + a (its last change), with z = (D + c)^-1 (y - A alpha).

    The state `next_alpha` is alpha one step later, so that alpha and prediction, which one head
    computes, belong together.
    """
    N = K.normalised(c)

    def step(alpha, next_alpha, prediction):
        z = N.sink * (y - ridge * next_alpha) / c - N @ next_alpha
        new_alpha = next_alpha + b * z
        if a is not None:
            new_alpha = new_alpha + a * (next_alpha - alpha)
        return dict(alpha=next_alpha, next_alpha=new_alpha, prediction=K @ next_alpha)

    return dict(alpha=0, next_alpha=first * (N.sink * y) / c, prediction=0), step
