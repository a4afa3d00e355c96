"""The delta rules: causal models that learn from one support after the other, one in each step."""

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
from ._assembly import prefix
from ._assembly.choice import linear_machine, machine
from ._assembly.linear_attention import LinearAttention
from ._assembly.slots import QUERIES, SUPPORTS, SUPPORTS_AND_QUERIES, repeat

_STEPS = 256
"""Default number of steps, and the largest number of supports of a model with this default."""


class _SequentialUpdates:
    """A machine on which the supports update the model one after the other, one in each step.

    The step mask says which supports have been reached. In every step, all of these compute their
    coefficients again, which do not change any more, because they depend on earlier supports only.
    """

    def __init__(self, make: Callable, kernel: Kernel, steps: int | None, options: Any):
        if make is linear_machine:
            causal.refuse_window(options.get("window"))
        self.steps = _STEPS if steps is None else steps
        checks.count("steps", self.steps)
        causal.check_prefix(options.get("prefix", "exclusive"))
        self.inclusive = options.get("prefix") == "inclusive"
        default_limit = {"max_supports": _STEPS} if steps is None else {}
        # coefficients depend on earlier supports only, also where predictions do not
        machine_options: Any = default_limit | options | {"prefix": "exclusive"}
        self.m = m = prefix.causal_machine(make, kernel, **machine_options)
        self.alpha = m.state("alpha", SUPPORTS, "dual coefficients")
        self.next_alpha = m.state("next_alpha", SUPPORTS, "alpha one step later")
        self.prediction = m.state_of_fit()
        self.step_mask = m.state("step_mask", SUPPORTS, "1 at reached supports, else <= 0", width=1)
        about = "step size if reached, else 0"
        self.current_rate = m.state("current_rate", SUPPORTS, about, width=1)

    def build(
        self, rate, predict, include, prepare, refresh=lambda: None, loss=None, erased=None
    ) -> Transformer:
        """Return the transformer whose supports learn `rate` times the derivative of the loss.

        Args:
            rate: read of the step sizes of the supports.
            predict: computes the predictions from `next_alpha`, in a scratch slot of the given name
                if it needs one.
            include: adds the contribution of a support to its own prediction.
            prepare: runs before the first update.
            refresh: computes what reached supports pass to those after them.
            loss: loss from `icl_krr.losses`; None for the squared error.
            erased: computes the value that a support erases; default None, its prediction.
        """
        m, next_alpha, prediction = self.m, self.next_alpha, self.prediction

        def learn(error: Read) -> None:
            m.multiply(error, m.per_output(self.current_rate), to=next_alpha)

        def derivative(error: Read) -> Read:
            return error if loss is None else loss.record(m, error)

        def start() -> None:
            prepare()
            before = m.scratch("before", SUPPORTS, "number of supports before", width=1)
            m.cumsum(m.support, to=before)
            m.add(m.support - before, to=self.step_mask)
            advance()
            learn(derivative(m.y))
            refresh()
            advance()

        def advance() -> None:
            """Set current_rate = rate relu(step_mask) and add 1 - relu(step_mask) to step_mask.

            This is exact, because step_mask is an integer <= 1.
            """
            with m.together():
                m.add(-self.current_rate, to=self.current_rate)
                m.activate("relu", self.step_mask, rate, to=self.current_rate)
                m.add(m.support, to=self.step_mask)
                m.activate("relu", self.step_mask, -m.support, to=self.step_mask)

        def step() -> None:
            f = predict("f")
            predictions = {SUPPORTS_AND_QUERIES: f}
            if self.inclusive and m.window is not None:  # a support has one place of the window
                predictions = {QUERIES: f, SUPPORTS: Read({}, f.width)}
                if m.window > 1:
                    with m.within(m.window - 1):
                        predictions[SUPPORTS] = predict("f_of_fewer")
            error = derivative(m.y - (f if erased is None else erased()))
            with m.together():
                for at, value in predictions.items():
                    m.add(value - prediction, to=prediction, at=at)
                if self.inclusive:
                    include()
                m.add(next_alpha - self.alpha, to=self.alpha)
                m.add(-next_alpha, to=next_alpha)
                learn(error)
            refresh()
            advance()

        return m.transformer(step, steps=self.steps, readout=prediction, prologue=start)

    def along(self, keys: Read, diagonal: Read) -> tuple[Callable, Callable]:
        """Return `predict` and `include` for supports that write along keys [m], not features phi.

        `diagonal` reads phi . key at a support.
        """
        m = self.m
        write = partial(m.multiply, m.per_output(diagonal), self.next_alpha, to=self.prediction)
        return lambda _: m.inner_products_times(self.next_alpha, keys=keys), write


