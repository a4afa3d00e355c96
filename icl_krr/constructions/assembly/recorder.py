"""Records the program of a construction: a sequence of layers on named slots."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import jax
import numpy as np

from ...transformer.weights import Heads, Spec, Unit
from .packing import Operation, check
from .slots import Slots


class Recorder(Slots):
    """Slots, and the recorded sequence of heads and units on them."""

    def __init__(self, spec: Spec, dtype: np.dtype, sketch: jax.Array | None = None):
        super().__init__(spec, dtype, sketch)
        self.program: list[Operation] = []
        self.group: list[Heads | Unit] | None = None

    def emit(self, layer: Heads | Unit, erases: bool = False) -> None:
        check(layer, self.layout)
        if self.group is None:
            self.program.append(Operation((layer,), erases))
        else:
            self.group.append(layer)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Put all recorded operations in one sublayer, so none of them reads another's result."""
        self.group = []
        yield
        self.program.append(Operation(tuple(self.group)))
        self.group = None
