"""Families of filters of the kernel matrix that are no solver's steps, for `identify`'s ladder."""

from __future__ import annotations

import numpy as np

from .filter_fit import Family

RESOLVENTS = 10.0 ** np.linspace(-5, 1, 10)
"""Ridges, over the largest eigenvalue, of the resolvents that a free filter combines."""
DEGREES = (8, 5, 3, 2, 1)
RIDGES = tuple(np.log(10) * np.linspace(-7, 0, 8))
"""Logarithms of shared ridges over the largest eigenvalue. Regression with a larger ridge is nearly
one gradient step, which is a solver's."""


def ridge_path(sigma: np.ndarray, ridge: float, own: np.ndarray) -> np.ndarray:
    return 1 / (sigma + own[:, None, None])


def gradient_flow(sigma: np.ndarray, ridge: float, own: np.ndarray) -> np.ndarray:
    return -np.expm1(-own[:, None, None] * (sigma + ridge)) / (sigma + ridge)


def exact_regression(sigma: np.ndarray, ridge: float, own: np.ndarray) -> np.ndarray:
    return own[:, None, None] / (sigma + ridge)


def polynomials(sigma: np.ndarray, ridge: float, own: np.ndarray) -> np.ndarray:
    """Legendre polynomials of the degrees 0, 1, ... on the interval from 0 to the scale."""
    table = np.polynomial.legendre.legvander(2 * sigma - 1, len(own) - 1)
    return np.moveaxis(table, -1, 0)


def resolvents(sigma: np.ndarray, ridge: float, own: np.ndarray) -> np.ndarray:
    return own[:, None, None] / (sigma + own[:, None, None])


NULLS = {
    "interpolation": "an interpolation between 0 and exact kernel ridge regression",
    "ridge path": "exact kernel ridge regression with a ridge of its own at every layer",
    "gradient flow": "gradient flow with a time of its own at every layer",
}
"""What a model may do from layer to layer without a solver's steps, by the name in tables."""

FAMILIES = (
    Family("any filter", resolvents, RESOLVENTS, linear=True),
    *(Family(f"degree {t}", polynomials, np.arange(t), linear=True) for t in DEGREES),
    Family("interpolation", exact_regression, np.ones(1), linear=True, ridges=RIDGES),
    Family("ridge path", ridge_path, np.log(10) * np.linspace(-8, 3, 56)),
    Family("gradient flow", gradient_flow, np.log(10) * np.linspace(-3, 7, 51), ridges=RIDGES),
)
"""A combination of resolvents, which is nearly any smooth filter; polynomials of degree t - 1 in K,
which are all that t steps of a method that multiplies by K can have; and the nulls."""
