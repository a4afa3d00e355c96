"""Machines whose tokens solve systems of the features, with sums over the prefix of a token."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from ... import Kernel, Read
from ...transformer._weights import Transformer
from .features import fill_diagonal
from .linear_attention import LinearAttention
from .machine import Machine
from .slots import SUPPORTS, SUPPORTS_AND_QUERIES, label, repeat, select


class PrefixSums(LinearAttention):
    """A machine on which a solver of A alpha = y solves (C_i + ridge I) w_i = b_i at every token i.

    The sums C_i = sum_j phi_j phi_j^T and b_i = sum_j phi_j y_j run over the supports that token i
    sees, with their strengths and gates as factors. A head with the query v_i, the keys phi_j and
    the values phi_j computes C_i v_i, or, if the machine `stores_sums`, a slot of m^2 channels has
    C_i. All other operations are local to a token, which stores its m unknowns for each output.
    """

    scalars_at = unknowns_at = SUPPORTS_AND_QUERIES
    solution, direction = "w", "d"
    about_solution, about_prediction = "coefficients of the features", "phi(x)^T w"
    strength: Read
    stores_sums: bool = False
    scales_by_head, splits = False, True

    @cached_property
    def right(self) -> Read:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The right-hand side b_i."""
        width = self.features.width * self.spec.num_outputs
        return self.scratch("b", SUPPORTS_AND_QUERIES, "sum_j phi_j y_j", width)

    @cached_property
    def keys(self) -> Read:
        """The features of the supports, times their strengths: zero at all other tokens."""
        return self.state("weighted", SUPPORTS, "strength phi(x)", width=self.features.width)

    @cached_property
    def sums(self) -> Read:
        """The matrices C_i, row by row."""
        width = self.features.width**2
        return self.state("C", SUPPORTS_AND_QUERIES, "sum_j phi_j phi_j^T", width=width)

    def start(self) -> None:
        keys = self.keys
        self.compute_features()
        self.multiply(self.features_here(SUPPORTS), repeat(self.strength, keys.width), to=keys)
        if "b" in self.embedding:
            one = self.per_output(self.inside(SUPPORTS_AND_QUERIES))
            self.head_per_output(one, self.y, self.over_outputs(keys), self.right)
        if self.stores_sums:
            phi, m = self.features, self.features.width
            pairs = self.scratch("pairs", SUPPORTS, "strength phi phi^T", m**2)
            row, column = np.divmod(np.arange(m**2), m)
            self.multiply(select(keys, row), select(phi, column), to=pairs)
            self.sum_prefix(pairs, self.sums)
        Machine.start(self)  # LinearAttention.start would compute the features again

    @property
    def sum_channels(self) -> np.ndarray:
        """The matrix that sums the m unknowns of every system."""
        ones = np.ones((self.right.width // self.systems, 1), self.dtype)
        return np.kron(np.eye(self.systems, dtype=self.dtype), ones)

    def sum_prefix(self, value: Read, to: Read) -> None:
        here = self.inside(SUPPORTS_AND_QUERIES)
        self.head(here, self.support, value, to, log_gate=self.log_gate)

    def head_per_output(self, query: Read, key: Read, value: Read, to: Read) -> None:
        gate = None if self.log_gate is None else self.per_output(self.log_gate)
        self.head(query, key, value, to, self.systems, gate)

    def kernel_times(self, v: Read) -> Read:
        product = self.scratch_vector("C_" + "_".join(v.blocks), f"C ({label(v)})")
        if self.stores_sums:
            m, outputs = self.features.width, self.spec.num_outputs
            output, row, column = np.unravel_index(np.arange(outputs * m**2), (outputs, m, m))
            out = np.eye(outputs * m, dtype=self.dtype)[output * m + row]
            sums = select(self.sums, row * m + column)
            self.multiply(sums, select(v, output * m + column), to=product, out=out)
        else:
            keys, phi = self.over_outputs(self.keys), self.over_outputs(self.features)
            self.head_per_output(v, keys, phi, product)
        return product

    def fit_of(self, v: Read, product: Any, to: str) -> Read:
        fit = self.scratch(to, SUPPORTS_AND_QUERIES, f"phi . ({label(v)})")
        self.add_fit(v, product, fit)
        return fit

    def add_fit(self, v: Read, product: Any, to: Read) -> None:
        self.multiply(self.over_outputs(self.features), v, to=to, out=self.sum_channels)

    def kernel_diagonal(self, to: Read) -> None:
        squares = self.scratch("squares", SUPPORTS, "strength phi^2", self.features.width)
        self.multiply(self.keys, self.features, to=squares)
        self.sum_prefix(squares, to)

    def dot(self, a: Read, b: Read, to: str | Read) -> Read:
        to = self.written_slot(to, self.scalars_at, f"({label(a)}) . ({label(b)}) of a token")
        self.multiply(a, b, to=to, out=self.sum_channels)
        return to


class PosteriorSums(PrefixSums):
    """A machine on which a solver of A alpha = y solves (C_i + ridge I) h_i = phi_i at every token.

    One head computes the means sum_j y_j phi_j^T h_i of all outputs. The variance ridge phi_i^T h_i
    of the function is local to the token, and replaced after every step. If the features
    approximate kernels, `approximated`, it also has the part k(x, x) - |phi_i|^2.
    """

    solution = "h"
    about_solution, about_prediction = "(C + ridge I)^-1 phi(x)", "sum_j y_j phi_j^T h"
    fit, quadratic, gaps = "prediction", "variance", "variance_gap"
    ridges: Any
    approximated: tuple[Kernel, ...] | None = None
    square_of_unit: Any = 1.0  # the features are phi / sqrt(square_of_unit)

    @property
    def systems(self) -> int:
        return 1

    @cached_property
    def right(self) -> Read:
        return self.features

    def over_outputs(self, features: Read) -> Read:
        return features

    @property
    def y_of_systems(self) -> Read:
        """The outputs y_j, repeated for every system."""
        return select(self.y, np.tile(np.arange(self.spec.num_outputs), self.systems))

    def state_of_fit(self) -> Read:
        width = self.y_of_systems.width
        return self.state(self.fit, SUPPORTS_AND_QUERIES, self.about_prediction, width=width)

    def fit_of(self, v: Read, product: Any, to: str) -> Read:
        width, about = self.y_of_systems.width, f"sum_j y_j phi_j . ({label(v)})"
        fit = self.scratch(to, SUPPORTS_AND_QUERIES, about, width)
        self.head_per_output(v, self.keys, self.y_of_systems, fit)
        return fit

    def readouts(self, variance: Read, gap: Read) -> dict[str, Read]:
        """The readouts of the predictive distribution: the variance of an output, and its gap."""
        return {"variances": variance + self.ridges * self.one, "variance_gaps": gap}

    def transformer(
        self, step: Callable, *, prologue: Callable = lambda: None, average: Any = None, **rest: Any
    ) -> Transformer:
        """Return the transformer whose steps renew the variance, and its gap |r|^2.

        An `average` comes before each step, so that it and the gap belong to the iterate before.
        """
        at = SUPPORTS_AND_QUERIES
        variance = self.state(self.quadratic, at, "variance of the function")
        missing = Read({}, self.systems)
        if self.approximated is not None:
            missing = self.state("missing", at, "k(x, x) - |phi(x)|^2")
        gap = self.state(self.gaps, at, "|r|^2, at least what the variance lacks")
        lengths = self.sum_channels * self.square_of_unit

        def renew_gap() -> None:
            r = self.layout.read("r", self.dtype)
            with self.together():
                self.add(-gap, to=gap)
                self.multiply(r, r, to=gap, out=lengths)

        def then_variance() -> None:
            if average is not None:
                renew_gap()
                average(variance, missing)
            step()
            h = self.layout.read(self.solution, self.dtype)
            with self.together():
                self.add(missing - variance, to=variance)
                self.multiply(self.features, h, to=variance, out=self.sum_channels * self.ridges)
            if average is None:
                renew_gap()

        def start() -> None:
            for system, kernel in enumerate(self.approximated or ()):
                fill_diagonal(self, kernel, missing, system)
            if self.approximated is not None:
                self.multiply(self.features, self.features, to=missing, out=-lengths)
                self.add(missing, to=variance)
            prologue()

        readouts = self.readouts(variance, gap)
        return super().transformer(then_variance, prologue=start, readouts=readouts, **rest)
