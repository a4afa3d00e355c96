"""The second pass: an order in which no value is read after its slot was overwritten."""

from dataclasses import dataclass

from .instructions import Instruction, Leaf, Term


@dataclass(frozen=True)
class Order:
    """The order of the instructions.

    Attributes:
        before: instructions that read no new value, in order.
        copied: states whose old values are copied next, because later ones read them.
        after: all other instructions, in order; those of a group read old values, in one sublayer.
        early: updates of a single state that read only old values, too.
    """

    before: tuple[Instruction, ...]
    copied: tuple[str, ...]
    after: tuple[tuple[Instruction, ...], ...]
    early: tuple[Instruction, ...]


def is_old_value(term: Term, state: str) -> bool:
    return term.kind == "read" and term.operands[0][0][1] == Leaf("old", state)


def _is_local(instruction: Instruction, by_head: bool) -> bool:
    """Whether units of one sublayer compute all terms."""
    kinds = ("read", "kernel", "smooth", "product", *(() if by_head else ("scale",)))
    return all(term.kind in kinds for term in instruction.terms)


def order(instructions: list[Instruction], by_head: bool) -> Order:
    """Order instructions.

    An update comes after all instructions that read the old value of its state. The old value is
    copied if one of these waits for the new value, if the update reads it as a factor, or if
    instructions wait for one another in a cycle. Updates that are local and wait for at most heads
    form one sublayer, which reads the old values, so they need no copy.

    >>> import icl_krr as ik
    >>> from icl_krr.constructions._compiler.instructions import Lowering
    >>> from icl_krr.solvers._language.analysis import roles
    >>> from icl_krr.solvers._language.trace import trace
    >>> function = ik.solvers.conjugate_gradient.function
    >>> program, _ = trace(function, ik.Linear(), 4, {"ridge": 0.1})
    >>> new = dict(zip(program.states, program.new))
    >>> lowering = Lowering(program, roles(program), new, {}, by_head=True, splits=False)
    >>> order(lowering.instructions(), by_head=True).copied
    ('p',)
    """
    graph = _Graph(instructions, by_head)
    copied = [state for state in graph.updates if graph.overwrites_too_early(state)]
    while cycles := graph.cycles(copied):
        copied.append(graph.state_to_copy(min(cycles, key=min), copied))
    copied += [state for state in graph.updates if graph.is_delayed(state, copied)]
    groups = graph.sorted_groups(copied)
    return Order(
        tuple(instructions[k] for group in groups for k in group if k not in graph.late),
        tuple(copied),
        tuple(tuple(instructions[k] for k in group) for group in groups if group[0] in graph.late),
        tuple(
            instructions[k]
            for state, k in graph.updates.items()
            if k in graph.single
            and state not in copied
            and (state in graph.reads[k] or not accumulates(instructions[k]))
        ),
    )


class _Graph:
    """The dependencies of the instructions, which are numbered in order.

    Attributes:
        updates: the updates of the states, {state: number}.
        waits: the instructions whose results each reads, and in `behind` all that these wait for.
        reads: the states whose old values each reads; an update may add to its own.
        late: the updates and all that wait for one.
        single: the updates that are one sublayer, which waits for heads at most.
    """

    def __init__(self, instructions: list[Instruction], by_head: bool):
        self.instructions = instructions
        place = {one.target: k for k, one in enumerate(instructions)}
        self.updates = {leaf.source: k for leaf, k in place.items() if leaf.kind == "new"}
        self.waits = [{place[leaf] for leaf in one.leaves if leaf in place} for one in instructions]
        self.reads = [
            {
                leaf.source
                for term in one.terms
                for leaf in term.leaves
                if leaf.kind == "old" and not is_old_value(term, one.target.source)
            }
            for one in instructions
        ]
        self.behind, numbers = _closure(self.waits), {*self.updates.values()}
        self.late = {k for k, others in enumerate(self.behind) if numbers & {k, *others}}
        self.local = {k for k in numbers if _is_local(instructions[k], by_head)}
        heads = {k for leaf, k in place.items() if leaf.kind == "heads" and not self.waits[k]}
        self.single = {k for k in self.local if self.waits[k] <= heads}

    def readers(self, state: str) -> set[int]:
        return {k for k, read in enumerate(self.reads) if state in read}

    def overwrites_too_early(self, state: str) -> bool:
        """Whether a reader of the old value waits for the new one, or is its update."""
        k, readers = self.updates[state], self.readers(state)
        waits = any(k in self.behind[j] for j in readers)
        return waits or (k in readers and k not in self.single)

    def edges(self, copied: list[str]) -> list[set[int]]:
        """The predecessors of each: what it waits for, and readers of what it overwrites."""
        edges = [set(waits) for waits in self.waits]
        for state, k in self.updates.items():
            if state not in copied:
                edges[k] |= self.readers(state) - {k}
        return edges

    def groups(self, copied: list[str]) -> list[frozenset[int]]:
        """For each instruction, itself and all that are in a cycle with it."""
        reached = _closure(self.edges(copied))
        return [frozenset({k, *(j for j in to if k in reached[j])}) for k, to in enumerate(reached)]

    def cycles(self, copied: list[str]) -> set[frozenset[int]]:
        """The cycles, without those of updates that one sublayer can compute."""
        groups = {group for group in self.groups(copied) if len(group) > 1}
        return {
            group
            for group in groups
            if not group <= self.local or any(self.behind[k] & group for k in group)
        }

    def state_to_copy(self, cycle: frozenset[int], copied: list[str]) -> str:
        """The state whose copy breaks a cycle; a replaced state needs no further sublayer."""
        candidates = [
            state
            for state, k in self.updates.items()
            if k in cycle and state not in copied and (self.readers(state) - {k}) & cycle
        ]
        return min(candidates, key=lambda name: accumulates(self.instructions[self.updates[name]]))

    def is_delayed(self, state: str, copied: list[str]) -> bool:
        """Whether an update with operations would wait for late readers of the old value."""
        k = self.updates[state]
        one = self.instructions[k]
        if state in copied or accumulates(one) or all(term.kind == "read" for term in one.terms):
            return False
        late = (self.readers(state) & self.late) - {k}
        return bool(late - self.groups(copied)[k])

    def sorted_groups(self, copied: list[str]) -> list[tuple[int, ...]]:
        """The groups, each after all that comes before it."""
        edges, groups = self.edges(copied), self.groups(copied)
        done: set[int] = set()
        result = []
        while len(done) < len(groups):
            ready = next(
                group
                for k, group in enumerate(groups)
                if k not in done and set().union(*(edges[j] for j in group)) <= done | group
            )
            result.append(tuple(sorted(ready)))
            done |= ready
        return result


def accumulates(instruction: Instruction) -> bool:
    """Whether the new value of a state is a sum with its old value."""
    return any(is_old_value(term, instruction.target.source) for term in instruction.terms)


def _closure(edges: list[set[int]]) -> list[set[int]]:
    """The nodes that can be reached from each node along the edges."""
    reached = [set(next_) for next_ in edges]
    for _ in edges:
        reached = [one.union(*(reached[j] for j in one)) for one in reached]
    return reached
