"""The values of a program on arrays."""

from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ..._core.numerics import reciprocal
from .analysis import QUERIES, READOUT, SUPPORTS, roles
from .values import Op, Program

_Parts = dict[str, jax.Array]
"""A value: its array at the supports and at the queries; that of a scalar counts as the first."""


def iterates(program: Program, constants: Sequence, arrays, steps: int) -> tuple[jax.Array, ...]:
    """Return all iterates of each state, at the queries for the readout and else at supports.

    Args:
        arrays: object with the arrays of a task, such as `icl_krr.solvers._run.KernelArrays`. Its
            methods `number` and `scaling` convert a constant and a scalar to factors of the part of
            a value, `dot` is the inner product, `zeros` returns a part of zeros, and `compute` the
            part of any value that is not plain arithmetic.
    """
    needed = roles(program)
    outputs = [QUERIES if name == READOUT else SUPPORTS for name in program.states]
    parts = [{*needed[i], part} for i, part in zip(program.old, outputs, strict=True)]
    targets = [i for i in (*program.start, *program.invariants) if i is not None]
    initial = _evaluate(program, constants, arrays, needed, targets, {})
    start = [
        {
            part: arrays.zeros(program.ops[old].shape, part) if i is None else initial[i][part]
            for part in state_parts
        }
        for i, old, state_parts in zip(program.start, program.old, parts, strict=True)
    ]
    invariants = {i: initial[i] for i in program.invariants}

    def step(states: list[_Parts], scanned: dict[int, jax.Array]) -> tuple[list[_Parts], list]:
        numbers = [scanned.get(i, value) for i, value in enumerate(constants)]
        values = invariants | dict(zip(program.old, states, strict=True))
        values = _evaluate(program, numbers, arrays, needed, program.new, values)
        pairs = zip(program.new, parts, strict=True)
        states = [{part: values[i][part] for part in state_parts} for i, state_parts in pairs]
        return states, [state[part] for state, part in zip(states, outputs, strict=True)]

    per_step = {i: constants[i] for i in sorted(program.per_step)}
    _, paths = jax.lax.scan(step, start, per_step, length=steps)
    first = [state[part] for state, part in zip(start, outputs, strict=True)]
    return tuple(jnp.concatenate([one[None], path]) for one, path in zip(first, paths, strict=True))


def _evaluate(
    program: Program,
    constants: Sequence[Any],
    arrays: Any,
    needed: Sequence[frozenset[str]],
    targets: Iterable[int],
    values: dict[int, _Parts],
) -> dict[int, _Parts]:
    """Return `values` with the targets and all values from which these are computed."""
    missing, queue = set(), list(targets)
    while queue:
        i = queue.pop()
        if i not in values and i not in missing:
            missing.add(i)
            queue += program.ops[i].args
    values = dict(values)
    for i in sorted(missing):
        op = program.ops[i]
        args = [values[arg] for arg in op.args]
        values[i] = {part: _compute_part(op, part, args, constants, arrays) for part in needed[i]}
    return values


def _compute_part(op: Op, part: str, args: list[_Parts], constants: Sequence, arrays: Any) -> Any:
    if op.kind == "sum":
        terms = []
        for value, sign, c in zip(args, op.signs, op.constants, strict=True):
            term = value[part] if c is None else arrays.number(constants[c], part) * value[part]
            terms.append(term if sign > 0 else -term)
        return sum(terms[1:], terms[0])
    if op.kind == "scale":
        scalar, value = args
        return arrays.scaling(scalar[SUPPORTS], part) * value[part]
    if op.kind == "product":
        return args[0][part] * args[1][part]
    if op.kind == "quotient":
        return args[0][part] * reciprocal(args[1][part])
    if op.kind == "dot":
        return arrays.dot(args[0][SUPPORTS], args[1][SUPPORTS])
    return arrays.compute(op, part, args, [constants[c] for c in op.constants if c is not None])
