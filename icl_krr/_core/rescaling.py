"""Functions that are homogeneous in y, evaluated at a y of order 1 and rescaled to its size."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

_ORDINARY = 2.0**20
"""Numbers between 1 / ORDINARY and ORDINARY are as good as those of order 1."""


def power_of_two_scale(y: jax.Array, axis: int | None = None) -> jax.Array:
    """Return the largest power of two that is at most max |y|, or 1 if max |y| is ordinary or 0.

    The division of y by its scale is exact, except that numbers below 1e-38 scales become 0. The
    scale has no derivative. A y that is not finite has the scale 1.

    >>> power_of_two_scale(jnp.array([[1e-9, 3.0], [0.0, 5e9]]), axis=0).tolist()
    [9.313225746154785e-10, 4294967296.0]
    """
    size = jnp.max(jnp.abs(jax.lax.stop_gradient(y)), axis=axis, initial=0)
    info = jnp.finfo(y.dtype)
    extreme = jnp.isfinite(size) & (size > 0) & ((size < 1 / _ORDINARY) | (size > _ORDINARY))
    size = jnp.clip(size, info.tiny, 1 / info.tiny)  # or the reciprocal rounds to 0
    bits = jax.lax.bitcast_convert_type(size, f"uint{info.bits}")
    power = jax.lax.bitcast_convert_type(bits >> info.nmant << info.nmant, y.dtype)
    return jnp.where(extreme, power, 1)


def rescaled(scale: jax.Array, function: Callable, homogeneity: Any, y: jax.Array, *others) -> Any:
    r"""Return function(y, *others), evaluated at y / scale.

    A result of degree d has $f(c y, w) = c^d f(y, w)$ for c > 0, hence $f(y, w) = s^d f(y / s, w)$.
    The derivative is $s^{d-1} Df(y / s, w)[dy, s \, dw]$, so that the numbers inside are of order 1
    for any size of y; that of results of degree 0 is without $s$. The scale is a scalar, or [r] for
    the last axis of y and of the results. The degrees (`homogeneity`) are a prefix of the results.
    The function closes over no traced arrays.

    >>> f = lambda y, w: (w * y, y * y)
    >>> y = jnp.array(1e30)
    >>> jax.grad(lambda y: rescaled(power_of_two_scale(y), f, (1, 2), y, 3.0)[0])(y).tolist()
    3.0
    """

    @jax.custom_jvp
    def run(scale: jax.Array, y: jax.Array, others: Any) -> Any:
        return rescale_results(scale, homogeneity, function(times_power(y, scale, -1), *others))

    @partial(run.defjvp, symbolic_zeros=True)
    def run_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
        (scale, y, others), (_, dy, d_others) = primals, tangents
        return rescaled_jvp(scale, function, homogeneity, (y, *others), (dy, *d_others))

    return run(scale, y, others)


def rescaled_jvp(
    scale: jax.Array, function: Callable, homogeneity: Any, primals: tuple, tangents: tuple
) -> tuple[Any, Any]:
    """The results of `rescaled`, and their derivatives along tangents that may be symbolic zeros.

    The first of the primals is y, whose scale is `scale`.
    """
    y, *others = primals
    leaves, structure = jax.tree.flatten((times_power(y, scale, -1), *others))
    d_leaves = jax.tree.leaves(tangents, is_leaf=_is_zero)
    active = [i for i, tangent in enumerate(d_leaves) if not _is_zero(tangent)]

    def select_results(positive: bool, *values: jax.Array) -> Any:
        """The results of positive degree, or the others, for new values of active leaves."""
        new_leaves = list(leaves)
        for i, value in zip(active, values, strict=True):
            new_leaves[i] = value
        return jax.tree.map(
            lambda d, part: part if (d > 0) == positive else None,
            homogeneity,
            function(*structure.unflatten(new_leaves)),
        )

    pairs = {}
    for positive in {d > 0 for d in jax.tree.leaves(homogeneity)}:
        # the results of all outputs depend on the other arguments, so these have one scale
        shared = jnp.max(scale) if positive else jnp.ones((), scale.dtype)
        along = [times_power(d_leaves[i], shared / scale if i == 0 else shared) for i in active]
        at = [leaves[i] for i in active]
        results, slopes = jax.jvp(partial(select_results, positive), at, along)
        slopes = rescale_results(scale, homogeneity, slopes, shared)
        pairs[positive] = rescale_results(scale, homogeneity, results), slopes
    results, slopes = zip(*pairs.values(), strict=True)

    def pick(degree: int, *parts: Any) -> Any:
        return dict(zip(pairs, parts, strict=True))[degree > 0]

    return jax.tree.map(pick, homogeneity, *results), jax.tree.map(pick, homogeneity, *slopes)


def _is_zero(tangent: Any) -> bool:
    return isinstance(tangent, SymbolicZero)


def rescale_results(scale: jax.Array, homogeneity: Any, results: Any, shared: Any = None) -> Any:
    """The results s^d f, divided by the scale `shared` if it is not None."""

    def rescale(degree: int, part: Any) -> Any:
        if shared is None:
            return jax.tree.map(lambda value: times_power(value, scale, degree), part)
        by, degree = (scale / shared, degree - 1) if degree > 0 else (1 / shared, degree)
        return jax.tree.map(lambda value: times_power(times_power(value, by), scale, degree), part)

    return jax.tree.map(rescale, homogeneity, results)


def times_power(value: jax.Array, scale: jax.Array, power: int = 1) -> jax.Array:
    """The value times scale^power, one factor at a time: 0 stays 0."""
    factor = scale if power > 0 else 1 / scale
    factor = factor.reshape((1,) * (value.ndim - factor.ndim) + factor.shape).astype(value.dtype)
    for _ in range(abs(power)):
        value = value * factor
    return value