def rule(solver: Any, make: Callable) -> Callable:
    """Decorate the builder of a rule's construction, which takes updates and numbers."""

    def decorate(build_rule: Callable) -> Callable[..., Transformer]:
        def build(kernel: Kernel, *, steps: int | None, **options: Any) -> Transformer:
            numbers = {name: options.pop(name) for name in signature(solver.function).parameters}
            solver.function(**numbers)  # which checks them
            return build_rule(_SequentialUpdates(make, kernel, steps, options), **numbers)

        return prefix.compiled_from(solver)(build)

    return decorate


@rule(solvers.delta_rule, machine)
def delta_rule(updates, step_size, normalised, loss, erase):
    m, erased = updates.m, None
    size = xp.asarray(step_size, m.dtype) * m.strength
    if erase is not None:
        causal.refuse_window(m.window)
        if not isinstance(m, LinearAttention):
            message = "erase must be None in softmax attention, which has no feature vectors"
            raise ValueError(message)
        causal.check_erase(erase, m.x.width, m.features.width)
        queries = m.x @ xp.asarray(erase, m.dtype).T
        erased = partial(m.inner_products_times, updates.next_alpha, queries=queries)
    return _correction(updates, size, (lambda k: k) if normalised else None, loss, erased)


@rule(solvers.implicit_delta_rule, machine)
def implicit_delta_rule(updates, step_size):
    m = updates.m
    eta = xp.asarray(step_size, m.dtype) * m.strength

    def divisor(diagonal: Read) -> Read:  # of c k(x, x) with c = m.scale
        return m.scale * m.support + m.multiply(eta, diagonal, to="eta_k")

    return _correction(updates, eta, divisor)


def _correction(updates: Any, size: Read, divisor: Any, loss=None, erased=None) -> Transformer:
    """Return the delta rule with the given step sizes, divided by a function of c k(x, x) / c."""
    m, diagonal, rate = updates.m, Read({}, 1), size
    if divisor is not None or updates.inclusive:
        diagonal = m.state("diagonal", SUPPORTS, "k(x, x)", width=1)
    if divisor is not None:
        rate = m.state("rate", SUPPORTS, "step size", width=1)

    def prepare() -> None:
        if diagonal.blocks:
            m.kernel_diagonal(diagonal)
        if divisor is not None:
            m.divide(m.scale * size, divisor(diagonal), to=rate)

    def fit(to: str) -> Read:
        return m.finish(m.kernel_times(updates.next_alpha), to=to) * (1 / m.scale)

    _, include = updates.along(diagonal, (1 / m.scale) * diagonal)
    return updates.build(rate, fit, include, prepare=prepare, loss=loss, erased=erased)


