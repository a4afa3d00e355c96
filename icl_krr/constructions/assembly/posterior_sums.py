"""A machine whose tokens solve for their own features: one solution gives mean and variance."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
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

    @property
    def answer(self) -> Read:
        """The read-out of the prediction."""
        return self.layout.read(self.fit, self.dtype)

    @property
    def answers(self) -> dict[str, Read]:
        """The read-outs of the predictive distribution: the variance of an output, and its gap."""
        variance = self.layout.read(self.quadratic, self.dtype)
        return {"variances": variance + self.ridges * self.one, "variance_gaps": self.gap}

    def alongside(self) -> None:
        """Record operations of a step before those of the solver."""

    def afterwards(self) -> None:
        """Record operations of a step after those of the solver."""
        self.renew_gap()

    @cached_property
    def gap(self) -> Read:
        """The squared length of the residual: at most this is missing in the variance."""
        about = "|r|^2, at least what the variance lacks"
        return self.state(self.gaps, SUPPORTS_AND_QUERIES, about)

    def renew_gap(self) -> None:
        gap, r = self.gap, self.layout.read("r", self.dtype)
        with self.together():
            self.add(-gap, to=gap)
            self.multiply(r, r, to=gap, out=self.squared_length)

    @property
    def systems(self) -> int:
        return 1

    @property
    def right(self) -> Read:
        """The right-hand side phi_i."""
        return self.features

    def sum_right(self, keys: Read) -> None:
        """The right-hand side is no sum over supports."""

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

    def transformer(self, step: Callable[..., None], *, steps: int, **rest: Any) -> Transformer:
        variance = self.state(self.quadratic, SUPPORTS_AND_QUERIES, "variance of the function")
        missing = None
        if self.approximated is not None:
            missing = self.state("missing", SUPPORTS_AND_QUERIES, "k(x, x) - |phi(x)|^2")

        def then_variance(*own: Any) -> None:
            self.alongside()
            step(*own)
            h = self.layout.read(self.solution, self.dtype)
            with self.together():
                self.add(-variance if missing is None else missing - variance, to=variance)
                self.multiply(self.features, h, to=variance, out=self.times_ridge)
            self.afterwards()

        prologue = rest.get("prologue", lambda: None)

        def start() -> None:
            if missing is not None:
                for system, kernel in enumerate(self.approximated or ()):
                    fill_diagonal(self, kernel, missing, system)
                self.multiply(self.features, self.features, to=missing, out=-self.squared_length)
                self.add(missing, to=variance)
            prologue()

        return super().transformer(
            then_variance, steps=steps, readout=self.answer, readouts=self.answers, prologue=start
        )

    @property
    def times_ridge(self) -> Any:
        """The matrix that turns the summands of phi^T h into ridge phi^T h."""
        return self.sum_channels * self.ridges

    @property
    def squared_length(self) -> Any:
        """The matrix that turns the squares of the features into |phi|^2."""
        return self.sum_channels
