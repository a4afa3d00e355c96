"""The ridge regression of its prefix at every token: conjugate gradient, Chebyshev, posteriors."""

from __future__ import annotations

from typing import Unpack

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float

from .. import Task
from .._core import checks, step_sizes
from .._core.causal import PrefixOptions
from .._core.readable import readable
from ..kernels import Kernel
from ..kernels._kernel import check_kernel
from ..tasks._linear_system import System
from ._algebra import like
from ._conjugate_gradient import conjugate_gradient
from ._language.arrays import iterates
from ._language.trace import trace
from ._momentum import descend
from ._preconditioned_conjugate_gradient import preconditioned_conjugate_gradient
from ._prefix import PrefixSpec, decays, make_tokens, num_features, prefix_spec, solve
from ._results import CausalTrajectory, Result, causal_trajectory
from ._run import KernelArrays


@checks.suggest_keywords
def prefix_conjugate_gradient(
    kernel: Kernel,
    task: Task,
    *,
    ridge: float | Float[Array, ""] | Float[Array, " m"],
    steps: int,
    preconditioner: str | None = None,
    **options: Unpack[PrefixOptions],
) -> CausalTrajectory:
    r"""Solve $(C_i + \lambda I) w_i = b_i$ at every token by conjugate gradient from $w = 0$.

    $$C_i = \sum_j e^{G_i - G_j} \beta_j \phi_j \phi_j^T, \quad
    b_i = \sum_j e^{G_i - G_j} \beta_j \phi_j y_j, \quad f_i = \phi_i^T w_i$$

    The sums run over the supports that token i sees, with the features $\phi$ of the kernel, and
    follow the recurrence $C \leftarrow e^g C + \beta \phi \phi^T$. For m features, m steps are
    exact without rounding.

    As weights, a step takes 7 blocks, or 5 in the form "fused": one head computes $C_i d_i$ at all
    tokens, with the query $d_i$, the keys $\beta_j \phi_j$ and the values $\phi_j$, and inner
    products are local to a token. The states are w, r, d [T, r m] and prediction.

    Args:
        ridge: ridge $\lambda$ > 0, or a vector [m] of them: $C_i + \mathrm{diag}(\lambda)$.
        preconditioner: "jacobi" for the diagonal of $C_i + \lambda I$, in the form "textbook";
            default None: none.

    >>> from icl_krr import Linear, Task
    >>> task = Task(x=[[1.0], [1.0]], y=[2.0, 4.0], x_query=[[1.0]])
    >>> prefix_conjugate_gradient(Linear(), task, ridge=1.0, steps=1).along[-1].tolist()
    [0.0, 1.0, 2.0]
    """
    checks.ridges(ridge, num_features(kernel, task))
    spec = prefix_spec(kernel, task, steps, options)
    static = steps, token_solver(preconditioner)
    return solve(task, _regress, static, causal_trajectory, 1, kernel, spec, {"ridge": ridge})


def token_solver(preconditioner=None):
    """The function of the language that runs at every token."""
    if preconditioner not in (None, "jacobi"):
        raise ValueError(f"preconditioner must be 'jacobi' or None, got {preconditioner!r}")
    plain = preconditioner is None
    return (conjugate_gradient if plain else preconditioned_conjugate_gradient).function


def _regress(steps, function, task, kernel, spec, numbers):
    """The predictions [L + 1, T, r] and all w, r, d [L + 1, T, m, r] of the systems."""
    phi, C, b = _prefix_systems(task, kernel, spec)
    f, w, r, d = _iterate(steps, function, kernel, phi, C, b, numbers)
    return f[:, :, 0], w, r, d


def _iterate(steps, function, kernel, phi, C, b, numbers):
    """The states of a function of the language at every token, with C_i for K and b_i for y."""
    program, constants = trace(function, kernel, steps, numbers)
    constants = [c.values if i in program.per_step else c for i, c in enumerate(constants)]

    def solve_token(phi, C, b):
        ones = jnp.ones((len(C), 1), b.dtype)
        arrays = _PrefixArrays(b, ones, phi[None], System(C, phi[None], b))
        return iterates(program, constants, arrays, steps)

    states = dict(zip(program.states, jax.vmap(solve_token, out_axes=1)(phi, C, b), strict=True))
    return [states[name] for name in ("prediction", "alpha", "r", "p")]


class _PrefixArrays(KernelArrays):
    """The arrays of a token, whose ridge may be one for each feature."""

    def number(self, value, part):
        return super().number(value, part).reshape(-1, 1)


