"""The first pass: instructions whose operands are slots."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...solvers._language.analysis import QUERIES
from ...solvers._language.values import READS, SCALAR, Op, Program

_HEADS = frozenset({"kernel", "smooth"})
"""Kinds of values that heads compute, and of which units add multiples."""


class Leaf(NamedTuple):
    """The value that an operand reads.

    Attributes:
        kind: "old" or "new" for a state before or after its update; "value" for a stored value,
            "heads" for the part that heads compute, "fit" for the prediction of a vector, and
            "read" for a slot of the machine.
        source: the name of the state, or the number of the value.
    """

    kind: str
    source: Any


Factors = tuple[tuple[int, int | None], ...]
"""A product of (sign, number of a constant, or None for 1)."""
Expression = tuple[tuple[Factors, Leaf], ...]
"""A sum of multiples of leaves."""


class Term(NamedTuple):
    """A multiple of an operation.

    Attributes:
        kind: "read" for its operand itself, or the kind of the value.
        factors: its coefficient.
        value: the number of the value.
        operands: the expressions on which it operates.
        by: for a "scale", multiples of one scalar or of a product of two.
    """

    kind: str
    factors: Factors
    value: int
    operands: tuple[Expression, ...]
    by: tuple[tuple[Factors, tuple[Expression, ...]], ...] = ()

    @property
    def leaves(self) -> Iterator[Leaf]:
        scalars = (scalar for _, scalars in self.by for scalar in scalars)
        for expression in (*self.operands, *scalars):
            yield from (leaf for _, leaf in expression)


@dataclass(frozen=True)
class Instruction:
    """The computation of a stored value or of the new value of a state, as a sum of terms."""

    target: Leaf
    part: str
    terms: tuple[Term, ...]

    @property
    def leaves(self) -> set[Leaf]:
        return {leaf for term in self.terms for leaf in term.leaves}


class Lowering:
    """Finds the instructions that compute the new values of some states.

    A value is stored if an operation other than a sum reads it and no slot contains it. The new
    vector of a state is read from its slot. A sum does not wait for a new vector that is itself a
    sum of old values and of products with the kernel matrix, but adds these.

    Args:
        new: the new values, {state: number}.
        invariants: loop-invariant values, which have a slot, {number: state}.
        by_head: whether a head, not a unit, multiplies by a scalar or by two.
        splits: whether coefficients and predictions are in slots of different widths.

    >>> import icl_krr as ik
    >>> from icl_krr.solvers._language.analysis import roles
    >>> from icl_krr.solvers._language.trace import trace
    >>> function = ik.solvers.conjugate_gradient.function
    >>> program, _ = trace(function, ik.Linear(), 4, {"ridge": 0.1})
    >>> new = dict(zip(program.states, program.new))
    >>> lowering = Lowering(program, roles(program), new, {}, by_head=True, splits=False)
    >>> [one.target.kind for one in lowering.instructions()][:5]
    ['heads', 'value', 'value', 'value', 'value']
    """

    def __init__(
        self,
        program: Program,
        needed: Sequence[frozenset[str]],
        new: Mapping[str, int],
        invariants: Mapping[int, str],
        by_head: bool,
        splits: bool,
    ):
        self.ops, self.needed, self.new, self.invariants = program.ops, needed, new, invariants
        self.by_head, self.splits = by_head, splits
        self.home: dict[int, str] = {}
        for state, i in new.items():
            op = self.ops[i]
            if op.kind not in (*READS, "state") and i not in invariants and op.shape != SCALAR:
                self.home.setdefault(i, state)
        self.stored: set[Leaf] = set()

    def instructions(self) -> list[Instruction]:
        previous: set[Leaf] = {Leaf("", -1)}
        result: list[Instruction] = []
        while self.stored != previous:  # a term may turn out to be stored for another value
            previous = set(self.stored)
            leaves = sorted(previous, key=lambda leaf: (leaf.source, leaf.kind))
            result = [self.compute(leaf) for leaf in leaves]
            for state, i in self.new.items():
                terms = self.terms(i, self.part(i), state)
                result.append(Instruction(Leaf("new", state), self.part(i), terms))
        return result

    def part(self, i: int) -> str:
        return next(iter(sorted(self.needed[i])))  # "queries" before "supports"

    def compute(self, leaf: Leaf) -> Instruction:
        i, part = leaf.source, self.part(leaf.source)
        if leaf.kind == "value":
            return Instruction(leaf, part, self.terms(i, part))
        operands = [self.expression(arg, part) for arg in self.ops[i].args]
        if leaf.kind == "fit":
            operands.append(self.stored_as("heads", i))
        return Instruction(leaf, part, (Term(self.ops[i].kind, (), i, tuple(operands)),))

    def stored_as(self, kind: str, i: int) -> Expression:
        leaf = Leaf(kind, i)
        self.stored.add(leaf)
        return (((), leaf),)

    def leaf(self, i: int) -> Leaf | None:
        """The slot that contains a value, or None."""
        op = self.ops[i]
        if op.kind == "state":
            return Leaf("old", op.state)
        if i in self.invariants:
            return Leaf("old", self.invariants[i])
        if op.kind in READS:
            return Leaf("read", i)
        if Leaf("value", i) in self.stored:
            return Leaf("value", i)
        return Leaf("new", self.home[i]) if i in self.home else None

    def is_free(self, i: int) -> bool:
        """Whether a value is a sum of old values and of products with the kernel matrix."""
        op, leaf = self.ops[i], self.leaf(i)
        if leaf is not None and leaf.kind in ("old", "read"):
            return True
        if op.kind == "sum" and (leaf is None or leaf.kind == "new"):
            return all(map(self.is_free, op.args))
        return leaf is None and op.kind in _HEADS

    def flat(self, i: int, expand: bool, top: bool = True) -> list[tuple[Factors, int]]:
        """The terms of a sum, with `expand` also those of new values that need not be awaited."""
        op, leaf = self.ops[i], self.leaf(i)
        whole = leaf is not None and not (leaf.kind == "new" and expand and self.is_free(i))
        if op.kind != "sum" or (whole and not top):
            return [((), i)]
        return [
            (((sign, c), *factors), term)
            for sign, c, arg in zip(op.signs, op.constants, op.args, strict=True)
            for factors, term in self.flat(arg, expand, top=False)
        ]

    def terms(self, i: int, part: str, state: str = "") -> tuple[Term, ...]:
        """The terms of a value that is stored, or is the new value of a state."""
        result = []
        for factors, term in self.flat(i, expand=True):
            op, leaf = self.ops[term], self.leaf(term)
            is_target = term == i and (not state or self.home.get(i) == state)
            if leaf is not None and not is_target:
                result.append(Term("read", factors, term, ((((), leaf),),)))
            elif op.kind in _HEADS or (op.kind == "inner" and self.is_early(op)):
                heads = self.stored_as("heads", term)
                is_split = self.splits and part == QUERIES
                more = (self.expression(op.args[-1], part),) if is_split else ()
                kind = "read" if op.kind == "inner" else op.kind
                result.append(Term(kind, factors, term, (heads, *more)))
            elif op.kind == "scale":
                vector = self.expression(op.args[1], part)
                result.append(Term("scale", factors, term, (vector,), self.scalars(op.args[0])))
            else:
                operands = tuple(self.expression(arg, part) for arg in op.args)
                result.append(Term(op.kind, factors, term, operands))
        return tuple(result)

    def is_early(self, op: Op) -> bool:
        """Whether an operation reads only old values, so that it need not wait for a new one."""
        leaves = [self.leaf(arg) for arg in op.args]
        return all(leaf is not None and leaf.kind in ("old", "read") for leaf in leaves)

    def expression(self, i: int, part: str) -> Expression:
        """An operand as a sum of slots."""
        op, leaf = self.ops[i], self.leaf(i)
        if leaf is not None:
            return (((), leaf),)
        if op.kind == "kernel":
            heads = self.stored_as("heads", i)
            return self.stored_as("fit", i) if self.splits and part == QUERIES else heads
        flat = self.flat(i, expand=False)
        # what heads computed is not zero at the queries, where a slot of the supports is
        kinds = ("kernel",) if part == QUERIES and not self.splits else ()
        plain = all(self.leaf(k) is not None or self.ops[k].kind in kinds for _, k in flat)
        if op.kind == "sum" and (op.shape == SCALAR or plain):
            return tuple(
                ((*factors, *more), leaf)
                for factors, term in flat
                for more, leaf in self.expression(term, part)
            )
        return self.stored_as("value", i)

    def scalars(self, i: int) -> tuple[tuple[Factors, tuple[Expression, ...]], ...]:
        """The scalars of a "scale"; a head also multiplies by the product of two."""
        pairs, single = [], []
        for factors, term in self.flat(i, expand=False):
            op = self.ops[term]
            if self.by_head and self.leaf(term) is None and op.kind == "product":
                pairs.append((factors, tuple(self.expression(arg, "") for arg in op.args)))
            else:
                single += [((*factors, *f), leaf) for f, leaf in self.expression(term, "")]
        return (*pairs, *([((), (tuple(single),))] if single else []))
