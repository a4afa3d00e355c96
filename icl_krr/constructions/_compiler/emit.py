"""The last pass: instructions as operations of a machine."""

from collections.abc import Callable, Sequence
from functools import partial, reduce
from operator import add
from typing import Any

import numpy as np

from ..._core.constants import xp
from ...residual import ROLES, Read
from ...solvers._language.analysis import QUERIES, READOUT, needs_sums
from ...solvers._language.values import ENTRIES, FEATURES, SCALAR, Program
from .._assembly.normalised_attention import NormalisedAttention
from .._assembly.slots import SUPPORTS_AND_QUERIES, tile
from .._assembly.softmax_attention import SoftmaxAttention
from .instructions import Expression, Factors, Instruction, Leaf, Term
from .order import Order, accumulates, is_old_value

_Scaled = tuple[Any, int]
"""A read and the power k: it reads c^k times a value, as K v is c K v in softmax attention."""


class Emitter:
    """Emits instructions on a machine.

    Attributes:
        slots: reads of the states.
        needed: the tokens at which each value is needed, as `roles` returns them.
        share: slot of the reciprocal of the number of tokens, if a program needs sums as they are.
        nystrom: the slot of Nystrom features and their matrix, by the number of the constant.
    """

    def __init__(self, m, program: Program, constants: Sequence, needed: Sequence[frozenset[str]]):
        self.m, self.program, self.constants = m, program, constants
        self.slots: dict[str, Read] = {}
        self.share = None
        if isinstance(m, SoftmaxAttention) and needs_sums(program):
            self.share = m.state("share", ROLES, "1 / number of tokens that are seen")
        self.needed = needed
        self.nystrom: dict[int, tuple[Read, Any]] = {}
        self.read: dict[Leaf, _Scaled] = {}
        self.products: dict[int, Any] = {}
        self.powers: dict[int, int] = {}
        self.means: dict[int, list[Read]] = {}

    def start(self, order: Order) -> None:
        """Emit the operations before the first step, where states are zero."""
        program, self.read, self.products, self.means = self.program, {}, {}, {}
        for state, i in zip(program.states, program.start, strict=True):
            if i is not None and program.ops[i].kind == "y" and self.m.right is self.m.y:
                # so that a change of the first r also changes the first r.r
                self.read.setdefault(Leaf("read", i), (self.slots[state], 0))
        if self.share is not None:
            self.m.mean(self.m.per_output(self.m.aggregator), to=self.share)
        for one in (*order.before, *(one for group in order.after for one in group)):
            if one.target.kind == "new":
                self.write(one.terms, self.slots[one.target.source])
            else:
                self.store(one)

    def step(self, order: Order) -> None:
        """Emit a step."""
        m, program = self.m, self.program
        self.read = {Leaf("old", state): (slot, 0) for state, slot in self.slots.items()}
        self.products, self.means = {}, {}
        for one in order.before:
            self.store(one)
        for state in order.copied:
            slot = self.slots[state]
            at = m.at(slot)
            scalar = {*m.scalars_at} <= {*at}  # at all tokens, wherever it is read
            read_at_queries = QUERIES in self.needed[program.old[program.states.index(state)]]
            if not scalar and not read_at_queries and {*m.unknowns_at} <= {*at}:
                at = m.unknowns_at
            copy = m.scratch(f"{state}_last", at, f"{state} before the step", slot.width)
            self.read[Leaf("old", state)] = m.add(slot, to=copy), 0
        for group in order.after:
            first, *others = group
            if first.target.kind != "new":
                self.store(first)
                continue
            if others or first in order.early:
                self.update_together(group)
            else:
                self.update(first)
            for one in group:
                if one.target.source not in order.copied:
                    del self.read[Leaf("old", one.target.source)]  # so that nothing reads it

    def embedded(self, i: int) -> Read | None:
        """The first value of a state as a sum of slots of the machine, if it is one."""
        op, plain = self.program.ops[i], ("y", "features")
        if op.kind in plain:
            return self.machine_read(i)
        if op.kind != "sum" or any(self.program.ops[arg].kind not in plain for arg in op.args):
            return None
        terms = zip(op.signs, op.constants, op.args, strict=True)
        return total([self.times(((sign, c),), self.machine_read(arg)) for sign, c, arg in terms])

    # ---- slots --------------------------------------------------------------------------------

    def store(self, one: Instruction) -> None:
        """Compute a value into a new scratch slot."""
        m, i, term = self.m, one.target.source, one.terms[0]
        if one.target.kind == "value":
            slot = self.scratch(i, one.part)
            k = max(self.power(term) for term in one.terms)
            self.write(one.terms, slot, k)
            self.read[one.target] = slot, k
            return
        if one.target.kind == "fit":
            v, k = self.expression(term.operands[0])
            self.read[one.target] = m.fit_of(v, self.products[i], to=self.name(i)), k
            return
        operands = [self.expression(operand) for operand in term.operands]
        v, k = operands[-1]
        if term.kind == "inner":
            self.read[one.target] = self.attend(operands[0][0], operands[1][0], v), k
        else:
            arg = self.program.ops[i].args[0]
            if not isinstance(m, NormalisedAttention):
                self.products[i] = m.kernel_times(v)
            else:
                if arg not in self.means:
                    self.means[arg] = m.smooth_all(v, "smoothed")
                means = self.means[arg]
                self.products[i] = m.weighted(means) if term.kind == "kernel" else means
            self.powers[i] = k + (m.degree if term.kind == "kernel" else 0)

    def attend(self, query: Read, key: Read, value: Read) -> Read:
        """Return the output of a head, in a new scratch slot where it may be nonzero."""
        slot = self.m.scratch("inner", self.m.at(query), "sum_j <a_i, b_j> v_j", value.width)
        self.m.head(query, key, value, to=slot)
        return slot

    def name(self, i: int) -> str:
        """The name of a scratch slot: that of the variable, or the kind of its value."""
        name = self.program.names[i] or self.program.ops[i].kind
        while name in self.m.embedding:
            name += "_"
        return name

    def scratch(self, i: int, part: str) -> Read:
        m, shape = self.m, self.program.ops[i].shape
        if shape == SCALAR:
            return m.scratch(self.name(i), m.scalars_at, "scalar")
        width = m.diagonal_width if shape == ENTRIES else m.right.width
        width = m.features.width if shape == FEATURES else width
        at = SUPPORTS_AND_QUERIES if part == QUERIES else m.unknowns_at
        return m.scratch(self.name(i), at, shape, width)

    # ---- expressions --------------------------------------------------------------------------

    def leaf(self, leaf: Leaf) -> _Scaled:
        """The read of a leaf; a KeyError means that the order is wrong."""
        m = self.m
        if leaf.kind == "new":
            return self.slots[leaf.source], 0
        if leaf.kind == "heads":
            if leaf not in self.read:
                i, at = leaf.source, SUPPORTS_AND_QUERIES
                if self.needed[i] == {QUERIES}:
                    at = m.layout[self.slots[READOUT].slot].at
                self.read[leaf] = m.finish(self.products[i], self.name(i), at), self.powers[i]
            return self.read[leaf]
        if leaf.kind == "read" and leaf not in self.read:
            return self.machine_read(leaf.source), 0
        return self.read[leaf]

    def machine_read(self, i: int) -> Read:
        m, op = self.m, self.program.ops[i]
        if op.kind == "y":
            return m.right
        if op.kind == "features":
            return m.features
        if op.kind == "sink":
            return m.sink()
        if op.kind == "normaliser":
            return m.total_normaliser()
        at = SUPPORTS_AND_QUERIES if QUERIES in self.needed[i] else m.unknowns_at
        at = m.scalars_at if op.shape == SCALAR else at
        width = {SCALAR: m.systems, ENTRIES: m.diagonal_width}.get(op.shape, m.right.width)
        return tile(m.inside(at), width)

    def expression(self, expression: Expression) -> _Scaled:
        """Read a sum of slots, all as the highest power of c."""
        parts = [(factors, *self.leaf(leaf)) for factors, leaf in expression]
        k = max(power for _, _, power in parts)
        return reduce(add, (self.times(f, read, k - power) for f, read, power in parts)), k

    def coefficient(self, factors: Factors, power: int = 0) -> Any:
        """A coefficient, with the power of c that the read of its term lacks; None for 1."""
        sign, c = 1, None
        for one, index in factors:
            sign *= one
            if index is not None:
                number = xp.asarray(self.constants[index], self.m.dtype)
                c = number if c is None else c * number
        if power and not (isinstance(self.m.scale, float) and self.m.scale == 1):
            scale = self.m.scale**power if power > 0 else 1 / self.m.scale**-power
            c = scale if c is None else c * scale
        if c is None:
            return None if sign > 0 else -1
        return c if sign > 0 else -c

    def times(self, factors: Factors, value: Any, power: int = 0) -> Any:
        c = self.coefficient(factors, power)
        return value if c is None else self.multiple(c, value)

    def multiple(self, c: Any, value: Any) -> Any:
        """The value times a number, or times one for each feature."""
        c = xp.asarray(c, self.m.dtype)
        if np.ndim(c) and c.shape[0] != value.width:
            c = xp.tile(c, value.width // c.shape[0])
        return value * c

    # ---- terms --------------------------------------------------------------------------------

    def power(self, term: Term) -> int:
        """The power of c with which a term is computed."""
        if term.kind in ("kernel", "smooth"):
            return self.powers[term.value]
        powers = [max(self.leaf(leaf)[1] for _, leaf in one) for one in term.operands]
        if term.kind == "scale":
            pairs = [[self.expression(one)[1] for one in pair] for _, pair in term.by]
            return powers[0] + max(map(sum, pairs))
        if term.kind == "quotient":
            return powers[0] - powers[1]
        return self.m.degree if term.kind == "diagonal" else sum(powers)

    def prepare(self, terms: Sequence[Term], slot: Read, k: int) -> tuple[list, list[Callable]]:
        """Return summands, and operations that add the other terms to a slot, as c^k their value.

        All that they read has been computed then.
        """
        m, summands, operations = self.m, [], []
        for term in terms:
            more = k - self.power(term)
            if term.kind == "read":
                operand, *_ = self.expression(term.operands[0])
                summands.append(self.times(term.factors, operand, more))
            elif term.kind == "kernel":
                product = self.times(term.factors, self.products[term.value], more)
                if len(term.operands) == 1:
                    summands.append(product)
                else:
                    v = self.times(term.factors, self.expression(term.operands[1])[0], more)
                    operations.append(partial(m.add_fit, v, product, to=slot))
            elif term.kind == "scale":
                operations += self.scalings(term, slot, k)
            else:
                operations.append(self.operation(term, slot, more))
        return summands, operations

    def scalings(self, term: Term, slot: Read, k: int) -> list[Callable[[], Any]]:
        value, value_power = self.expression(term.operands[0])
        value, result = self.within(value, slot), []
        for factors, scalars in term.by:
            multipliers, powers = zip(*map(self.expression, scalars), strict=True)
            scaled = self.times((*term.factors, *factors), value, k - value_power - sum(powers))
            (by,) = multipliers if len(multipliers) == 1 else (multipliers,)
            result.append(partial(self.m.add_scaled, scaled, by=by, to=slot))
        return result

    def within(self, value: Read, slot: Read) -> Read:
        """A value that is zero where a slot is."""
        m, at = self.m, self.m.layout[slot.slot].at
        if {*m.at(value)} <= {*at}:
            return value
        return m.add(value, to=m.scratch("within", at, f"what {slot.slot} gets", value.width))

    def operation(self, term: Term, slot: Read, more: int) -> Callable[[], Any]:
        m, op = self.m, self.program.ops[term.value]
        if term.kind == "smooth":
            c = self.coefficient(term.factors, more)
            return partial(m.add_smooth, 1 if c is None else c, self.products[term.value], to=slot)
        operands = [self.expression(operand)[0] for operand in term.operands]
        if term.kind == "diagonal":
            c = self.coefficient(term.factors, more)
            if c is None:
                return partial(m.kernel_diagonal, slot)
            whole = self.scratch(term.value, "")
            m.kernel_diagonal(whole)
            return partial(m.add, whole * c, to=slot)
        if term.kind == "nystrom":
            F, core = self.nystrom[op.constants[0]]
            query = self.times(term.factors, F @ core, more)
            return partial(m.head, query=query, key=F, value=operands[0], to=slot)
        if term.kind == "inner":
            query = self.times(term.factors, operands[0], more)
            if not {*m.at(query)} <= {*m.layout[slot.slot].at}:
                return partial(m.add, self.attend(query, *operands[1:]), to=slot)
            return partial(m.head, query=query, key=operands[1], value=operands[2], to=slot)
        if term.kind == "average":
            return partial(m.add_average, self.times(term.factors, operands[0], more), to=slot)
        a, b = operands
        if term.kind == "product" and self.program.ops[op.args[0]].shape == ENTRIES:
            size = 1 if self.program.ops[op.args[0]].kind == "sink" else None
            entries = tile(a, m.right.width) if op.shape != ENTRIES else a
            b = self.times(term.factors, self.within(b, slot), more)
            return partial(m.multiply, b, entries, to=slot, size=size)
        a = self.times(term.factors, a if op.shape == SCALAR else self.within(a, slot), more)
        if term.kind == "product":
            return partial(m.multiply, a, b, to=slot)
        return partial(m.divide if term.kind == "quotient" else self.dot, a, b, to=slot)

    def dot(self, a: Read, b: Read, to: Read) -> None:
        """Add an inner product to a slot; a softmax head has the mean, over all visible tokens."""
        if self.share is None:
            self.m.dot(a, b, to=to)
        else:
            mean = self.m.dot(a, b, to=self.m.scratch("mean", self.m.scalars_at, "mean"))
            self.m.divide(mean, self.share, to=to)

    def write(self, terms: Sequence[Term], slot: Read, k: int = 0) -> None:
        self.finish(*self.prepare(terms, slot, k), slot)

    def finish(self, summands: list[Any], operations: list[Callable], slot: Read) -> None:
        for operation in operations:
            operation()
        if summands:
            self.m.add(total(summands), to=slot)

    # ---- updates ------------------------------------------------------------------------------

    def parts(self, one: Instruction) -> tuple[Read, Any, tuple[Term, ...]]:
        """The slot of a state, the multiple of its old value that an update adds, and the rest."""
        state, slot = one.target.source, self.slots[one.target.source]
        old_terms = [term for term in one.terms if is_old_value(term, state)]
        new_terms = tuple(term for term in one.terms if not is_old_value(term, state))
        if len(old_terms) == 1 and self.coefficient(old_terms[0].factors) is None:
            return slot, None, new_terms
        c = sum(1 if (c := self.coefficient(term.factors)) is None else c for term in old_terms)
        return slot, self.multiple(c - 1, slot), new_terms

    def update(self, one: Instruction) -> None:
        """Update a state, and erase its old value first, unless the new value contains it."""
        slot, change, terms = self.parts(one)
        summands, operations = self.prepare(terms, slot, 0)
        plain = [term for term in terms if term.kind in ("read", "kernel")]
        ready = all(leaf.kind in ("old", "read", "heads") for term in plain for leaf in term.leaves)
        if change is not None and (accumulates(one) or (summands and ready)):
            self.m.add(total([change, *summands] if ready else [change]), to=slot)
            summands = [] if ready else summands
        elif change is not None:
            self.m.erase(slot)
        self.finish(summands, operations, slot)

    def update_together(self, group: Sequence[Instruction]) -> None:
        """Update states in one sublayer, which reads the old values of all."""
        prepared = []
        for one in group:
            slot, change, terms = self.parts(one)
            summands, operations = self.prepare(terms, slot, 0)
            prepared.append((slot, [*summands, *([] if change is None else [change])], operations))
        with self.m.together():
            for slot, summands, operations in prepared:
                self.finish(summands, operations, slot)


def total(summands: Sequence[Any]) -> Any:
    return reduce(add, summands)