@checks.suggest_keywords
def prefix_chebyshev(
    kernel: Kernel,
    task: Task,
    *,
    ridge: float | Float[Array, ""] | Float[Array, " m"],
    steps: int,
    spectrum: tuple | None = None,
    **options: Unpack[PrefixOptions],
) -> CausalTrajectory:
    r"""Solve $(C_i + \lambda I) w_i = b_i$ at every token by the Chebyshev iteration.

    $$w_{t+1} = w_t + d_t, \quad r_{t+1} = r_t - (C_i + \lambda I) d_t, \quad
    d_{t+1} = \mu_t d_t + \eta_t r_{t+1}$$

    The systems are those of `prefix_conjugate_gradient`. All tokens share the coefficients, which
    follow from the bounds $(a, b)$ before the first step. As weights, a step takes one block.

    Args:
        spectrum: bounds (low, high) on the eigenvalues of $C_i + \lambda I$ of every prefix, as
            from `icl_krr.theory.prefix_bounds`. A prefix with fewer supports than features has the
            eigenvalue $\lambda$, so use $a = \lambda$. With strengths <= 1, the largest eigenvalue
            of the whole context is a valid $b$.

    Source: Saad, Iterative methods for sparse linear systems, algorithm 12.1.

    >>> from icl_krr import Linear, Task
    >>> task = Task(x=[[1.0], [1.0]], y=[2.0, 4.0], x_query=[[1.0]])
    >>> path = prefix_chebyshev(Linear(), task, ridge=1.0, steps=1, spectrum=(3.0, 3.0))
    >>> path.prediction[:, 0].tolist()
    [0.0, 2.0]
    """
    checks.ridges(ridge, num_features(kernel, task))
    spec = prefix_spec(kernel, task, steps, options)
    numbers = {"ridge": ridge, "momentum": step_sizes.chebyshev(steps, spectrum)}
    return solve(task, _regress, (steps, descend), causal_trajectory, 1, kernel, spec, numbers)


@readable
@struct.dataclass
class PosteriorTrajectory(Result):
    r"""All iterates of `prefix_posterior`, from iterate 0 to iterate L, at supports and queries.

    Args:
        prediction: means at the queries, [L + 1, q] or [L + 1, q, r].
        along: means at the supports from their prefixes, then at the queries; 0 at masked supports.
        variance: variances of the function at supports and queries, [L + 1, n + q].
        h: coefficients $(C_i + \lambda I)^{-1} \phi_i$, [L + 1, n + q, m].
        r: residual $\phi_i - (C_i + \lambda I) h_i$.
        d: direction.

    >>> import icl_krr as ik
    >>> task = ik.Task(x=[[1.0]], y=[3.0], x_query=[[1.0]])
    >>> ik.solvers.prefix_posterior(ik.Linear(), task, ridge=1.0, steps=1).variance.tolist()
    [[0.0, 0.0], [1.0, 0.5]]
    """

    prediction: Float[Array, "..."]
    along: Float[Array, "..."]
    variance: Float[Array, "L T"]
    h: Float[Array, "L T m"]
    r: Float[Array, "L T m"]
    d: Float[Array, "L T m"]


@checks.suggest_keywords
def prefix_posterior(
    kernel: Kernel,
    task: Task,
    *,
    ridge: float | Float[Array, ""],
    steps: int,
    approximates: Kernel | None = None,
    **options: Unpack[PrefixOptions],
) -> PosteriorTrajectory:
    r"""Solve $(C_i + \lambda I) h_i = \phi_i$ at every token by conjugate gradient from $h = 0$.

    $$f_i = b_i^T h_i, \quad v_i = \lambda \phi_i^T h_i$$

    $C_i$ and $b_i$ are those of `prefix_conjugate_gradient`. After m steps, $f_i$ and $v_i$ are
    mean and variance of Bayesian linear regression on the features, with prior $N(0, I)$ and noise
    variance $\lambda / \beta_j$. In exact arithmetic, more steps never decrease $v_i$; before
    convergence, it is too small by $\lambda r_i^T (C_i + \lambda I)^{-1} r_i \leq |r_i|^2$ with the
    residual $r_i$.

    As weights, a step takes 7 blocks, or 5 in the form "fused". The states are h, r, d [T, m],
    prediction, variance and variance_gap, this bound $|r_i|^2$: look at it before you trust a
    variance. Readouts are `variances`, of a new output with strength 1, ridge included, and
    `variance_gaps`. Rounding delays convergence: if the eigenvalues of $C_i + \lambda I$ differ by
    factors of 100 or more, use 3 m steps, in float64 as well. In float32, a ridge below
    $10^{-5} |\phi|^2$ can make variances wrong and even negative. `icl_krr.check` compares with
    exact regression.

    Args:
        approximates: kernel k that the features approximate, as Nystrom features do; $v_i$ then
            also has the part $k(x, x) - |\phi_i|^2$, which they leave out. Default None.

    Source: Rasmussen and Williams, Gaussian processes for machine learning, 2006, eq. 2.8;
    Quinonero-Candela and Rasmussen, A unifying view of sparse approximate Gaussian process
    regression, 2005, section 5, for `approximates`.

    >>> from icl_krr import Linear, Task
    >>> task = Task(x=[[1.0], [1.0]], y=[2.0, 4.0], x_query=[[1.0]])
    >>> result = prefix_posterior(Linear(), task, ridge=1.0, steps=1)
    >>> result.along[-1].tolist(), [round(float(v), 4) for v in result.variance[-1]]
    ([0.0, 1.0, 2.0], [1.0, 0.5, 0.3333])
    """
    checks.scalar_ridge(ridge)
    if approximates is not None:
        check_kernel(approximates)
    spec = prefix_spec(kernel, task, steps, options)
    return solve_posterior(kernel, task, ridge, approximates, spec, steps)


