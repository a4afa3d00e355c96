"""Values of a solver, and the program that plain operators on them record."""

from __future__ import annotations

import linecache
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ..._core.constants import PerStep

SCALAR, VECTOR, ENTRIES, FEATURES = "scalar", "vector", "diagonal", "features"
"""Shapes of values: one number for each output; for each output and token; for each token; and m
features for each token."""
OPEN = "value"
"""The shape of a state that starts as a number, until `trace` determines it."""
READS = ("y", "one", "sink", "normaliser", "features")
"""Kinds of values that a step reads at no cost: they are slots of a machine."""


class Op(NamedTuple):
    """One value of a program.

    Attributes:
        kind: "state", "y", "one", "kernel", "dot", "sum", "scale", "product", "quotient", or one of
            those that `Operator` adds.
        shape: SCALAR, VECTOR, ENTRIES or FEATURES.
        args: numbers of the values that it is computed from, all smaller than its own.
        constants: numbers of the constants that it reads; those of a "sum" are the coefficients of
            its arguments, with None for 1.
        signs: 1 or -1 for each argument of a sum.
        state: name of the state.
    """

    kind: str
    shape: str
    args: tuple[int, ...] = ()
    constants: tuple[Any, ...] = ()
    signs: tuple[int, ...] = ()
    state: str = ""


@dataclass(frozen=True)
class Program:
    """The result of `trace`: all values, each after its arguments.

    Attributes:
        ops: the values.
        names: the name of each value, that of the variable that it was assigned to, or "".
        states: names of the states.
        old: numbers of the values that are the states before a step.
        start: numbers of the first values of the states; None for zero.
        new: numbers of the values that are the states after a step.
        invariants: numbers of the values that every step reads and none changes, computed once.
        per_step: numbers of the constants that differ from step to step.
    """

    ops: tuple[Op, ...]
    names: tuple[str, ...]
    states: tuple[str, ...]
    old: tuple[int, ...]
    start: tuple[Any, ...]
    new: tuple[int, ...]
    invariants: tuple[int, ...]
    per_step: frozenset[int]


class Recording:
    """The values and constants of a solver that is being traced."""

    def __init__(self):
        self.ops: list[Op] = []
        self.names: list[str] = []
        self.numbers: dict[Op, int] = {}
        self.constants: list[Any] = []
        self.named: dict[tuple[str, int, str], int] = {}

    def value(self, kind: str, shape: str, *args: Value, **fields: Any) -> Value:
        """Record a value; the same value is recorded once."""
        self.check(*args)
        op = Op(kind, shape, tuple(arg.index for arg in args), **fields)
        if op not in self.numbers:
            self.numbers[op] = len(self.ops)
            self.ops.append(op)
            self.names.append("")
        index = self.numbers[op]
        line = call_site() if op.args else ("", 0, "")
        if assigned := re.match(r"\s*(\w*[a-zA-Z]\w*) = ", line[2]):
            before = self.named.get(line)  # part of the value that the line assigns
            if before is not None and index > before:
                self.names[before] = ""
            self.names[index], self.named[line] = assigned[1], index
        return Value(self, index)

    def check(self, *values: Value) -> None:
        if any(value.recording is not self for value in values):
            refuse("values of a solver must be its own, got one of another run")

    def constant(self, value: Any) -> int:
        """Return the number of a constant, the same for the same object."""
        for index, constant in enumerate(self.constants):
            if constant is value:
                return index
        self.constants.append(value)
        return len(self.constants) - 1

    def sum(self, shape: str, *terms: tuple[int, Any, Value]) -> Value:
        """Record a sum of terms (sign, coefficient or None, value)."""
        signs, coefficients, values = zip(*terms, strict=True)
        constants = tuple(None if c is None else self.constant(c) for c in coefficients)
        return self.value("sum", shape, *values, constants=constants, signs=signs)


def is_number(value: Any) -> bool:
    return isinstance(value, PerStep) or (
        not isinstance(value, (Value, str, bool, complex, list, tuple))
        and np.ndim(value) < 2
        and hasattr(value, "__mul__")
    )


