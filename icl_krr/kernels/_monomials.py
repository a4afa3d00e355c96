"""Monomials of some channels: all products of a number of channels, in lexicographic order."""

import math
from functools import cache
from itertools import chain, combinations_with_replacement

import numpy as np

from .._core import memory_limit

FEWER = "use a lower degree, or fewer features: a projection, or sketch=P"
NUMBERS = np.zeros(0, np.float32)


def num_monomials(width: int, degree: int) -> int:
    """The number of monomials of so many channels; MemoryError if their weights do not fit."""
    count, lower = (math.comb(width + g - 1, g) for g in (degree, degree - degree // 2))
    numbers = count * (2 * lower + degree) if degree > 1 else 0
    memory_limit.check("weights of the features", numbers, NUMBERS, FEWER)
    return count


@cache
def monomials(width: int, degree: int) -> tuple[np.ndarray, np.ndarray]:
    """The channels of every monomial [g, m], in order, and the roots of its coefficient [m]."""
    count = math.comb(width + degree - 1, degree)
    tuples = chain.from_iterable(combinations_with_replacement(range(width), degree))
    channels = np.fromiter(tuples, np.int32, count * degree).reshape(count, degree).T
    repeats, coefficients = np.ones(count), np.ones(count)
    for g in range(1, degree):
        repeats = np.where(channels[g] == channels[g - 1], repeats + 1, 1)
        coefficients = coefficients * (g + 1) / repeats
    return channels, np.sqrt(coefficients)


def halves(width: int, degree: int) -> tuple[np.ndarray, np.ndarray]:
    """The matrices that copy the first and the other factors of every monomial of degree > 1.

    They copy from the monomials of degree // 2 and of degree - degree // 2 channels.
    """
    channels, _ = monomials(width, degree)

    def copies(factors: np.ndarray) -> np.ndarray:
        all_of_degree, _ = monomials(width, len(factors))
        digits = width ** np.arange(len(factors))[::-1]
        places = np.searchsorted(digits @ all_of_degree, digits @ factors)
        return np.arange(all_of_degree.shape[1])[:, None] == places[None]

    return copies(channels[: degree // 2]), copies(channels[degree // 2 :])
