"""The status of a result: how far rounding, overflow and too few steps moved its predictions."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import jax
import jax.numpy as jnp

from .. import Kernel, Task
from .._core import linalg
from .._core.numerics import matmul
from .._core.rescaling import power_of_two_scale
from .._core.status import DIVERGED, TOLERANCE, Status, assess
from ..tasks._linear_system import System
from ..tasks._task import support_mask
from ._algebra import apply, masked_arrays


def nondifferentiable(function: Callable) -> Any:
    """Decorate a function to stop the gradients of its arguments: a status has no derivatives."""
    return wraps(function)(lambda *args: function(*jax.lax.stop_gradient(args)))


@nondifferentiable
def solution_status(kernel: Kernel, task: Task, parts: System, ridge, alpha, lower) -> Status:
    """The status of a solution by Cholesky."""
    y, alpha, size = rescale(parts.y, alpha)
    prediction = matmul(parts.cross, alpha)
    error = rounding_errors(kernel, task, parts, ridge, alpha, lower)
    residual = y - apply(parts.gram, ridge, alpha)
    # by one step of iterative refinement
    correction = matmul(parts.cross, linalg.substitute(lower, residual))
    scale = output_scale(y, prediction)[None]
    return assess(
        max_error(norm(residual) / nonzero_divisor(norm(y))),
        jnp.maximum(max_error(error / scale), max_error(jnp.abs(correction) / scale)),
        condition_times_eps(parts.gram, ridge),
        y.dtype,
        overflow=_overflows(parts),
        range=out_of_range(parts.y, size, alpha, prediction),
        uneven=uneven(jnp.diagonal(parts.gram)),
    )


def with_variance(status: Status, variance_error: Any, variance: Any, prior: Any) -> Status:
    """The status of mean and variance, from that of the mean and the errors of the variance."""
    errors = jnp.stack([variance_error, -variance, variance - prior])  # v is in [0, k(x, x)]
    error = jnp.maximum(status.error, max_error(errors / nonzero_divisor(prior)[None]))
    return assess(
        status.residual,
        error,
        status.condition_times_eps,
        error.dtype,
        overflow=status.overflow,
        range=status.range,
        negative=jnp.any(variance < 0),
        uneven=status.uneven,
    )


@nondifferentiable
def rounding_errors(kernel: Kernel, task: Task, parts: System, ridge, alpha, lower) -> jax.Array:
    r"""Estimate the rounding errors [q, r] of $k(x)^T \alpha$ with $A = L L^T$ and $A \alpha = y$.

    To first order, the error at $x$ is $h^T \delta A \, \alpha$ with $h = A^{-1} k(x)$, plus that
    of $k(x)$ and the sum. Signs are random, so squares add up. An entry of $\delta A$ has the
    rounding error of the kernel and that of the factorisation, about $u \sqrt{A_{ii} A_{jj}}$.
    """
    gram, cross, y = parts
    unit = jnp.sqrt(jnp.diagonal(gram) + ridge)[:, None]  # entries of A divided by units are <= 1
    scale = max_abs(cross / unit.T, axis=1)
    h, a = (linalg.substitute(lower, cross.T) * unit / scale.T) ** 2, (alpha * unit) ** 2
    x, _ = masked_arrays(task)
    across = jnp.where(support_mask(task)[None], kernel.rounding(task.x_query, x), 0)
    within, across = (kernel.rounding(x, x) / unit / unit.T) ** 2, (across / unit.T / scale) ** 2
    sums = jnp.sum(h, axis=0)[:, None] * jnp.sum(a, axis=0)[None]
    squares = sums + matmul(h.T, matmul(within, a)) + matmul(across, a)
    return jnp.finfo(y.dtype).eps * scale * jnp.sqrt(squares)


_EXTRAPOLATION = 10.0
"""Predictions so many times larger than y are extrapolations."""


@nondifferentiable
def trajectory_status(parts: System, ridge, alpha, r, stuck=False, spectrum=False) -> Status:
    r"""The status of the last iterate, from all alpha [L + 1, n, r] and all residuals r.

    The error at the queries is $k(x)^T A^{-1} r$. If $s = r^T K r / |r|^2$ is the mean eigenvalue
    of $K$ in $r$, the error at the supports is about $|r| s / (s + \lambda)$ and at most $|r|$, and
    $|k(x)^T r| / \lambda$ is mostly above the error at x. The estimate is 6 times the geometric
    mean of the first and the smaller of the others, and at most twice the last: above 0.01 for all
    of 2794 random results in float32 that are wrong by as much, and for 35 of the 1337 that are
    right to 0.001. If r is `stuck`, because it keeps what K takes to 0, $s$ tells nothing, and the
    estimate is $|k(x)^T r| / \lambda$. At a query so far out that $|f|$ is 10 times $|y|$, $k(x)$
    is one large number, and r may be small just there: then the last is at least $|r|$.
    """
    gram, cross, _ = parts
    y, alpha_last, size = rescale(parts.y, alpha[-1])
    residual = y - apply(gram, ridge, alpha_last)
    prediction = matmul(cross, alpha_last)
    share, eps = norm(residual) / nonzero_divisor(norm(y)), jnp.finfo(y.dtype).eps
    # what rounding hides in the products with r may be there
    rounding = eps * _mean_eigenvalue(jnp.abs(residual), matmul(jnp.abs(gram), jnp.abs(residual)))
    mean = _mean_eigenvalue(residual, matmul(gram, residual)) + rounding
    query_error = jnp.abs(matmul(cross, residual)) + eps * matmul(jnp.abs(cross), jnp.abs(residual))
    scale = output_scale(y, prediction)
    bound = max_error(query_error, axis=0) / scale / ridge
    extrapolates = scale > _EXTRAPOLATION * max_abs(y, axis=0)[0]
    bound = jnp.where(extrapolates, jnp.maximum(bound, share), bound)
    error = 6 * jnp.sqrt(share * mean / (mean + ridge) * jnp.minimum(share, bound))
    error = jnp.where(stuck, bound, jnp.minimum(error, 2 * bound))
    rounded = norm(matmul(jnp.abs(gram), jnp.abs(alpha_last))) / nonzero_divisor(norm(y))
    half = norm(r[(len(r) - 1) // 2] / size) / nonzero_divisor(norm(y))
    return assess(
        max_error(share),
        max_error(error + eps * rounded),
        condition_times_eps(gram, ridge),
        y.dtype,
        overflow=_overflows(parts),
        range=out_of_range(parts.y, size, alpha_last, prediction),
        falling=jnp.any(share < 0.9 * half),
        uneven=uneven(jnp.diagonal(gram)),
        steps=len(alpha) - 1,
        spectrum=spectrum,
    )


def measured_status(
    best: Status, parts: System, residual, error, *results: Any, any_size=False, **flags: Any
) -> Status:
    """The status of results that were compared with the `best` solution, of a wider dtype.

    If results are right for y of `any_size`, its size is not to blame for a large error.
    """
    y, wide = parts.y, best.condition_times_eps.dtype
    out = out_of_range(y, jnp.ones((), y.dtype), *results)
    return assess(
        residual,
        error,
        best.condition_times_eps / jnp.finfo(wide).eps * float(jnp.finfo(y.dtype).eps),
        y.dtype,
        uncertain=best.error,
        overflow=_overflows(parts),
        range=out if any_size else out | (~(error <= TOLERANCE) & extreme(y, y.dtype)),
        uneven=best.uneven,
        **flags,
    )


def recurrence_status(task: Task, along: Any) -> Status:
    """The status of a rule that learns from the supports one by one, from its predictions [T, r].

    A rule that solves no regression has no residual and no distance to its solution. Its error
    is the unit of rounding times the growth of the predictions: rounding errors that grow and are
    then forgotten are not in it.
    """
    task, along = jax.lax.stop_gradient((task, along))
    y, n = masked_arrays(task)[1], task.num_supports
    along = along.reshape(len(along), -1)
    growth = max_error(jnp.abs(along[:n]) / max_abs(y, axis=0))
    grows = ~(growth <= DIVERGED)
    error = jnp.where(grows, jnp.inf, jnp.finfo(y.dtype).eps * jnp.maximum(growth, 1))
    out = out_of_range(y, jnp.ones((), y.dtype), along)
    return assess(jnp.inf, error, 0.0, y.dtype, range=out & ~grows, grows=grows)


def _mean_eigenvalue(r: jax.Array, Kr: jax.Array) -> jax.Array:
    """The mean r.Kr / r.r of the eigenvalues of K in r, of every output; at least 0."""
    unit = r / nonzero_divisor(norm(r))[None]
    return jnp.maximum(jnp.sum(unit * Kr, axis=0) / nonzero_divisor(norm(r)), 0)


def rescale(y: jax.Array, alpha: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Divide y and alpha by the power of two that makes y of order 1, and return the power."""
    size = power_of_two_scale(y, axis=0)[None]
    return y / size, alpha / size, size


