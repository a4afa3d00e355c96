"""Results of the solvers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float

from .. import Status, Task
from .._core.readable import readable
from ._accuracy import recurrence_status
from ._algebra import like


class Result:
    """A pytree that unpacks like a tuple of its fields; others and status are not among them."""

    def __iter__(self) -> Iterator[Any]:
        names = [field.name for field in dataclasses.fields(self)]  # pyright: ignore[reportArgumentType]
        return iter([getattr(self, name) for name in names if name not in ("others", "status")])


@readable
@struct.dataclass
class Solution(Result):
    r"""Exact kernel ridge regression: $\alpha = (K + \lambda I)^{-1} y$ and its predictions.

    Args:
        alpha: coefficients $\alpha$, [n] or [n, r] like y.
        prediction: predictions at the queries, [q] or [q, r].
        status: a `Status`, which says how far rounding errors moved the predictions.

    >>> import icl_krr as ik
    >>> task = ik.Task(x=[[1.0]], y=[3.0], x_query=[[1.0]])
    >>> result = ik.solvers.exact(ik.Linear(), task, ridge=2.0)
    >>> alpha, prediction = result
    >>> round(float(prediction[0]), 4), bool(result.status.ok)
    (1.0, True)
    """

    alpha: Float[Array, "..."]
    prediction: Float[Array, "..."]
    status: Status

    @property
    def residual(self) -> Float[Array, ""]:
        r"""The relative residual $|y - (K + \lambda I) \alpha| / |y|$."""
        return self.status.residual


@readable
@struct.dataclass
class Trajectory(Result):
    r"""All iterates of a solver, from iterate 0 to iterate L = steps.

    Args:
        alpha: coefficients, [L + 1, n] or [L + 1, n, r], or None for a solver without.
        r: residual $r = y - (K + \lambda I) \alpha$, of that shape.
        p: search direction, of that shape, or None for a solver without.
        prediction: predictions at the queries, [L + 1, q] or [L + 1, q, r].
        others: {name: iterates} of other states, at the supports; scalars are [L + 1, 1] or
            [L + 1, 1, r].
        status: a `Status` of the last iterate; default None, not known.

    >>> import icl_krr as ik
    >>> task = ik.Task(x=[[1.0]], y=[3.0], x_query=[[1.0]])
    >>> result = ik.solvers.richardson(ik.Gaussian(), task, ridge=2.0, steps=1)
    >>> alpha, r, p, prediction = result
    >>> prediction[:, 0].tolist(), bool(result.status.ok)
    ([0.0, 1.0], True)
    """

    alpha: Float[Array, "..."] | None
    r: Float[Array, "..."]
    p: Float[Array, "..."] | None
    prediction: Float[Array, "..."]
    others: dict[str, Array] = struct.field(default_factory=dict)
    status: Status | None = None

    def __getitem__(self, state: str) -> Array:
        """Return all iterates of a state, by name."""
        return self.others[state] if state in self.others else getattr(self, state)


@readable
@struct.dataclass
class CausalTrajectory(Result):
    r"""All iterates of a causal solver, from iterate 0 to iterate L, at all supports and queries.

    Fields that a solver does not have are None: delta rules have alpha, solvers of the features w,
    r and d.

    Args:
        prediction: predictions at the queries, [L + 1, q] or [L + 1, q, r].
        along: predictions at the supports from their prefixes, then at the queries, [L + 1, n + q]
            or [L + 1, n + q, r]; 0 at masked supports.
        alpha: coefficients of the supports, [L + 1, n] or [L + 1, n, r].
        w: coefficients of the features at supports and queries [L + 1, n + q, r m]; the m
            coefficients of an output are side by side.
        r: residual $b_i - (C_i + \lambda I) w_i$, with the shape of w.
        d: direction, with the shape of w.
        status: a `Status` of a delta rule, which says whether it diverges on this task.

    >>> import icl_krr as ik
    >>> task = ik.Task(x=[[1.0]], y=[3.0], x_query=[[1.0]])
    >>> ik.solvers.delta_rule(ik.Linear(), task, step_size=1.0).prediction.tolist()
    [[0.0], [3.0]]
    """

    prediction: Float[Array, "..."]
    along: Float[Array, "..."]
    alpha: Float[Array, "..."] | None = None
    w: Float[Array, "..."] | None = None
    r: Float[Array, "..."] | None = None
    d: Float[Array, "..."] | None = None
    status: Status | None = None


def causal_trajectory(task: Task, along: Array, w: Array, r: Array, d: Array) -> CausalTrajectory:
    """The result from the predictions [L + 1, T, r] and from w, r, d [L + 1, T, m, r]."""
    along = like(task.y, along)
    w, r, d = (jnp.swapaxes(v, 2, 3).reshape(*v.shape[:2], -1) for v in (w, r, d))
    return CausalTrajectory(along[:, task.num_supports :], along, None, w, r, d)


def recurrent(task: Task, alpha: Array, along: Array) -> CausalTrajectory:
    """The result of a delta rule, from alpha [L + 1, n, r] and the predictions [L + 1, T, r]."""
    status = recurrence_status(task, along[-1])
    alpha, along = like(task.y, alpha), like(task.y, along)
    return CausalTrajectory(along[:, task.num_supports :], along, alpha, status=status)


@readable
class Smoothing(NamedTuple):
    """The predictions of a linear smoother [q] or [q, r], and the weights [q, n] of y in them."""

    prediction: Float[Array, "..."]
    weights: Float[Array, "q n"]


@readable
@struct.dataclass
class Posterior(Result):
    """Posterior of a Gaussian process at the queries.

    Args:
        mean: posterior mean, [q] or [q, r].
        variance: posterior variance of the function value [q], the same for all outputs. It is not
            clipped: `status.negative` says whether a value is below 0.
        status: a `Status` of mean and variance.

    >>> import icl_krr as ik
    >>> task = ik.Task(x=[[1.0]], y=[3.0], x_query=[[1.0]])
    >>> mean, variance = ik.solvers.posterior(ik.Linear(), task, ridge=2.0)
    >>> round(float(mean[0]), 4), round(float(variance[0]), 4)
    (1.0, 0.6667)
    """

    mean: Float[Array, "..."]
    variance: Float[Array, " q"]
    status: Status