@rule(solvers.momentum_delta_rule, linear_machine)
def momentum_delta_rule(updates, step_size, momentum, decay):
    m, next_alpha, r = updates.m, updates.next_alpha, updates.m.spec.num_outputs
    phi = m.over_outputs(m.features)
    _, log_momentum = _with_logs(m, "momentum", momentum)
    decays, log_decay = _with_logs(m, "decay", decay)
    momenta = prefix.accumulate(m, "log_momentum", "log momenta", log_momentum, SUPPORTS)
    gate_of_M = gated(m, momenta)
    gate_of_S = gated(m, prefix.accumulate(m, "log_decay", "log decays before", log_decay, ()))
    heads = gate_of_M.width
    eta = prefix.per_support(m, "step_size", step_size)
    size = m.state("size", SUPPORTS, "step size / decay", width=1)
    stepped = m.state("stepped", SUPPORTS, "step size x phi(x)", width=m.features.width)
    M = m.state("M", SUPPORTS, "momentum", width=phi.width)
    total = np.kron(np.eye(r, dtype=m.dtype), np.ones((phi.width // r, 1), m.dtype))

    def prepare() -> None:
        m.divide(eta, prefix.one_elsewhere(m, decays, "decays", "decay, and 1 elsewhere"), to=size)
        m.multiply(repeat(eta, stepped.width), m.features, to=stepped)

    def predict(to: str) -> Read:
        new = m.scratch("new_M", SUPPORTS, "momentum", width=phi.width)
        here = repeat(m.per_output(m.support), heads)
        m.head(here, repeat(next_alpha, heads), phi, to=new, heads=heads, log_gate=gate_of_M)
        m.multiply(repeat(next_alpha, phi.width), phi, to=new)
        f = m.scratch(to, SUPPORTS_AND_QUERIES, "S phi")
        values = repeat(m.per_output(size), heads)  # the decay of j does not count for M_j
        out = None if heads == r else total
        m.emit(Heads(phi, new, (Write(values, out, f.slot),), heads, gate_of_S))
        m.add(new - M, to=M)
        return f

    def include() -> None:
        f, new = (m.layout.read(name, m.dtype) for name in ("f", "new_M"))
        m.multiply(m.per_output(decays - m.support), f, to=updates.prediction)
        m.multiply(m.over_outputs(stepped), new, to=updates.prediction, out=total)

    return updates.build(m.strength, predict, include, prepare=prepare)


def _with_logs(m: LinearAttention, name: str, value: Any) -> tuple[Read, Read]:
    """The reads of a number >= 0 of every support, and of its logarithm; the floor stands for 0."""
    here = prefix.per_support(m, name, value)
    if np.ndim(value) == 0:
        return here, xp.log(xp.asarray(value, m.dtype) + prefix.floor(m)) * m.support
    log = m.scratch(f"log_{name}_here", SUPPORTS, f"logarithm of {name}", width=1)

    def prepare() -> None:
        positive = prefix.one_elsewhere(m, here + prefix.floor(m) * m.support, f"{name}_or_1", name)
        m.activate("log", positive, m.support, to=log)

    m.preparations.append(prepare)
    return here, log


def gated(m: LinearAttention, sums: Read) -> Read:
    """The cumulative logarithms plus the log gates, for all outputs."""
    both = sums if m.log_gate is None else repeat(sums, m.log_gate.width) + m.log_gate
    return m.over_outputs(both)


@rule(solvers.preconditioned_delta_rule, linear_machine)
def preconditioned_delta_rule(updates, step_size, initial, squash, center):
    m = updates.m
    width = m.features.width
    initial = initial_curvature(initial, width)
    curvature = m.state("curvature", ROLES, "sum of squared features; 1 elsewhere", width=width)
    written = m.state("written", SUPPORTS, "preconditioned features", width=width)
    diagonal = m.state("diagonal", SUPPORTS, "phi . M phi", width=1)

    def prepare() -> None:
        phi, here, gate = m.features_here(SUPPORTS), repeat(m.support, width), m.log_gate
        # A_i = e^(G_i) A_0 + sum_(j <= i) e^(G_i - G_j) beta_j phi_j^2
        weighted = m.multiply(phi, repeat(m.strength, width), to="weighted")
        squares = m.multiply(weighted, phi, to="squares")
        m.add(repeat(m.one - m.support, width), to=curvature)
        m.add(prefix.floor(m) * here, to=curvature)
        heads = 1 if gate is None else gate.width
        flags = repeat(m.support, heads)
        m.head(flags, flags, squares, to=curvature, heads=heads, log_gate=gate)
        m.add(squares, to=curvature)
        first = m.support @ xp.asarray(initial, m.dtype)[None]
        if gate is None:
            m.add(first, to=curvature)
        else:
            m.activate("exp", repeat(gate, width), first, to=curvature)
        if squash is None:
            m.divide(phi, curvature, to=written)
        else:  # u / (1 + |u|) with u = log A - c
            u = m.scratch("log_curvature", SUPPORTS, "log A - c", width=width)
            m.activate("log", curvature, here, to=u)
            m.add(-xp.asarray(center, m.dtype) * here, to=u)
            size = m.scratch("size", ROLES, "1 + |log A - c|", width=width)
            with m.together():
                m.add(repeat(m.one, width), to=size)
                m.activate("relu", u, here, to=size)
                m.activate("relu", -u, here, to=size)
            power = -xp.log(xp.asarray(squash, m.dtype)) * m.divide(u, size, to="power")
            m.activate("exp", power, phi, to=written)
        m.multiply(written, m.features, to=diagonal, out=np.ones((width, 1), m.dtype))

    rate = xp.asarray(step_size, m.dtype) * m.strength
    return updates.build(rate, *updates.along(written, diagonal), prepare=prepare)


@rule(solvers.kalman_delta_rule, linear_machine)
def kalman_delta_rule(updates, ridge, process_noise, covariance, info_scale):
    m = updates.m
    width = m.features.width
    ridge, scale = (xp.asarray(value, m.dtype) for value in (ridge, info_scale))
    omega = prefix.per_support(m, "process_noise", process_noise)
    pool = np.eye(width, dtype=m.dtype)
    if covariance == "isotropic":
        pool = np.full((width, 1), 1 / width, m.dtype)
    count = pool.shape[1]
    weighted = m.state("weighted", SUPPORTS, "strength phi(x)", width=width)
    squares = m.state("squares", SUPPORTS, "strength phi^2", width=width)
    squared_gate = m.state("squared_gate", SUPPORTS, "squared gate", width=count)
    change = m.state("change", SUPPORTS, "what a support adds to the precision", width=count)
    gain = m.state("gain", SUPPORTS, "gain", width=width)
    diagonal = m.state("diagonal", SUPPORTS, "phi . gain", width=1)
    here, reached = (repeat(flag, count) for flag in (m.support, updates.current_rate))

    def prepare() -> None:
        m.multiply(m.features_here(SUPPORTS), repeat(m.strength, width), to=weighted)
        m.multiply(weighted, m.features, to=squares)
        if m.token_log_gate is None:
            m.add(here, to=squared_gate)
        else:
            gates = repeat(2 * m.token_log_gate, width)
            m.activate("exp", gates, repeat(m.support, width), to=squared_gate, out=pool)

    def refresh() -> None:
        total_change = m.scratch("added", SUPPORTS, "changes of the precision before", width=count)
        m.cumsum(change, to=total_change)
        # divisors are 1 at other tokens, where merged slots have rounding errors in place of zeros
        precision = repeat(m.one, count) + total_change
        predicted = m.scratch("predicted", ROLES, "predicted covariance; 1 elsewhere", width=count)
        with m.together():
            m.divide(squared_gate, precision, to=predicted)
            m.add(repeat(omega, count), to=predicted)
            m.add(repeat(m.one - m.support, count), to=predicted)
        each = repeat(predicted, width)
        numerator = m.multiply(each, weighted, to="gain_above")
        prediction_variance = m.scratch("gain_below", SUPPORTS, "strength phi . P phi", width=1)
        m.multiply(each, squares, to=prediction_variance, out=np.ones((width, 1), m.dtype))
        with m.together():
            m.add(-change, to=change)
            m.divide(reached, predicted, to=change)
            m.multiply(reached, squares @ (scale / ridge * pool) - precision, to=change)
        divisor = prediction_variance + ridge * m.one
        with m.together():
            m.add(-gain, to=gain)
            m.divide(numerator, repeat(divisor, width), to=gain)
            m.add(-diagonal, to=diagonal)
            m.divide(prediction_variance, divisor, to=diagonal)

    return updates.build(m.support, *updates.along(gain, diagonal), prepare, refresh)
