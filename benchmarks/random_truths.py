"""Kernel ridge regression of a random task, and what follows, in as many digits as needed.

All numbers of a task are arrays of `mpmath` until the end, where they are rounded to float64.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np

import icl_krr as ik

LARGEST_SPREAD = 650
"""Decimal digits that a kernel matrix may span: float64 spans 616, beyond this nothing is right."""

RIDGES = (1, 100)
"""Ridges of the candidates of an average, in units of the ridge of the task."""


@dataclasses.dataclass(frozen=True)
class Case:
    """One task with its ridge and bandwidth, in float32 or float64."""

    task: ik.Task
    ridge: np.floating
    bandwidth: np.floating


exp: Callable[[Any], np.ndarray] = np.frompyfunc(mpmath.exp, 1, 1)
exact: Callable[[Any], np.ndarray] = np.frompyfunc(lambda v: mpmath.mpf(float(v)), 1, 1)


def numbers(values: Any) -> np.ndarray:
    """The values as numbers of mpmath, without rounding."""
    return exact(np.asarray(values, object))


@dataclasses.dataclass(frozen=True)
class Kernel:
    """Values and derivatives of a kernel at all pairs of points a [n, p] and b [m, p].

    The logarithm of the kernel, or the linear kernel itself, is a number c times <a, b> or
    |a - b|^2, and c is a power of the bandwidth.
    """

    differences: bool
    logarithm: bool
    factor: Callable[[Any], Any]
    slope: Callable[[Any], Any]

    def measure(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        if self.differences:
            apart = a[:, None] - b[None]
            return np.sum(apart * apart, axis=2)
        return np.sum(a[:, None] * b[None], axis=2)

    def values(self, a: np.ndarray, b: np.ndarray, bandwidth: Any) -> np.ndarray:
        inside = self.factor(bandwidth) * self.measure(a, b)
        return exp(inside) if self.logarithm else inside

    def outer(self, a: np.ndarray, b: np.ndarray, bandwidth: Any) -> np.ndarray:
        """The derivative of k(a, b) by its measure."""
        ones = self.values(a, b, bandwidth) if self.logarithm else 1 + 0 * self.measure(a, b)
        return self.factor(bandwidth) * ones

    def in_first(self, a: np.ndarray, b: np.ndarray, bandwidth: Any) -> np.ndarray:
        """The derivatives [n, m, p] by the first point."""
        inner = 2 * (a[:, None] - b[None]) if self.differences else b[None] + 0 * a[:, None]
        return self.outer(a, b, bandwidth)[..., None] * inner

    def in_projection(self, a: np.ndarray, b: np.ndarray, bandwidth: Any) -> np.ndarray:
        """The derivatives [n, m, p, p] by a matrix U before both points, at U = I."""
        if self.differences:
            apart = a[:, None] - b[None]
            inner = 2 * apart[..., :, None] * apart[..., None, :]
        else:
            one = a[:, None, :, None] * b[None, :, None, :]
            inner = one + np.swapaxes(one, 2, 3)
        return self.outer(a, b, bandwidth)[..., None, None] * inner

    def in_bandwidth(self, a: np.ndarray, b: np.ndarray, bandwidth: Any) -> np.ndarray:
        share = self.slope(bandwidth) / self.factor(bandwidth)
        return share * self.outer(a, b, bandwidth) * self.measure(a, b)


KERNELS: dict[str, tuple[Callable[[Any], ik.Kernel], Kernel]] = {
    "linear": (lambda bandwidth: ik.Linear(), Kernel(False, False, lambda b: 1, lambda b: 0)),
    "exponential": (ik.Exponential, Kernel(False, True, lambda b: 1 / b, lambda b: -1 / b**2)),
    "gaussian": (ik.Gaussian, Kernel(True, True, lambda b: -1 / (2 * b * b), lambda b: 1 / b**3)),
}


def truths(name: str, case: Case) -> dict[str, Any]:
    """The exact results by name: arrays, or tuples of an array and the scale of its errors.

    A lower bound has the least value that is right, too.

    Results of a regression are missing if its matrix spans too many digits.
    """
    mpmath.mp.dps, kernel, task = 60, KERNELS[name][1], case.task
    keep = np.asarray(task.mask)
    x, y, at = (numbers(v) for v in (task.x[keep], task.y[keep], task.x_query))
    ridge, bandwidth = (mpmath.mpf(float(v)) for v in (case.ridge, case.bandwidth))
    size = np.max(np.abs(np.asarray(task.y[keep], float)), initial=0.0)
    on = [kernel.values(point[None], point[None], bandwidth)[0, 0] for point in x]
    spread = mpmath.log10(max([ridge, *on]) / ridge)
    found: dict[str, Any] = {}
    if spread <= LARGEST_SPREAD:
        mpmath.mp.dps = 60 + int(2 * spread)
        found = regression(kernel, x, y, at, ridge, bandwidth, keep)
        mean = rounded(found["mean"])
        found["prediction"] = mean, np.maximum(size, np.max(np.abs(mean), initial=0.0))
    if kernel.logarithm:
        mpmath.mp.dps = 60
        found |= smoothed(kernel, x, y, at, bandwidth, keep)
    return {key: v if isinstance(v, tuple) else rounded(v) for key, v in found.items()}


def rounded(values: Any) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.asarray(np.frompyfunc(float, 1, 1)(np.asarray(values, object)), np.float64)


def spread_out(values: np.ndarray, keep: np.ndarray, axis: int) -> np.ndarray:
    """Results of the supports that count, with zeros at masked supports."""
    shape = (*values.shape[:axis], len(keep), *values.shape[axis + 1 :])
    whole = np.full(shape, mpmath.mpf(0), object)
    whole[(slice(None),) * axis + (keep,)] = values
    return whole


def inverse(A: np.ndarray) -> tuple[np.ndarray, Any]:
    """A^-1 and log det A by the elimination of Gauss and Jordan."""
    n, log = len(A), mpmath.mpf(0)
    both = np.concatenate([A, numbers(np.eye(n))], axis=1)
    for i in range(n):
        log += mpmath.log(both[i, i])
        both[i] /= both[i, i]
        others = both[:, i].copy()
        others[i] = mpmath.mpf(0)
        both -= others[:, None] * both[i][None]
    return both[:, n:], log


def evidence(A_inverse: np.ndarray, log: Any, y: np.ndarray) -> Any:
    return -(y @ A_inverse @ y + log + len(y) * mpmath.log(2 * mpmath.pi)) / 2 if len(y) else 0


def regression(
    kernel: Kernel, x: np.ndarray, y: np.ndarray, at: np.ndarray, ridge: Any, b: Any, keep: Any
) -> dict[str, Any]:
    """Everything that follows from A^-1."""
    eye = numbers(np.eye(len(x)))
    K, cross = kernel.values(x, x, b), kernel.values(at, x, b)
    inverses = [inverse(K + share * ridge * eye) for share in RIDGES]
    (A_inverse, _), hats = inverses[0], [cross @ one for one, _ in inverses]
    alpha, hat, diagonal = A_inverse @ y, hats[0], np.diagonal(A_inverse)
    prior = np.array([kernel.values(p[None], p[None], b)[0, 0] for p in at], object)
    over_x = np.einsum("nqp,n->qnp", kernel.in_first(x, at, b), alpha)
    gram = kernel.in_first(x, x, b)
    over_x = over_x - np.einsum("qj,jmp,m->qjp", hat, gram, alpha)
    over_x = over_x - np.einsum("qm,jmp,j->qjp", hat, gram, alpha)
    over_q = np.einsum("qnp,n->qp", kernel.in_first(at, x, b), alpha)
    over_U = np.einsum("qndp,n->qdp", kernel.in_projection(at, x, b), alpha)
    over_U = over_U - np.einsum("qm,mndp,n->qdp", hat, kernel.in_projection(x, x, b), alpha)
    over_b = (kernel.in_bandwidth(at, x, b) - hat @ kernel.in_bandwidth(x, x, b)) @ alpha
    evidences = [evidence(*one, y) for one in inverses]
    odds = exp(np.array(evidences, object) - max(evidences))
    weights, means = odds / np.sum(odds), [one @ y for one in hats]
    average, scale = weights @ np.stack(means), np.max(np.abs(y), initial=0.0)
    scale = max([scale, *map(abs, average)])
    spectrum = eigenvalues(K)
    own = lambda values, axis=0: spread_out(values, keep, axis)  # noqa: E731
    return {
        "mean": hat @ y,
        "variance": (rounded(prior - np.sum(hat * cross, axis=1)), rounded(prior)),
        "function variance": prior - np.sum(hat * cross, axis=1),
        "delta rule": cross @ learned(K, y),
        "leave_one_out": own(alpha / diagonal),
        "evidence": evidences[0],
        "evidence in ridge": (alpha @ alpha - np.sum(diagonal)) / 2,
        "low": (*[rounded((min(spectrum) if len(x) else 0) + ridge)] * 2, rounded(ridge)),
        "high": (max(spectrum) if len(x) else 0) + ridge,
        "in y": own(hat, 1),
        "in ridge": -hat @ alpha,
        "in bandwidth": over_b,
        "in projection": over_U,
        "in queries": over_q,
        "in supports": own(over_x, 1),
        "in weights": own(ridge * hat * alpha[None], 1),
        "without": own(-hat * (alpha / diagonal)[None], 1),
        "sum in y": own(np.sum(hat, axis=0)),
        "sum in ridge": -np.sum(hat @ alpha),
        "sum in supports": own(np.sum(over_x, axis=0)),
        "average": (rounded(average), rounded(scale)),
        "weights": (rounded(weights), np.ones(len(RIDGES))),
    }


def learned(K: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The coefficients of the delta rule with half of the full step for every support."""
    alpha = 0 * y
    for i in range(len(y)):
        alpha[i] = (y[i] - K[i, :i] @ alpha[:i]) / (2 * K[i, i])
    return alpha


def eigenvalues(K: np.ndarray) -> list[Any]:
    if not len(K):
        return []
    symmetric: Any = mpmath.mp
    return list(symmetric.eigsy(mpmath.matrix(K.tolist()), eigvals_only=True))


def smoothed(
    kernel: Kernel, x: np.ndarray, y: np.ndarray, at: np.ndarray, b: Any, keep: Any
) -> dict[str, Any]:
    """The estimator of Nadaraya and Watson, and its leave-one-out errors."""
    if not len(x):
        zeros = np.zeros((len(at), len(keep)))
        return {"smooth": zeros[:, 0], "shares": zeros, "smooth without": zeros[0]}
    shares = kernel.values(at, x, b)
    shares = shares / np.sum(shares, axis=1)[:, None]
    within = kernel.values(x, x, b)
    np.fill_diagonal(within, mpmath.mpf(0))
    totals = np.sum(within, axis=1)
    totals[totals == 0] = mpmath.mpf(1)
    return {
        "smooth": shares @ y,
        "shares": spread_out(shares, keep, 1),
        "smooth without": spread_out(y - within @ y / totals, keep, 0),
    }
