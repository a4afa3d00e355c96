"""The work of a compiled program, counted from its text: products, sums, and what devices send."""

import re
from collections import Counter
from collections.abc import Iterator
from math import prod
from typing import NamedTuple

COLLECTIVES = (
    *("all-reduce", "collective-permute", "all-gather", "all-to-all", "reduce-scatter"),
    *("collective-broadcast", "ragged-all-to-all"),
)
BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "s32": 4, "u32": 4, "f32": 4, "s64": 8, "f64": 8}
OF_EACH_NUMBER = {"add", "subtract", "multiply"}
OF_EACH_TERM = {"reduce", "reduce-window"}


class Operation(NamedTuple):
    """One line of a computation: its kind, arrays that it makes, operations that it takes."""

    kind: str
    shapes: list[tuple[str, tuple[int, ...]]]
    operands: list[str]
    line: str

    @property
    def numbers(self) -> int:
        return sum(prod(sizes) for _, sizes in self.shapes)

    @property
    def bytes(self) -> int:
        return sum(BYTES[dtype] * prod(sizes) for dtype, sizes in self.shapes)


Program = dict[str, dict[str, Operation]]
"""{name of a computation: {name of an operation: the operation}}."""


def parse(text: str) -> Program:
    """Read the text of a compiled program, `compiled.as_text()`."""
    program: Program = {}
    inside: dict[str, Operation] = {}
    for line in text.splitlines():
        if start := re.match(r"(?:ENTRY )?%?([\w.-]+) \(.*\{$", line):
            inside = program.setdefault(start[1], {})
        elif match := re.match(r"\s+(?:ROOT )?%([\w.-]+) = (.*?) ([a-z][a-z-]*)\((.*)", line):
            name, shape, kind, rest = match.groups()
            shapes = [
                (dtype, tuple(map(int, filter(None, sizes.split(",")))))
                for dtype, sizes in re.findall(r"(\w+)\[([\d,]*)\]", shape)
            ]
            operands = re.findall(r"%([\w.-]+)", rest.split(")", 1)[0])
            inside[name] = Operation(kind.removesuffix("-start"), shapes, operands, line)
    return program


def work_of_steps(program: Program, steps: int) -> Counter[str]:
    """The work of one pass through all loops of so many steps, with the loops inside of them.

    The counter has the additions and multiplications of single numbers, "flops", and for every kind
    of collective operation the bytes that a device hands to it, and as "KIND arrays" the number of
    arrays. Of a conditional, it has the branch with the least work.
    """
    loops = (one for one in operations(program) if one.kind == "while" and trips(one) == steps)
    return sum((work(program, called("body", loop)) for loop in loops), Counter())


def work(program: Program, name: str) -> Counter[str]:
    """The work of one computation, with everything that it calls."""
    total: Counter[str] = Counter()
    for operation in program[name].values():
        if operation.kind == "while":
            inside = work(program, called("body", operation))
            total += Counter({key: trips(operation) * count for key, count in inside.items()})
        elif operation.kind == "conditional":
            branches = re.findall(r"%([\w.-]+)", operation.line.split("computation", 1)[1])
            total += min((work(program, b) for b in branches), key=lambda c: c["flops"])
        elif operation.kind in ("fusion", "call"):
            body = "calls" if operation.kind == "fusion" else "to_apply"
            total += work(program, called(body, operation))
        elif operation.kind in COLLECTIVES:
            total[operation.kind] += operation.bytes
            total[f"{operation.kind} arrays"] += len(operation.shapes)
        total["flops"] += flops(program[name], operation)
    return total


def flops(computation: dict[str, Operation], operation: Operation) -> int:
    if operation.kind == "dot":
        (_, sizes), *_ = computation[operation.operands[0]].shapes
        summed = re.search(r"lhs_contracting_dims=\{([\d,]*)\}", operation.line)
        assert summed is not None
        return 2 * operation.numbers * prod(sizes[int(i)] for i in summed[1].split(",") if i)
    if operation.kind in OF_EACH_NUMBER and operation.shapes[0][0].startswith(("f", "bf")):
        return operation.numbers
    if operation.kind in OF_EACH_TERM and operation.operands[0] in computation:
        return computation[operation.operands[0]].numbers
    return 0


def operations(program: Program) -> Iterator[Operation]:
    return (operation for computation in program.values() for operation in computation.values())


def collectives(program: Program) -> set[str]:
    """The kinds of collective operations in a program."""
    return {operation.kind for operation in operations(program)} & {*COLLECTIVES}


def called(what: str, operation: Operation) -> str:
    match = re.search(rf"\b{what}=%([\w.-]+)", operation.line)
    assert match is not None
    return match[1]


def trips(operation: Operation) -> int:
    """How often the body of a loop runs; 1 if the compiler does not know."""
    match = re.search(r'known_trip_count":\{"n":"(\d+)"', operation.line)
    return int(match[1]) if match else 1
