"""The compiler: traces a solver and emits its program on the machine of a kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ... import Read
from ..._core import checks
from ..._core.constants import xp
from ...kernels import Kernel
from ...kernels._kernel import check_kernel
from ...kernels._log_bilinear import check_positive
from ...solvers._language.analysis import QUERIES, READOUT, SUPPORTS, roles
from ...solvers._language.trace import trace
from ...solvers._language.values import ENTRIES, FEATURES, SCALAR, Program
from ...solvers._run import NORMALISED, OF_KERNEL, Solver, check_numbers
from ...transformer._weights import Transformer
from .._assembly import choice, slots as places
from .._assembly.linear_attention import LinearAttention
from .._assembly.machine import Machine
from .._assembly.normalised_attention import NormalisedAttention
from .._assembly.options import Options, Softmax
from .emit import Emitter
from .instructions import Lowering
from .order import order


def compile(solver: Solver, kernel: Kernel, *, num_features: int, **keywords: Any) -> Transformer:
    """Compile a solver to the weights of a transformer that runs it.

    A step takes as few blocks as its operations allow. The states are slots of the same names, and
    `icl_krr.run_with_cache` returns them after every step.

    Args:
        solver: function with the mark `icl_krr.solver`, such as one of `icl_krr.solvers`.
        keywords: those of the solver, `steps`, and `icl_krr.constructions.Options`.

    >>> import icl_krr as ik
    >>> cg = ik.solvers.conjugate_gradient
    >>> numbers = {"num_features": 3, "ridge": 0.1, "steps": 16}
    >>> ik.compile(cg, ik.Linear(), **numbers).blocks_per_step
    5
    >>> ik.compile(cg, ik.Gaussian(), form="fused", **numbers).blocks_per_step
    5
    """
    return construction_of(solver)(kernel, num_features=num_features, **keywords)


def construction_of(solver: Solver) -> Callable[..., Transformer]:
    """Return the function (kernel, num_features, keywords) -> transformer of a solver."""
    checks.instance("solver", solver, Solver, "a function with the mark icl_krr.solver")
    if clash := {*solver.parameters} & {*Options.__annotations__}:
        raise TypeError(f"keyword {min(clash)!r} must have another name: all constructions have it")

    def build(kernel: Kernel, *, num_features: int, **keywords: Any) -> Transformer:
        options = {name: keywords.pop(name) for name in Options.__annotations__ if name in keywords}
        check_kernel(kernel)
        keywords = solver.defaults | keywords
        steps = keywords.pop("steps", 1)
        checks.count("steps", steps)
        if "ridge" in keywords:
            checks.positive_scalar("ridge", keywords["ridge"])
        sketched = options.get("sketch") is not None
        program, constants = trace(solver.function, kernel, steps, keywords, sketched)
        check_numbers(constants)
        m = _choose_machine(program, constants, kernel, num_features, options)
        if "ridge" in keywords:
            m.solves(keywords["ridge"])
        return emit(m, program, constants, steps)

    return choice.construction_like(solver, solver.parameters, Options, build)


def _choose_machine(
    program: Program, constants: Sequence, kernel: Kernel, num_features: int, options: Mapping
) -> Machine:
    """Make the machine of a kernel that has all that a program asks for."""
    kinds = {op.kind for op in program.ops}
    sinks = {op.constants[0] for op in program.ops if op.kind in NORMALISED}
    if len(sinks) > 1 or (sinks and "diagonal" in kinds):
        raise ValueError(
            "a solver must have one weight of the sink: K.normalised(c) with one c, and without "
            "K.diagonal"
        )
    if "average" in kinds and kinds & OF_KERNEL:
        raise ValueError("a solver with K.average must read nothing else of K")
    if sinks:
        return _normalised_machine(kernel, num_features, constants[sinks.pop()], **options)
    if "average" in kinds:
        return choice.average_machine(kernel, num_features, **options)
    if "features" in kinds:
        return choice.linear_machine(kernel, num_features, **options)
    return choice.machine(kernel, num_features, **options)


def _normalised_machine(kernel: Kernel, num_features: int, sink, **options) -> NormalisedAttention:
    """Make a softmax machine whose sink has this weight at the supports."""
    check_positive(kernel, "to have a softmax normaliser")
    attention = options.get("attention")
    c = xp.asarray(sink, checks.dtype(options.get("dtype")))
    shift = attention.log_sink if isinstance(attention, Softmax) else 0.0
    sinks = {places.SUPPORTS: xp.log(c), places.QUERIES: shift}
    m = choice.softmax_machine(kernel, num_features, sinks, NormalisedAttention, **options)
    m.sink_weight = c
    return m


def run_on(m: Machine, function: Callable, steps: int, **numbers: Any) -> Transformer:
    """Return the transformer that runs a function of the language on a machine."""
    checks.count("steps", steps)
    return emit(m, *trace(function, m.kernel, steps, numbers), steps)


def emit(m: Machine, program: Program, constants: Sequence[Any], steps: int) -> Transformer:
    """Return the transformer that runs a program on a machine."""
    needed, ops = list(roles(program)), program.ops
    states = list(zip(program.states, program.start, program.old, program.new, strict=True))
    emitter = Emitter(m, program, constants, tuple(needed))
    for _, start, *others in states:
        if start is not None and _has_product(program, start):  # this is not zero at the queries
            for i in (start, *others):
                needed[i] |= {QUERIES}
    starts, slots, invariants = {}, emitter.slots, {}
    for state, start, i, later in states:
        read = None if start is None or state == READOUT else emitter.embedded(start)
        if start is not None and read is None:
            starts[state] = start
        slots[state] = _declare(m, state, ops[i].shape, needed[later], read)
    for i in program.invariants:
        name = program.names[i] or f"invariant_{i}"
        invariants[i] = name = f"{name}_" if name in slots else name
        starts[name], slots[name] = i, _declare(m, name, ops[i].shape, needed[i], None)
    new = {state: i for state, _, old, i in states if i != old}
    preconditioners = {op.constants[0] for op in ops if op.kind == "nystrom"}
    emitter.nystrom = {k: nystrom_features(m, constants[k]) for k in preconditioners}

    def instructions(values: Mapping[str, int], invariants: Mapping[int, str]) -> Any:
        lowering = Lowering(program, needed, values, invariants, m.scales_by_head, m.splits)
        return order(lowering.instructions(), m.scales_by_head)

    def before() -> None:
        emitter.start(instructions(starts, {}))

    def step() -> None:
        emitter.step(instructions(new, invariants))

    return m.transformer(step, steps=steps, readout=slots[READOUT], prologue=before)


def _has_product(program: Program, i: int) -> bool:
    """Whether a value is a sum with a product with the kernel matrix."""
    op = program.ops[i]
    if op.kind == "sum":
        return any(_has_product(program, arg) for arg in op.args)
    return op.kind == "kernel"


def _declare(m: Any, state: str, shape: str, needed: frozenset, starts_as: Read | None) -> Read:
    """Declare the slot of a state at the tokens where it is needed."""
    both = places.SUPPORTS_AND_QUERIES
    if state == READOUT:
        if SUPPORTS in needed and "support" not in m.fit_at:
            m.fit_at = both
        return m.state_of_fit()
    if shape == SCALAR:
        return m.scalar(state, "sum over the supports")
    if shape == FEATURES:
        if state == "features" and not m.layer.is_read:  # the machine has their slot
            return m.features
        return m.state(state, both, "of each token", starts_as, m.features.width)
    at = both if QUERIES in needed else m.unknowns_at
    name, about = {
        "alpha": (m.solution, m.about_solution),
        "r": ("r", f"residual {places.label(m.right)} - A {m.solution}"),
        "p": (m.direction, "search direction"),
        "next_alpha": ("next_alpha", f"{m.solution} one step later"),
    }.get(state, (state, "of each token" if shape == ENTRIES else "vector"))
    width = m.diagonal_width if shape == ENTRIES else m.right.width
    return m.state(name, at, about, starts_as, width)


def nystrom_features(m: Machine, preconditioner: Any) -> tuple[Read, Any]:
    """Return the slot of the features F, which the first blocks compute, and the matrix C."""
    if not isinstance(m, LinearAttention):
        raise ValueError(
            "attention must be 'linear' for a Nystrom preconditioner, "
            f"got {m.spec.attention!r}; use preconditioner='jacobi'"
        )
    parts = preconditioner.landmarks, preconditioner.mix, preconditioner.core
    landmarks, mix, core = (xp.asarray(part, m.dtype) for part in parts)
    directions = xp.matmul(m.features_at(landmarks).T, mix)
    F = m.state("nystrom", places.SUPPORTS, "Nystrom features", width=preconditioner.rank)
    m.late.append((F, m.features @ directions, None))
    return F, core
