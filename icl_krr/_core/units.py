"""Functions that are homogeneous in y, computed at a y of order 1 and given back in its units."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

ORDINARY = 2.0**20
"""Numbers between 1 / ORDINARY and ORDINARY are as good as those of order 1."""


def unit_of(y: jax.Array, axis: int | None = None) -> jax.Array:
    """Return the largest power of two that is at most max |y|, or 1 if max |y| is ordinary or 0.

    The division of y by its unit is exact, except that numbers below 1e-38 units become 0. The unit
    has no derivative. A y that is not finite has the unit 1.

    >>> unit_of(jnp.array([[1e-9, 3.0], [0.0, 5e9]]), axis=0).tolist()
    [9.313225746154785e-10, 4294967296.0]
    """
    size = jnp.max(jnp.abs(jax.lax.stop_gradient(y)), axis=axis, initial=0)
    info = jnp.finfo(y.dtype)
    extreme = jnp.isfinite(size) & (size > 0) & ((size < 1 / ORDINARY) | (size > ORDINARY))
    size = jnp.clip(size, info.tiny, 1 / info.tiny)  # or the reciprocal rounds to 0
    bits = jax.lax.bitcast_convert_type(size, f"uint{info.bits}")
    power = jax.lax.bitcast_convert_type(bits >> info.nmant << info.nmant, y.dtype)
    return jnp.where(extreme, power, 1)


def in_units(unit: jax.Array, function: Callable, degrees: Any, y: jax.Array, *others: Any) -> Any:
    r"""Return function(y, *others), computed at y / unit.

    A result of degree d has $f(c y, w) = c^d f(y, w)$ for c > 0, hence $f(y, w) = u^d f(y / u, w)$.
    The derivative is $u^{d-1} Df(y / u, w)[dy, u \, dw]$, so that the numbers inside are of order 1
    for any size of y; that of results of degree 0 is without $u$. The unit is a scalar, or [r] for
    the last axis of y and of the results; `degrees` is a prefix of the results; the function closes
    over no traced arrays.

    >>> f = lambda y, w: (w * y, y * y)
    >>> y = jnp.array(1e30)
    >>> jax.grad(lambda y: in_units(unit_of(y), f, (1, 2), y, 3.0)[0])(y).tolist()
    3.0
    """

    @jax.custom_jvp
    def run(unit: jax.Array, y: jax.Array, others: Any) -> Any:
        return in_units_plainly(unit, function, degrees, y, *others)

    @partial(run.defjvp, symbolic_zeros=True)
    def run_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
        (unit, y, others), (_, dy, changes) = primals, tangents
        given, structure = jax.tree.flatten((times(y, unit, -1), others))
        changes = [dy, *jax.tree.leaves(changes, is_leaf=is_zero)]
        moving = [i for i, change in enumerate(changes) if not is_zero(change)]

        def of_moving(grows: bool, *values: jax.Array) -> Any:
            every = list(given)
            for i, value in zip(moving, values, strict=True):
                every[i] = value
            y, others = structure.unflatten(every)
            only = lambda d, part: part if (d > 0) == grows else None  # noqa: E731
            return jax.tree.map(only, degrees, function(y, *others))

        pairs = {}
        for grows in {d > 0 for d in jax.tree.leaves(degrees)}:
            # the results of all outputs depend on the other arguments, so these have one unit
            shared = jnp.max(unit) if grows else jnp.ones((), unit.dtype)
            along = [times(changes[i], shared / unit if i == 0 else shared) for i in moving]
            at = [given[i] for i in moving]
            results, slopes = jax.jvp(partial(of_moving, grows), at, along)
            back = from_units(unit, degrees, slopes, shared)
            pairs[grows] = from_units(unit, degrees, results), back
        pick = lambda d, *parts: dict(zip(pairs, parts, strict=True))[d > 0]  # noqa: E731
        results, slopes = zip(*pairs.values(), strict=True)
        return jax.tree.map(pick, degrees, *results), jax.tree.map(pick, degrees, *slopes)

    return run(unit, y, others)


def in_units_plainly(
    unit: jax.Array, function: Callable, degrees: Any, y: jax.Array, *others: Any
) -> Any:
    """What `in_units` returns; the function may close over anything, derivatives can overflow."""
    return from_units(unit, degrees, function(times(y, unit, -1), *others))


def is_zero(change: Any) -> bool:
    return isinstance(change, SymbolicZero)


def from_units(unit: jax.Array, degrees: Any, results: Any, shared: Any = None) -> Any:
    """The results u^d f, divided by the unit `shared` if it is given."""

    def rescale(degree: int, part: Any) -> Any:
        if shared is None:
            return jax.tree.map(lambda value: times(value, unit, degree), part)
        by, degree = (unit / shared, degree - 1) if degree > 0 else (1 / shared, degree)
        return jax.tree.map(lambda value: times(times(value, by), unit, degree), part)

    return jax.tree.map(rescale, degrees, results)


def times(value: jax.Array, unit: jax.Array, power: int = 1) -> jax.Array:
    """The value times u^power, one factor at a time: 0 stays 0."""
    factor = unit if power > 0 else 1 / unit
    factor = factor.reshape((1,) * (value.ndim - factor.ndim) + factor.shape).astype(value.dtype)
    for _ in range(abs(power)):
        value = value * factor
    return value