def norm(values: jax.Array) -> jax.Array:
    return jnp.sqrt(jnp.sum(values * values, axis=-2))


def nonzero_divisor(values: jax.Array) -> jax.Array:
    """The values as divisors: 1 where they are 0."""
    return jnp.where(values == 0, 1, values)


def max_error(errors: jax.Array, axis: int | None = None) -> jax.Array:
    """The largest error, at least 0. A NaN counts as infinite: maxima of XLA can lose it."""
    return jnp.max(jnp.where(jnp.isnan(errors), jnp.inf, errors), axis=axis, initial=0)


def max_abs(values: jax.Array, axis: int) -> jax.Array:
    """The largest magnitude along an axis, which is kept; 1 if all values are 0."""
    return nonzero_divisor(jnp.max(jnp.abs(values), axis=axis, keepdims=True, initial=0))


def output_scale(y: jax.Array, prediction: jax.Array) -> jax.Array:
    """The larger of the largest |y| and the largest |f| of every output; 1 if both are 0."""
    sizes = (jnp.max(jnp.abs(part), axis=0, initial=0) for part in (y, prediction.astype(y.dtype)))
    return nonzero_divisor(jnp.maximum(*sizes))


def relative_errors(predictions: jax.Array, optimum: jax.Array, y: jax.Array) -> jax.Array:
    """The `Status.error` of each of the predictions [t, q, r], whose exact values are [q, r]."""
    errors = max_error(jnp.abs(predictions - optimum[None]), axis=1)
    return max_error(errors / output_scale(y, optimum)[None], axis=1)


