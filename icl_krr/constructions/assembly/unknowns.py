"""The unknowns of the linear system that a machine solves: which tokens store them, and how."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from ...residual import Read
from .packing import Recorder
from .slots import SUPPORTS, SUPPORTS_AND_QUERIES


class Unknowns(Recorder):
    """Slots with the shape of the unknowns: here alpha, one number per output at each support."""

    solution, direction = "alpha", "p"
    about_solution, about_prediction = "dual coefficients", "k(x)^T alpha"
    unknowns_at = SUPPORTS

    @abstractmethod
    def finish(self, product: Any, to: str) -> Read:
        """Return a read of a product from `kernel_times`, in a new scratch slot if needed."""

    @abstractmethod
    def add(self, value: Any, to: str | Read, at: tuple[str, ...] | None = None) -> Read:
        """Add an expression to a slot, at the roles `at`; default: all roles of the slot."""

    @property
    def right(self) -> Read:
        """The right-hand side of the linear system: y."""
        return self.y

    def vector(self, name: str, about: str, starts_as: Read | None = None) -> Read:
        """Declare a state with the shape of the unknowns, such as alpha."""
        return self.state(name, self.unknowns_at, about, starts_as, self.right.width)

    def scratch_vector(self, name: str, about: str) -> Read:
        """Declare a slot with the shape of the unknowns that is zero after every step."""
        return self.scratch(name, self.unknowns_at, about, self.right.width)

    def state_of_fit(self) -> Read:
        """Declare the state with the predictions of the solution."""
        return self.state("prediction", SUPPORTS_AND_QUERIES, self.about_prediction)

    @property
    def diagonal_width(self) -> int:
        """The number of different entries that a token stores of the diagonal of K'."""
        return 1

    def per_unknown(self, entries: Read) -> Read:
        """Repeat the entries of a diagonal for all unknowns of a token."""
        return self.per_output(entries)

    def fit_of(self, v: Read, product: Any, to: str) -> Read:
        """Return the predictions of the coefficients v, whose product with K' is `product`."""
        return self.finish(product, to)

    def add_fit(self, v: Read, product: Any, to: Read) -> None:
        """Add the predictions of the coefficients v to a slot."""
        self.add(product, to)
