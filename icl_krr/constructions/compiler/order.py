"""The second pass: an order in which no value is read after its slot was overwritten."""

from __future__ import annotations

from dataclasses import dataclass

from .instructions import Instruction, Leaf, Term


@dataclass(frozen=True)
class Order:
    """The order of the instructions.

    Attributes:
        before: instructions that need no new value, in order.
        copied: states whose old values are copied next, because later ones read them.
        after: all other instructions, in order; those of a group read old values, in one sublayer.
        early: updates of one state for which this holds, too.
    """

    before: tuple[Instruction, ...]
    copied: tuple[str, ...]
    after: tuple[tuple[Instruction, ...], ...]
    early: tuple[Instruction, ...]


def is_own(term: Term, state: str) -> bool:
    return term.kind == "read" and term.operands[0][0][1] == Leaf("old", state)


def is_local(instruction: Instruction, by_head: bool) -> bool:
    """Whether units of one sublayer compute all terms."""
    kinds = ("read", "kernel", "smooth", "product", *(() if by_head else ("scale",)))
    return all(term.kind in kinds for term in instruction.terms)


def order(instructions: list[Instruction], by_head: bool) -> Order:
    """Order instructions.

    An update comes after all that read the old value of its state, or the old value is copied: if
    one of them waits for the new value, if the update reads it as a factor, or if they wait for one
    another in a circle. Updates that are local and wait for heads at most are one sublayer, which
    reads the old values, so they need no copy.

    >>> import icl_krr as ik
    >>> from icl_krr.constructions.compiler.instructions import Lowering
    >>> from icl_krr.solvers.language import roles, trace
    >>> function = ik.solvers.conjugate_gradient.function
    >>> program, _ = trace(function, ik.Linear(), 4, {"ridge": 0.1})
    >>> new = dict(zip(program.states, program.new))
    >>> lowering = Lowering(program, roles(program), new, {}, by_head=True, splits=False)
    >>> order(lowering.instructions(), by_head=True).copied
    ('p',)
    """
    place = {one.target: k for k, one in enumerate(instructions)}
    states = {one.target.what: k for k, one in enumerate(instructions) if one.target.kind == "new"}
    waits = [{place[leaf] for leaf in one.leaves if leaf in place} for one in instructions]
    reads = [
        {
            leaf.what
            for term in one.terms
            for leaf in term.leaves
            if leaf.kind == "old" and not is_own(term, one.target.what)
        }
        for one in instructions
    ]
    behind = closure(waits)
    updates = {*states.values()}
    late = {k for k, others in enumerate(behind) if updates & {k, *others}}
    heads = {k for k, one in enumerate(instructions) if one.target.kind == "heads" and not waits[k]}
    single = {
        k for k in states.values() if is_local(instructions[k], by_head) and waits[k] <= heads
    }
    copied: list[str] = []
    for state, k in states.items():
        readers = {j for j, read in enumerate(reads) if state in read}
        if any(k in behind[j] for j in readers) or (k in readers and k not in single):
            copied.append(state)
    while True:
        edges = [set(w) for w in waits]
        for state, k in states.items():
            if state not in copied:
                edges[k] |= {j for j, read in enumerate(reads) if state in read and j != k}
        circles = closure(edges)
        groups = {
            frozenset(j for j in circle if k in circles[j])
            for k, circle in enumerate(circles)
            if k in circle
        }
        bad = [
            group
            for group in groups
            if not all(
                j in updates and is_local(instructions[j], by_head) and not (behind[j] & group)
                for j in group
            )
        ]
        if not bad:
            break
        group = min(bad, key=min)
        inside = [
            s
            for s, k in states.items()
            if k in group and s not in copied and any(s in reads[j] for j in group if j != k)
        ]
        copied.append(min(inside, key=lambda s: (keeps(instructions[states[s]]), states[s])))
    for state, k in states.items():
        readers = {j for j, read in enumerate(reads) if state in read and j in late and j != k}
        own = next((group for group in groups if k in group), frozenset())
        plain = all(term.kind == "read" for term in instructions[k].terms)
        if state not in copied and not plain and not keeps(instructions[k]) and readers - own:
            copied.append(state)
            edges[k] -= readers
    member = {j: group for group in groups for j in group}
    group_of = [member.get(k, frozenset({k})) for k in range(len(instructions))]
    done: set[int] = set()
    result: list[tuple[int, ...]] = []
    while len(done) < len(instructions):
        ready = next(
            k
            for k in range(len(instructions))
            if k not in done and set().union(*(edges[j] for j in group_of[k])) - group_of[k] <= done
        )
        result.append(tuple(sorted(group_of[ready])))
        done |= group_of[ready]
    return Order(
        tuple(instructions[k] for group in result for k in group if k not in late),
        tuple(copied),
        tuple(tuple(instructions[k] for k in group) for group in result if group[0] in late),
        tuple(
            instructions[k]
            for state, k in states.items()
            if k in single
            and state not in copied
            and (state in reads[k] or not keeps(instructions[k]))
        ),
    )


def keeps(instruction: Instruction) -> bool:
    """Whether the new value of a state is its old value and more."""
    return any(is_own(term, instruction.target.what) for term in instruction.terms)


def closure(edges: list[set[int]]) -> list[set[int]]:
    """All that can be reached from each node along the edges."""
    reached = [set(next_) for next_ in edges]
    for _ in edges:
        reached = [one.union(*(reached[j] for j in one)) for one in reached]
    return reached
