"""A machine whose tokens solve for their own features: one solution gives mean and variance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...kernels import Kernel
from ...residual import Read
from ...transformer.weights import Transformer
from .features import fill_diagonal
from .prefix_sums import PrefixSums
from .slots import SUPPORTS_AND_QUERIES, label, select


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

    @property
    def right(self) -> Read:
        """The right-hand side phi_i."""
        return self.features

    def over_outputs(self, features: Read) -> Read:
        return features

    @property
    def y_of_systems(self) -> Read:
        """The outputs y_j, repeated for every system."""
        outputs = self.spec.num_outputs
        return select(self.y, np.tile(np.arange(outputs), self.systems))

    def state_of_fit(self) -> Read:
        width = self.systems * self.spec.num_outputs
        return self.state(self.fit, SUPPORTS_AND_QUERIES, self.about_prediction, width=width)

    def fit_of(self, v: Read, product: Any, to: str) -> Read:
        width, about = self.y_of_systems.width, f"sum_j y_j phi_j . ({label(v)})"
        fit = self.scratch(to, SUPPORTS_AND_QUERIES, about, width)
        self.head_per_output(v, self.keys, self.y_of_systems, fit)
        return fit

    def readouts(self, variance: Read, gap: Read) -> dict[str, Read]:
        """The read-outs of the predictive distribution: the variance of an output, and its gap."""
        return {"variances": variance + self.ridges * self.one, "variance_gaps": gap}

    def transformer(
        self,
        step: Callable[..., None],
        *,
        prologue: Callable[[], None] = lambda: None,
        average: Callable[[Read, Read], None] | None = None,
        **rest: Any,
    ) -> Transformer:
        """Return the transformer whose steps renew the variance, and its gap |r|^2.

        An `average` of the variances and of what the features leave out comes before each step, so
        that it and the gap belong to the iterate before.
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

        def then_variance(*own: Any) -> None:
            if average is not None:
                renew_gap()
                average(variance, missing)
            step(*own)
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
