"""Newton-Schulz iteration for the inverse covariance of the features."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax.numpy as jnp

from .._core import linalg, step_sizes
from .._core.numerics import matmul
from .._core.status import Status, assess
from . import _accuracy
from ._language.trace import per_step
from ._run import KernelArrays, Solver


def covariance(x: Any, ridge: Any) -> Any:
    return matmul(x.T, x) + ridge * jnp.eye(x.shape[1], dtype=x.dtype)


@_accuracy.nondifferentiable
def _inverse_status(arrays: KernelArrays, ridge, states: Mapping, stuck, spectrum) -> Status:
    r"""The status of the last iterate: its distance from the weights that Cholesky finds.

    The error of these at $x$ is $h^T (\delta b - \delta C w)$ with $h = C^{-1} x$. An entry of
    $\delta C$ is at most about $u \sqrt{C_{ii} C_{jj}}$ and one of $\delta b$ about
    $u \sqrt{C_{ii}} |y|$. The residual does not tell it: divided by a small ridge, rounding errors
    of $y - f$ fill directions of large eigenvalues.
    """
    (x, at), outputs = arrays.features, arrays.y
    r, f = states["r"], states["prediction"][-1]
    y, alpha, size = _accuracy.rescale(outputs, states["alpha"][-1])
    C = covariance(x, ridge)
    trace, unit = jnp.sum(x * x), jnp.sqrt(jnp.diagonal(C))[:, None]
    query_scale = _accuracy.max_abs(at / unit.T, axis=1)
    right = jnp.concatenate([matmul(x.T, y), (at / query_scale).T], axis=1)
    solution = linalg.solve(C, right)
    best, h = solution[:, : y.shape[1]], solution[:, y.shape[1] :]
    magnitude = jnp.sqrt(_accuracy.norm(y) ** 2 + _accuracy.norm(best * unit) ** 2)
    eps = jnp.finfo(y.dtype).eps
    rounded = eps * query_scale * _accuracy.norm(h * unit)[:, None] * magnitude[None]
    scale = _accuracy.output_scale(y, f / size)[None]
    divisor = _accuracy.nonzero_divisor(_accuracy.norm(y))
    share, half = (_accuracy.norm(r[i] / size) / divisor for i in (-1, (len(r) - 1) // 2))
    return assess(
        _accuracy.max_error(share),
        _accuracy.max_error((jnp.abs(f / size - matmul(at, best)) + rounded) / scale),
        (trace + ridge) / ridge * jnp.finfo(y.dtype).eps,
        y.dtype,
        overflow=~jnp.isfinite(trace),
        range=_accuracy.out_of_range(outputs, size, alpha, f / size),
        falling=jnp.any(share < 0.9 * half),
        uneven=_accuracy.uneven(jnp.sum(x * x, axis=1)),
        steps=len(r) - 1,
        spectrum=spectrum,
    )


@partial(Solver, status=_inverse_status)
def newton_schulz(K, y, *, ridge, steps, spectrum=None):
    r"""Invert the covariance of the features, $C = X^T X + \lambda I$ [p, p], by Newton's method.

    $$V_{t+1} = V_t (2I - C V_t), \quad f_t(x) = x^T V_t X^T y, \quad
    \alpha_t = (y - f_t) / \lambda$$

    The rows of $X$ are the features of the supports; in $\alpha_t$, $f_t$ is evaluated at the
    supports. The iteration starts from $V_0 = 2 I / (a + b)$. Each step squares the error
    $I - C V_t$.

    Source: Schulz, Iterative Berechnung der reziproken Matrix, 1933.

    >>> from icl_krr import Linear, Task
    >>> task = Task(x=[[1.0]], y=[3.0], x_query=[[1.0]])
    >>> path = newton_schulz(Linear(), task, ridge=2.0, steps=1, spectrum=(3.0, 3.0))
    >>> path.prediction[:, 0].round(6).tolist()
    [1.0, 1.0]
    """
    scale, e = step_sizes.newton_schulz(steps, ridge, spectrum)
    e, x = per_step(e), K.features
    v = scale * x

    def predict(v):
        prediction = K.inner(v, x) @ y
        return dict(alpha=(y - prediction) / ridge, prediction=prediction)

    def step(v, a, alpha, prediction):
        v = v + e * v - K.inner(v, x) @ a
        return dict(v=v, a=2 * e * a - K.inner(a, x) @ a, **predict(v))

    return dict(v=v, a=v, **predict(v)), step
