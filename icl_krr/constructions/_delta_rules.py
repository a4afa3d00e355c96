"""The delta rules: causal models whose supports learn one after the other, one in each step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import Any

import numpy as np

from .. import Kernel, solvers
from .._core import causal, checks
from .._core.constants import xp
from ..residual import ROLES, Read
from ..solvers._delta_rules import initial_curvature
from ..transformer._weights import Heads, Transformer, Write
from ._assembly.choice import linear_machine, machine
from ._assembly.linear_attention import LinearAttention
from ._assembly.prefix import (
    accumulate,
    causal_machine,
    compiled_from,
    floor,
    of_supports,
    one_elsewhere,
)
from ._assembly.slots import QUERIES, SUPPORTS, SUPPORTS_AND_QUERIES, spread

STEPS = 256
"""Default number of steps, and the largest number of supports of a model with this default."""


class Turns:
    """A machine, and the states of its supports: each has its turn in one step, and then learns.

    In every step, all supports whose turn has come compute their coefficients again. These do not
    change any more, because they depend on earlier supports only.
    """

    def __init__(self, make: Callable, kernel: Kernel, steps: int | None, options: Any):
        if make is linear_machine:
            causal.no_window(options.get("window"))
        self.steps = STEPS if steps is None else steps
        checks.count("steps", self.steps)
        causal.check_prefix(options.get("prefix", "exclusive"))
        self.inclusive = options.get("prefix") == "inclusive"
        most = {"max_supports": STEPS} if steps is None else {}
        # coefficients depend on earlier supports only, also where predictions do not
        given: Any = most | options | {"prefix": "exclusive"}
        self.m = m = causal_machine(make, kernel, **given)
        self.alpha = m.state("alpha", SUPPORTS, "dual coefficients")
        self.ahead = m.state("ahead", SUPPORTS, "alpha one step later")
        self.prediction = m.state_of_fit()
        self.turn = m.state("turn", SUPPORTS, "1 if the support has its turn, else <= 0", width=1)
        self.now = m.state("now", SUPPORTS, "step size of a support that has its turn", width=1)

    def learns(
        self, rate, predict, include, prepare, refresh=lambda: None, loss=None, erased=None
    ) -> Transformer:
        """Return the transformer whose supports learn `rate` times the derivative of the loss.

        `predict` computes the predictions from `ahead`, in a scratch slot of the given name if it
        needs one, and `include` adds what a support itself wrote. `prepare` runs before the first
        turn; in `refresh`, supports whose turn has come compute something for those after them.
        `erased` computes what a support erases, by default its prediction.
        """
        m, ahead, prediction = self.m, self.ahead, self.prediction

        def learn(error: Read) -> None:
            m.multiply(error, m.per_output(self.now), to=ahead)

        def derivative(error: Read) -> Read:
            return error if loss is None else loss.record(m, error)

        def start() -> None:
            prepare()
            before = m.scratch("before", SUPPORTS, "number of supports before", width=1)
            m.sum_before(m.support, to=before)
            m.add(m.support - before, to=self.turn)
            advance()
            learn(derivative(m.y))
            refresh()
            advance()

        def advance() -> None:
            """now = rate relu(turn), turn += 1 - relu(turn): exact, as turn is an integer <= 1."""
            with m.together():
                m.add(-self.now, to=self.now)
                m.activate("relu", self.turn, rate, to=self.now)
                m.add(m.support, to=self.turn)
                m.activate("relu", self.turn, -m.support, to=self.turn)

        def step() -> None:
            f = predict("f")
            shown = {SUPPORTS_AND_QUERIES: f}
            if self.inclusive and m.window is not None:  # a support has one place of the window
                shown = {QUERIES: f, SUPPORTS: Read({}, f.width)}
                if m.window > 1:
                    with m.within(m.window - 1):
                        shown[SUPPORTS] = predict("f_of_fewer")
            error = derivative(m.y - (f if erased is None else erased()))
            with m.together():
                for at, value in shown.items():
                    m.add(value - prediction, to=prediction, at=at)
                if self.inclusive:
                    include()
                m.add(ahead - self.alpha, to=self.alpha)
                m.add(-ahead, to=ahead)
                learn(error)
            refresh()
            advance()

        return m.transformer(step, steps=self.steps, readout=prediction, prologue=start)

    def along(self, keys: Read, own: Read) -> tuple[Callable[[str], Read], Callable[[], Any]]:
        """What predicts and includes if supports write along the keys [m], not their features phi.

        `own` reads phi . key at a support.
        """
        m = self.m
        write = partial(m.multiply, m.per_output(own), self.ahead, to=self.prediction)
        return lambda _: m.inner_products_times(self.ahead, keys=keys), write


def rule(solver: Any, make: Callable) -> Callable:
    """Decorate what builds the construction of a rule, from its turns and its numbers."""

    def decorate(write: Callable) -> Callable[..., Transformer]:
        def build(kernel: Kernel, *, steps: int | None, **options: Any) -> Transformer:
            numbers = {name: options.pop(name) for name in signature(solver.function).parameters}
            solver.function(**numbers)  # which checks them
            return write(Turns(make, kernel, steps, options), **numbers)

        return compiled_from(solver)(build)

    return decorate


@rule(solvers.delta_rule, machine)
def delta_rule(turns, step_size, normalised, loss, erase):
    m, erased = turns.m, None
    size = xp.asarray(step_size, m.dtype) * m.strength
    if erase is not None:
        causal.no_window(m.window)
        if not isinstance(m, LinearAttention):
            raise ValueError(
                "erase must be None in softmax attention, which has no feature vectors"
            )
        causal.check_erase(erase, m.x.width, m.features.width)
        queries = m.x @ xp.asarray(erase, m.dtype).T
        erased = partial(m.inner_products_times, turns.ahead, queries=queries)
    return corrected(turns, size, (lambda own: own) if normalised else None, loss, erased)


@rule(solvers.implicit_delta_rule, machine)
def implicit_delta_rule(turns, step_size):
    m = turns.m
    eta = xp.asarray(step_size, m.dtype) * m.strength

    def divisor(own: Read) -> Read:  # own is c k(x, x) with c = m.scale
        return m.scale * m.support + m.multiply(eta, own, to="eta_k")

    return corrected(turns, eta, divisor)


def corrected(turns: Turns, size: Read, divisor: Any, loss: Any = None, erased: Any = None) -> Any:
    """Return the delta rule with the given step sizes, divided by a function of c k(x, x) / c."""
    m, own, rate = turns.m, Read({}, 1), size
    if divisor is not None or turns.inclusive:
        own = m.state("diagonal", SUPPORTS, "k(x, x)", width=1)
    if divisor is not None:
        rate = m.state("rate", SUPPORTS, "step size", width=1)

    def prepare() -> None:
        if own.blocks:
            m.kernel_diagonal(own)
        if divisor is not None:
            m.divide(m.scale * size, divisor(own), to=rate)

    def fit(to: str) -> Read:
        return m.finish(m.kernel_times(turns.ahead), to=to) * (1 / m.scale)

    _, include = turns.along(own, (1 / m.scale) * own)
    return turns.learns(rate, fit, include, prepare=prepare, loss=loss, erased=erased)


@rule(solvers.momentum_delta_rule, linear_machine)
def momentum_delta_rule(turns, step_size, momentum, decay):
    m, ahead, r = turns.m, turns.ahead, turns.m.spec.num_outputs
    phi = m.over_outputs(m.features)
    _, log_momentum = with_logs(m, "momentum", momentum)
    kept, log_decay = with_logs(m, "decay", decay)
    gate_of_M = gated(m, accumulate(m, "log_momentum", "log momenta", log_momentum, SUPPORTS))
    gate_of_S = gated(m, accumulate(m, "log_decay", "log decays before", log_decay, ()))
    heads = gate_of_M.width
    eta = of_supports(m, "step_size", step_size)
    size = m.state("size", SUPPORTS, "step size / decay", width=1)
    stepped = m.state("stepped", SUPPORTS, "step size x phi(x)", width=m.features.width)
    M = m.state("M", SUPPORTS, "momentum", width=phi.width)
    total = np.kron(np.eye(r, dtype=m.dtype), np.ones((phi.width // r, 1), m.dtype))

    def prepare() -> None:
        m.divide(eta, one_elsewhere(m, kept, "decays", "decay, and 1 elsewhere"), to=size)
        m.multiply(spread(eta, stepped.width), m.features, to=stepped)

    def predict(to: str) -> Read:
        new = m.scratch("new_M", SUPPORTS, "momentum", width=phi.width)
        here = spread(m.per_output(m.support), heads)
        m.head(here, spread(ahead, heads), phi, to=new, heads=heads, log_gate=gate_of_M)
        m.multiply(spread(ahead, phi.width), phi, to=new)
        f = m.scratch(to, SUPPORTS_AND_QUERIES, "S phi")
        values = spread(m.per_output(size), heads)  # the decay of j does not count for M_j
        out = None if heads == r else total
        m.emit(Heads(phi, new, (Write(values, out, f.slot),), heads, gate_of_S))
        m.add(new - M, to=M)
        return f

    def include() -> None:
        f, new = (m.layout.read(name, m.dtype) for name in ("f", "new_M"))
        m.multiply(m.per_output(kept - m.support), f, to=turns.prediction)
        m.multiply(m.over_outputs(stepped), new, to=turns.prediction, out=total)

    return turns.learns(m.strength, predict, include, prepare=prepare)


def with_logs(m: LinearAttention, name: str, value: Any) -> tuple[Read, Read]:
    """The reads of a number >= 0 of every support, and of its logarithm; the floor stands for 0."""
    here = of_supports(m, name, value)
    if np.ndim(value) == 0:
        return here, xp.log(xp.asarray(value, m.dtype) + floor(m)) * m.support
    log = m.scratch(f"log_{name}_here", SUPPORTS, f"logarithm of {name}", width=1)

    def prepare() -> None:
        positive = one_elsewhere(m, here + floor(m) * m.support, f"{name}_or_1", name)
        m.activate("log", positive, m.support, to=log)

    m.preparations.append(prepare)
    return here, log


def gated(m: LinearAttention, sums: Read) -> Read:
    """The cumulative logarithms plus the log gates, for all outputs."""
    both = sums if m.log_gate is None else spread(sums, m.log_gate.width) + m.log_gate
    return m.over_outputs(both)


@rule(solvers.preconditioned_delta_rule, linear_machine)
def preconditioned_delta_rule(turns, step_size, initial, squash, center):
    m = turns.m
    width = m.features.width
    initial = initial_curvature(initial, width)
    curvature = m.state("curvature", ROLES, "sum of squared features; 1 elsewhere", width=width)
    written = m.state("written", SUPPORTS, "preconditioned features", width=width)
    own = m.state("diagonal", SUPPORTS, "phi . M phi", width=1)

    def prepare() -> None:
        phi, here, gate = m.features_here(SUPPORTS), spread(m.support, width), m.log_gate
        # A_i = e^(G_i) A_0 + sum_(j <= i) e^(G_i - G_j) beta_j phi_j^2
        weighted = m.multiply(phi, spread(m.strength, width), to="weighted")
        squares = m.multiply(weighted, phi, to="squares")
        m.add(spread(m.one - m.support, width), to=curvature)
        m.add(floor(m) * here, to=curvature)
        heads = 1 if gate is None else gate.width
        flags = spread(m.support, heads)
        m.head(flags, flags, squares, to=curvature, heads=heads, log_gate=gate)
        m.add(squares, to=curvature)
        first = m.support @ xp.asarray(initial, m.dtype)[None]
        if gate is None:
            m.add(first, to=curvature)
        else:
            m.activate("exp", spread(gate, width), first, to=curvature)
        if squash is None:
            m.divide(phi, curvature, to=written)
        else:  # u / (1 + |u|) with u = log A - c
            u = m.scratch("log_curvature", SUPPORTS, "log A - c", width=width)
            m.activate("log", curvature, here, to=u)
            m.add(-xp.asarray(center, m.dtype) * here, to=u)
            size = m.scratch("size", ROLES, "1 + |log A - c|", width=width)
            with m.together():
                m.add(spread(m.one, width), to=size)
                m.activate("relu", u, here, to=size)
                m.activate("relu", -u, here, to=size)
            power = -xp.log(xp.asarray(squash, m.dtype)) * m.divide(u, size, to="power")
            m.activate("exp", power, phi, to=written)
        m.multiply(written, m.features, to=own, out=np.ones((width, 1), m.dtype))

    rate = xp.asarray(step_size, m.dtype) * m.strength
    return turns.learns(rate, *turns.along(written, own), prepare=prepare)


@rule(solvers.kalman_delta_rule, linear_machine)
def kalman_delta_rule(turns, ridge, process_noise, covariance, info_scale):
    m, now = turns.m, turns.now
    width = m.features.width
    ridge, scale = (xp.asarray(value, m.dtype) for value in (ridge, info_scale))
    omega = of_supports(m, "process_noise", process_noise)
    pool = np.eye(width, dtype=m.dtype)
    if covariance == "isotropic":
        pool = np.full((width, 1), 1 / width, m.dtype)
    count = pool.shape[1]
    weighted = m.state("weighted", SUPPORTS, "strength phi(x)", width=width)
    squares = m.state("squares", SUPPORTS, "strength phi^2", width=width)
    kept = m.state("kept", SUPPORTS, "squared gate", width=count)
    change = m.state("change", SUPPORTS, "what a support adds to the precision", width=count)
    gain = m.state("gain", SUPPORTS, "gain", width=width)
    own = m.state("own", SUPPORTS, "phi . gain", width=1)
    here = spread(m.support, count)

    def prepare() -> None:
        m.multiply(m.features_here(SUPPORTS), spread(m.strength, width), to=weighted)
        m.multiply(weighted, m.features, to=squares)
        if m.own_log_gate is None:
            m.add(here, to=kept)
        else:
            gates = spread(2 * m.own_log_gate, width)
            m.activate("exp", gates, spread(m.support, width), to=kept, out=pool)

    def refresh() -> None:
        added = m.scratch("added", SUPPORTS, "changes of the precision before", width=count)
        m.sum_before(change, to=added)
        # divisors are 1 at other tokens, where merged slots have rounding errors in place of zeros
        precision = spread(m.one, count) + added
        predicted = m.scratch("predicted", ROLES, "predicted covariance; 1 elsewhere", width=count)
        with m.together():
            m.divide(kept, precision, to=predicted)
            m.add(spread(omega, count), to=predicted)
            m.add(spread(m.one - m.support, count), to=predicted)
        each = spread(predicted, width)
        above = m.multiply(each, weighted, to="gain_above")
        below = m.scratch("gain_below", SUPPORTS, "strength phi . P phi", width=1)
        m.multiply(each, squares, to=below, out=np.ones((width, 1), m.dtype))
        with m.together():
            m.add(-change, to=change)
            m.divide(spread(now, count), predicted, to=change)
            m.multiply(spread(now, count), squares @ (scale / ridge * pool) - precision, to=change)
        total = below + ridge * m.one
        with m.together():
            m.add(-gain, to=gain)
            m.divide(above, spread(total, width), to=gain)
            m.add(-own, to=own)
            m.divide(below, total, to=own)

    return turns.learns(m.support, *turns.along(gain, own), prepare=prepare, refresh=refresh)
