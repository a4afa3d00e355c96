"""The trace of a solver: its function runs once, on values that record all operations."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from ..._core.constants import PerStep, as_constant, xp
from ...kernels import Kernel
from .analysis import QUERIES, READOUT, roles
from .operators import Operator
from .values import OPEN, READS, SCALAR, VECTOR, Op, Program, Recording, Value, is_number

_AT_SUPPORTS = ("diagonal", "smooth", "sink", "normaliser", "nystrom")
"""Kinds of values that are known at the supports alone."""


def per_step(values: Any) -> PerStep:
    """Return a number that has another value in every step, for a solver of the language.

    Args:
        values: its values, an array [steps].

    >>> per_step([0.5, 0.25]).values.tolist()
    [0.5, 0.25]
    """
    values = xp.asarray(values, float)
    if values.ndim != 1:
        raise ValueError(f"values must be an array [steps], got shape {list(values.shape)}")
    return PerStep(values)


def trace(
    function: Callable, kernel: Kernel, steps: int, parameters: Mapping, sketched: bool = False
) -> tuple[Program, list[Any]]:
    """Return the program of a solver and the constants that it reads.

    The program depends on the function and on parameters such as "fused", not on numbers, so one
    compiled program serves them all.

    >>> import icl_krr as ik
    >>> def descent(K, y, *, ridge, step_size):
    ...     def step(alpha, r, prediction):
    ...         Kr = K @ r
    ...         return dict(
    ...             alpha=alpha + step_size * r,
    ...             r=r - step_size * (Kr + ridge * r),
    ...             prediction=prediction + step_size * Kr,
    ...         )
    ...     return dict(alpha=0, r=y, prediction=0), step
    >>> numbers = {"ridge": 0.1, "step_size": 0.01}
    >>> program, constants = trace(descent, ik.Linear(), 3, numbers)
    >>> program.states, [program.ops[i].kind for i in program.new], constants
    (('alpha', 'r', 'prediction'), ['sum', 'sum', 'sum'], [0.01, 0.1])
    """
    keywords: dict[str, Any] = jax.tree.map(as_constant, dict(parameters))
    if "steps" in inspect.signature(function).parameters:
        keywords["steps"] = steps
    shapes: dict[str, str] = {}
    with np.errstate(all="ignore"):  # an overflow is infinite, as in a compiled program
        while True:  # until all states have the shapes of their new values
            K = Operator(Recording(), kernel, sketched)
            program, constants, default = record(function, K, keywords, shapes)
            ops = program.ops
            states = list(zip(program.states, program.old, program.new, strict=True))
            guesses = {name: ops[new].shape for name, old, new in states if ops[old].shape == OPEN}
            if not guesses:
                break
            clear = {name: shape for name, shape in guesses.items() if shape != OPEN}
            shapes |= clear or {name: default[name] for name in guesses}
    for name, old, new in states:
        if ops[new].shape != ops[old].shape:
            raise TypeError(
                f"state {name!r} of {function.__name__} must keep its shape, a {ops[old].shape}, "
                f"got a {ops[new].shape}"
            )
    if ops[program.old[program.states.index(READOUT)]].shape != VECTOR:
        raise TypeError(f"prediction of {function.__name__} must be a vector, such as K @ alpha")
    for i in program.per_step:
        if constants[i].values.shape != (steps,):
            raise ValueError(
                f"per_step must have an entry for each of {steps} steps, got shape "
                f"{list(constants[i].values.shape)}"
            )
    for op, needed in zip(program.ops, roles(program), strict=True):
        if op.kind in _AT_SUPPORTS and QUERIES in needed:
            raise TypeError(
                f"prediction of {function.__name__} must read K @ v or K.average @ v at the "
                "queries; K.diagonal, K.normalised and K.nystrom are known at the supports alone"
            )
    return program, constants


def record(
    function: Callable, K: Operator, parameters: Mapping[str, Any], shapes: Mapping[str, str]
) -> tuple[Program, list[Any], dict[str, str]]:
    """Return a program, its constants, and default shapes of states that determine none."""
    recording, name = K.recording, function.__name__
    result = function(K, recording.value("y", VECTOR), **parameters)
    if isinstance(result, Mapping):
        start = dict.fromkeys(result, 0)

        def step(**zeros: Value) -> dict[str, Value]:
            return {state: zeros[state] + value for state, value in result.items()}
    elif isinstance(result, tuple) and len(result) == 2 and callable(result[1]):
        start, step = result
    else:
        raise TypeError(f"{name} must return a dict of states and a step, got {result!r}")
    if not isinstance(start, Mapping) or READOUT not in start:
        raise TypeError(f"{name} must have a state 'prediction', got {', '.join(start)}")
    if clash := {*start} & {"x", "y", "one", "aggregator", "support", "query"}:
        raise ValueError(f"state {min(clash)!r} of {name} must have another name: tokens have it")
    starts, old, default = {}, {}, {}
    for state, value in start.items():
        if isinstance(value, Value):
            recording.check(value)
        else:
            if not is_number(value) or np.ndim(value):
                raise TypeError(
                    f"state {state!r} of {name} must start as a value or a number, got "
                    f"{type(value).__name__}"
                )
            zero = isinstance(value, (int, float)) and value == 0
            default[state] = VECTOR if zero else SCALAR
            shape = shapes.get(state, OPEN)
            one = recording.value("one", shape)
            value = None if zero else recording.sum(shape, (1, value, one))
        starts[state] = value
        shape = shapes.get(state, OPEN) if value is None else value.shape
        old[state] = recording.value("state", shape, state=state)
    first_of_step = len(recording.ops)
    new = _next_states(step, old, name)
    values = []
    for state, value in new.items():
        if not isinstance(value, Value):
            if not is_number(value):
                rule = f"state {state!r} of {name} must be a value, got {type(value).__name__}"
                raise TypeError(rule)
            value = old[state].like(value, "a state")
        recording.check(value)
        values.append(value.index)
    ops = tuple(recording.ops)
    per_step = {i for i, c in enumerate(recording.constants) if isinstance(c, PerStep)}
    program = Program(
        ops,
        tuple(recording.names),
        tuple(start),
        tuple(value.index for value in old.values()),
        tuple(None if value is None else value.index for value in starts.values()),
        tuple(values),
        () if isinstance(result, Mapping) else _loop_invariants(ops, values, per_step),
        frozenset(per_step),
    )
    for op in ops[:first_of_step]:
        if per_step & {*op.constants}:
            raise TypeError(f"numbers of per_step belong into the step of {name}, not before it")
    return program, recording.constants, default


def _next_states(step: Callable, old: Mapping[str, Value], name: str) -> dict[str, Any]:
    """Return the result of a step, in the order of the states."""
    where = f"; line {step.__code__.co_firstlineno}" if hasattr(step, "__code__") else ""
    try:
        inspect.signature(step).bind(**old)
    except TypeError as error:
        raise TypeError(f"the step of {name} must take {', '.join(old)}: {error}{where}") from None
    new = step(**old)
    if not isinstance(new, Mapping) or {*new} != {*old}:
        returned = ", ".join(new) if isinstance(new, Mapping) else type(new).__name__
        rule = f"the step of {name} must return the states {', '.join(old)}, got {returned}{where}"
        raise TypeError(rule)
    return {state: new[state] for state in old}


def _loop_invariants(ops: tuple[Op, ...], new: list[int], per_step: set[int]) -> tuple[int, ...]:
    """The values that steps read, that no step changes, and that are not free to compute."""
    changing, work = set(), set()
    for i, op in enumerate(ops):
        if op.kind == "state" or changing & {*op.args} or per_step & {*op.constants}:
            changing.add(i)
        elif op.kind not in READS and (op.kind != "sum" or work & {*op.args}):
            work.add(i)
    invariants, queue, visited = set(), list(new), set()
    while queue:
        i = queue.pop()
        if i in work:
            invariants.add(i)
        elif i not in visited:
            visited.add(i)
            queue += ops[i].args
    return tuple(sorted(invariants))
