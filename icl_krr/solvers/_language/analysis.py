"""Properties of a program: where its values are needed, their degrees in y, their range."""

from .values import SCALAR, Program

SUPPORTS, QUERIES = "supports", "queries"
READOUT = "prediction"
_MATRICES = ("kernel", "smooth", "average", "nystrom", "inner")


def roles(program: Program) -> tuple[frozenset[str], ...]:
    """Return the tokens at which each value is needed, "supports" and "queries".

    The readout is needed at the queries, every other state at the supports. What a matrix
    multiplies, and the factors of an inner product, are needed at the supports only.

    >>> import icl_krr as ik
    >>> from icl_krr.solvers._language.trace import trace
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
                sums = op.kind == "dot" or (op.kind in _MATRICES and (op.kind != "inner" or k > 0))
                needed[arg] |= {SUPPORTS} if here and (sums or ops[arg].shape == SCALAR) else here
    return tuple(map(frozenset, needed))


def homogeneity(program: Program) -> tuple[int, ...] | None:
    """Return the d of each state with f(c y) = c^d f(y); None if there is none."""
    return _state_degrees(program, y=1, dot=0)


def needs_sums(program: Program) -> bool:
    """Whether means in place of the sums over supports would change a vector."""
    return _state_degrees(program, y=0, dot=1) is None


def _state_degrees(program: Program, y: int, dot: int) -> tuple[int, ...] | None:
    """Return the degree of each state in a factor of y, or in one of the sums; None without one.

    In a factor of the sums, all vectors must have the degree 0.
    """
    states: dict[str, int | None] = dict.fromkeys(program.states)
    for _ in range(len(program.states) + 2):
        degrees: list[int | None] = []
        for op in program.ops:
            args = [degrees[arg] for arg in op.args]
            determined = [arg for arg in args if arg is not None]
            if op.kind == "state":
                degrees.append(states[op.state])
            elif op.kind == "sum":
                if len({*determined}) > 1:
                    return None
                degrees.append(determined[0] if determined else None)
            elif op.kind == "scale" and dot and args[0] not in (0, None):
                return None
            elif len(determined) < len(args):
                degrees.append(None)
            elif op.kind == "quotient":
                degrees.append(determined[0] - determined[1])
            else:
                degrees.append(sum(determined) + {"y": y, "dot": dot}.get(op.kind, 0))
        previous = dict(states)
        for name, start, new in zip(program.states, program.start, program.new, strict=True):
            each = {None if start is None else degrees[start], degrees[new], states[name]} - {None}
            if len(each) > 1:
                return None
            states[name] = each.pop() if each else None
        if previous == states:
            return tuple(states[name] or 0 for name in program.states)
    return None


def in_range_of_kernel(program: Program, state: str) -> bool:
    """Whether a state stays in the range of the kernel matrix, whatever y is."""
    inside = dict.fromkeys(program.states, True)
    while True:
        flags: list[bool] = []
        for op in program.ops:
            args = [flags[arg] for arg in op.args]
            if op.kind == "state":
                flags.append(inside[op.state])
            elif op.kind == "kernel":
                flags.append(True)
            else:
                flags.append((op.kind == "sum" and all(args)) or (op.kind == "scale" and args[1]))
        previous = dict(inside)
        for name, start, new in zip(program.states, program.start, program.new, strict=True):
            inside[name] &= flags[new] and (start is None or flags[start])
        if previous == inside:
            return inside[state]
