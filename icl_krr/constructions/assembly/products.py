"""Softmax patterns, and products with K that no MLP has normalised yet."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...residual import Read


class Term(NamedTuple):
    """One softmax pattern with logits <query_i, key_j>, and the weight of its contribution."""

    query: Read
    key: Read
    weight: Any


class Unnormalised(NamedTuple):
    """The expression rest + sum_k mean_k normaliser_k, before an MLP computes its products."""

    rest: Read | None
    means: tuple[tuple[Read, int], ...]
    __array_ufunc__ = None  # NumPy scalar * Unnormalised then calls __rmul__

    def __add__(self, other: Any) -> Unnormalised:  # pyright: ignore[reportIncompatibleMethodOverride]
        if isinstance(other, Unnormalised):
            means = {k: mean for mean, k in self.means}
            for mean, k in other.means:
                means[k] = means[k] + mean if k in means else mean
            whole = Unnormalised(self.rest, tuple((mean, k) for k, mean in means.items()))
            return whole if other.rest is None else whole + other.rest
        return self._replace(rest=other if self.rest is None else self.rest + other)

    def __mul__(self, scale: Any) -> Unnormalised:  # pyright: ignore[reportIncompatibleMethodOverride]
        rest = None if self.rest is None else self.rest * scale
        return Unnormalised(rest, tuple((mean * scale, k) for mean, k in self.means))

    __radd__ = __add__
    __rmul__ = __mul__  # pyright: ignore[reportAssignmentType]

    def __neg__(self) -> Unnormalised:
        return self * -1

    def __sub__(self, other: Any) -> Unnormalised:
        return self + -other

    def __rsub__(self, other: Any) -> Unnormalised:
        return other + -self