def solve_posterior(kernel, task, ridge, approximates, spec, steps):
    parts = kernel, spec, ridge, approximates
    return solve(task, posteriors, (steps,), _posterior_trajectory, (1, 0, 0, 0, 0), *parts)


def _posterior_trajectory(task, along, *fields):
    along = like(task.y, along)
    return PosteriorTrajectory(along[:, task.num_supports :], along, *fields)


def posteriors(steps, task, kernel, spec, ridge, approximates):
    phi, C, b = _prefix_systems(task, kernel, spec)
    ridge = jnp.asarray(ridge, phi.dtype)
    paths = _iterate(steps, token_solver(), kernel, phi, C, phi[:, :, None], {"ridge": ridge})
    _, h, r, d = (path[..., 0] for path in paths)
    along = jnp.einsum("tmr,ltm->ltr", b, h, precision="highest")
    missing = jnp.zeros(len(phi), phi.dtype)
    if approximates is not None:
        tokens = make_tokens(task, spec)
        residual_variance = approximates.diagonal(tokens.x) - jnp.sum(phi * phi, axis=1)
        missing = jnp.where(tokens.mask, residual_variance, 0)
    of_features = jnp.einsum("tm,ltm->lt", phi, h, precision="highest")
    variance = missing[None] + ridge * of_features
    return along, variance, h, r, d


def _prefix_systems(
    task: Task, kernel: Kernel, spec: PrefixSpec
) -> tuple[Float[Array, "T m"], Float[Array, "T m m"], Float[Array, "T m r"]]:
    """The features phi_i, C_i = sum_j w_ij phi_j phi_j^T and b_i = sum_j w_ij phi_j y_j.

    The sums of a window are taken anew for every token; others follow a recurrence.
    """
    tokens, n = make_tokens(task, spec), task.num_supports
    phi = jnp.where(tokens.mask[:, None], kernel.feature_map(tokens.x), 0)
    both = jnp.concatenate([phi[:n], tokens.y], axis=1)
    gates = jnp.exp(tokens.log_gate)[:, None, None]

    def step(sums, token):
        gate, beta, phi, each = token
        decayed = gate * sums
        sums = decayed + beta * jnp.outer(phi, each)
        return sums, sums if spec.prefix == "inclusive" else decayed

    if spec.window is None:
        empty = jnp.zeros((phi.shape[1], both.shape[1]), phi.dtype)
        each = gates[:n], tokens.strength, phi[:n], both
        last, along = jax.lax.scan(step, empty, each)
        sums = jnp.concatenate([along, gates[n:] * last[None]])
    else:
        fade, w = decays(tokens, spec), min(spec.window, n)
        last = jax.lax.top_k(jnp.where(fade > 0, jnp.arange(n)[None], -1), w)[0]
        weights = jnp.take_along_axis(fade * tokens.strength[None], last, axis=1)
        keys, values = (jnp.where(last[..., None] < 0, 0, part[last]) for part in (phi, both))
        sums = jnp.einsum("tw,twm,twk->tmk", weights, keys, values, precision="highest")
    C, b = jnp.split(sums, [phi.shape[1]], axis=2)
    return phi, C, jnp.where(tokens.mask[:, None, None], b, 0)
