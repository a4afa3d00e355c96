"""What follows from a program: where its values are needed, their degrees in y, their range."""

from __future__ import annotations

from .values import SCALAR, Program

SUPPORTS, QUERIES = "supports", "queries"
READOUT = "prediction"
MATRICES = ("kernel", "smooth", "average", "nystrom", "inner")


def roles(program: Program) -> tuple[frozenset[str], ...]:
    """Return the tokens at which each value is needed, "supports" and "queries".

    The read-out is needed at the queries, every other state at the supports. What a matrix
    multiplies, and the factors of an inner product, are needed at the supports only.

    >>> import icl_krr as ik
    >>> from icl_krr.solvers._language import trace
    >>> function = ik.solvers.conjugate_gradient.function
    >>> program, _ = trace(function, ik.Linear(), 4, {"ridge": 0.1})
    >>> needed = roles(program)
    >>> {name: sorted(needed[i]) for name, i in zip(program.states, program.new)}["prediction"]
    ['queries']
    """
    ops, needed = program.ops, [set() for _ in program.ops]
    for name, i in zip(program.states, program.new, strict=True):
        needed[i].add(QUERIES if name == READOUT else SUPPORTS)
    before = -1
    while before != (before := sum(map(len, needed))):
        for old, start, new in zip(program.old, program.start, program.new, strict=True):
            needed[new] |= needed[old]
            if start is not None:
                needed[start] |= needed[new]
        for i in reversed(range(len(ops))):
            op, here = ops[i], needed[i]
            for k, arg in enumerate(op.args):
                inside = op.kind == "dot" or (op.kind in MATRICES and (op.kind != "inner" or k > 0))
                needed[arg] |= {SUPPORTS} if here and (inside or ops[arg].shape == SCALAR) else here
    return tuple(map(frozenset, needed))


def degrees(program: Program) -> tuple[int, ...] | None:
    """Return the d of each state with f(c y) = c^d f(y); None if there is none."""
    return homogeneity(program, y=1, dot=0)


def needs_sums(program: Program) -> bool:
    """Whether means in place of the sums over supports would change a vector."""
    return homogeneity(program, y=0, dot=1) is None


def homogeneity(program: Program, y: int, dot: int) -> tuple[int, ...] | None:
    """Return the degree of each state in a factor of y, or in one of the sums; None without one.

    In a factor of the sums, all vectors must have the degree 0.
    """
    states: dict[str, int | None] = dict.fromkeys(program.states)
    for _ in range(len(program.states) + 2):
        found: list[int | None] = []
        for op in program.ops:
            args = [found[arg] for arg in op.args]
            real = [arg for arg in args if arg is not None]
            if op.kind == "state":
                found.append(states[op.state])
            elif op.kind == "sum":
                if len({*real}) > 1:
                    return None
                found.append(real[0] if real else None)
            elif op.kind == "scale" and dot and args[0] not in (0, None):
                return None
            elif len(real) < len(args):
                found.append(None)
            elif op.kind == "quotient":
                found.append(real[0] - real[1])
            else:
                found.append(sum(real) + {"y": y, "dot": dot}.get(op.kind, 0))
        before = dict(states)
        for name, start, new in zip(program.states, program.start, program.new, strict=True):
            each = {None if start is None else found[start], found[new], states[name]} - {None}
            if len(each) > 1:
                return None
            states[name] = each.pop() if each else None
        if before == states:
            return tuple(states[name] or 0 for name in program.states)
    return None


def in_range_of_kernel(program: Program, state: str) -> bool:
    """Whether a state stays in the range of the kernel matrix, whatever y is."""
    inside = dict.fromkeys(program.states, True)
    while True:
        found: list[bool] = []
        for op in program.ops:
            args = [found[arg] for arg in op.args]
            if op.kind == "state":
                found.append(inside[op.state])
            elif op.kind == "kernel":
                found.append(True)
            else:
                found.append((op.kind == "sum" and all(args)) or (op.kind == "scale" and args[1]))
        before = dict(inside)
        for name, start, new in zip(program.states, program.start, program.new, strict=True):
            inside[name] &= found[new] and (start is None or found[start])
        if before == inside:
            return inside[state]