class Value:
    """A vector over the tokens, or a scalar that is a sum over them; for each output.

    It has `+`, `-`, `*`, `/` with values and numbers, and `@`, the inner product over the supports.
    A product of two vectors is that of each token. A quotient 0 / 0 is 0.
    """

    __array_ufunc__ = None  # a number of NumPy times a value then calls __rmul__

    def __init__(self, recording: Recording, index: int):
        self.recording, self.index = recording, index

    @property
    def shape(self) -> str:
        return self.recording.ops[self.index].shape

    def like(self, other: Any, what: str) -> Value:
        """The other operand as a value: a number is this number at every token."""
        if isinstance(other, Value):
            return other
        if not is_number(other):
            refuse(f"{what} takes values and numbers, got {type(other).__name__}")
        one = self.recording.value("one", self.shape)
        return self.recording.sum(self.shape, (1, other, one))

    def __add__(self, other: Any, sign: int = 1) -> Value:
        if isinstance(other, int) and other == 0:
            return self
        other = self.like(other, "a sum")
        shapes = {self.shape, other.shape} - {OPEN}
        if len(shapes) > 1:
            refuse(f"a sum takes values of one shape, got a {self.shape} and a {other.shape}")
        shape = shapes.pop() if shapes else OPEN
        return self.recording.sum(shape, (1, None, self), (sign, None, other))

    def __sub__(self, other: Any) -> Value:
        return self.__add__(other, -1)

    def __rsub__(self, other: Any) -> Value:
        return -self + other

    def __neg__(self) -> Value:
        return self.recording.sum(self.shape, (-1, None, self))

    def __mul__(self, other: Any) -> Value:
        record = self.recording
        if not isinstance(other, Value):
            if not is_number(other):
                refuse(f"a product takes values and numbers, got {type(other).__name__}")
            return record.sum(self.shape, (1, other, self))
        first, last = sorted((self, other), key=lambda v: _ORDER[v.shape])
        shapes = first.shape, last.shape
        if OPEN in shapes:
            return record.value("product", VECTOR if VECTOR in shapes else OPEN, first, last)
        if first.shape == SCALAR != last.shape:
            return record.value("scale", last.shape, first, last)
        if shapes not in ((SCALAR, SCALAR), (VECTOR, VECTOR), (ENTRIES, VECTOR)):
            refuse(f"a product of a {self.shape} and a {other.shape} is none of a token")
        return record.value("product", last.shape, first, last)

    def __truediv__(self, other: Any) -> Value:
        if not isinstance(other, Value):
            if not is_number(other):
                refuse(f"a quotient takes values and numbers, got {type(other).__name__}")
            return self * (1 / other)
        if OPEN in (self.shape, other.shape):
            shape = VECTOR if VECTOR in (self.shape, other.shape) else OPEN
            return self.recording.value("quotient", shape, self, other)
        if other.shape == self.shape and self.shape != FEATURES:
            return self.recording.value("quotient", self.shape, self, other)
        if other.shape in (SCALAR, ENTRIES):
            return self * (1.0 / other)
        refuse(f"a {self.shape} over a {other.shape} is no quotient of a token")

    def __rtruediv__(self, other: Any) -> Value:
        return self.like(other, "a quotient") / self

    def __matmul__(self, other: Any) -> Value:
        shapes = self.shape, getattr(other, "shape", type(other).__name__)
        if not isinstance(other, Value) or not {*shapes} <= {VECTOR, OPEN}:
            refuse(f"@ takes two vectors, or K and a vector, got {shapes[0]} @ {shapes[1]}")
        first, last = sorted((self, other), key=lambda v: v.index)
        return self.recording.value("dot", SCALAR, first, last)

    def __bool__(self) -> NoReturn:
        refuse("a value has no truth value: weights take no branches, so use arithmetic")

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        refuse(f"a value has +, -, *, / and @, but no {name!r}")

    def unknown(self, *_: Any) -> NoReturn:
        refuse("a value has +, -, *, / and @, and no comparison, power, index or function")

    __radd__ = __add__
    __rmul__ = __mul__
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = unknown
    __pow__ = __mod__ = __floordiv__ = __getitem__ = __iter__ = __len__ = unknown
    __abs__ = __float__ = __int__ = __round__ = unknown


_LANGUAGE = str(Path(__file__).parent)
_ORDER = {SCALAR: 0, ENTRIES: 1, VECTOR: 2, FEATURES: 3, OPEN: 4}


def call_site() -> tuple[str, int, str]:
    """Return file, number and text of the line of the solver that called the language."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_LANGUAGE):
        frame = frame.f_back
    file, number = frame.f_code.co_filename, frame.f_lineno
    return file, number, linecache.getline(file, number).strip()


def refuse(sentence: str) -> NoReturn:
    """Raise an error with the line of the solver."""
    file, number, line = call_site()
    raise TypeError(f"{sentence}; line {number} of {Path(file).name}: {line}")