def condition_times_eps(gram: jax.Array, ridge: Any) -> jax.Array:
    """An upper bound on the condition number of A, times machine epsilon, by Gershgorin."""
    around, on = jnp.sum(jnp.abs(gram), axis=1), jnp.diagonal(gram)
    low = jnp.maximum(jnp.min(2 * on - around), 0) + ridge
    return (jnp.max(around) + ridge) / low * jnp.finfo(gram.dtype).eps


def uneven(on: jax.Array) -> jax.Array:
    """Whether some k(x, x) is more than twice another one; those of masked supports are 0."""
    return jnp.max(on, initial=0) > 2 * jnp.min(on, where=on > 0, initial=jnp.inf)


def _overflows(parts: System) -> jax.Array:
    return ~(_all_finite(parts.gram) & _all_finite(parts.cross))


def _all_finite(values: jax.Array) -> jax.Array:
    return jnp.all(jnp.isfinite(values))


def out_of_range(y: jax.Array, size: jax.Array, *results: jax.Array) -> jax.Array:
    """Whether y is too small for the dtype, or results of order 1 times `size` overflow.

    Results that are not finite for a y of moderate size come from a solver that diverges.
    """
    bits = jax.lax.bitcast_convert_type(y, f"uint{8 * y.dtype.itemsize}")
    # comparisons take subnormal numbers for 0, also those that the compiler makes of `bits != 0`
    nonzero = jnp.max(bits << 1, axis=0) > 0
    low = nonzero & (jnp.max(jnp.abs(y), axis=0) < 100 * jnp.finfo(y.dtype).tiny)
    is_extreme = extreme(y, y.dtype)
    high = [~_all_finite(size * f) & (_all_finite(f) | is_extreme) for f in results]
    return jnp.any(low) | jnp.any(jnp.stack(high))


def extreme(y: jax.Array, dtype: Any) -> jax.Array:
    """Whether y is so large or small that squares of y leave the range of the dtype."""
    magnitude, info = jnp.max(jnp.abs(y), axis=0), jnp.finfo(dtype)
    tiny, top, eps = float(info.tiny), float(info.max), float(info.eps)
    low, high = tiny**0.5 / eps, (top * eps) ** 0.5
    return jnp.any((magnitude > 0) & ((magnitude < low) | (magnitude > high)))
