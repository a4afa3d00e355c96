"""The operations of a machine that read other tokens, with softmax attention and a sink."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property, reduce
from operator import add
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from ..._core import checks
from ..._core.constants import xp
from ...kernels import Kernel, Pattern
from ...residual import ROLES, Read, join
from .features import add_product, fill_diagonal, tilted
from .machine import Machine
from .options import Softmax
from .slots import SUPPORTS_AND_QUERIES, label

_ZERO = Read({}, 1)
"""A query with which all logits are 0."""


class _Term(NamedTuple):
    """One softmax pattern with logits <query_i, key_j>, and the weight of its contribution."""

    query: Read
    key: Read
    weight: Any


class SoftmaxAttention(Machine):
    """A machine with softmax attention; the kernel is a sum of patterns, and each has one head.

    A head computes sum_j k_ij v_j / (Z_i + c) with Z_i = sum_j k_ij and the sink weight c. The
    first blocks compute the `normaliser` (Z_i + c) / c once from the attention to the sink; times
    the head's output, it is (K v)_i / c. So `scale` is 1 / c, and the model solves (K / c + ridge /
    c) c alpha = y. A head with query 0 computes the mean over all visible tokens, so all tokens
    store the sums over tokens, divided by n + 1.

    A pattern w exp(b <Ux, Uz> - d (|Ux|^2 + |Uz|^2) / 2) has the keys (Uz, -d |Uz|^2 / 2). The
    factor exp(-d |Ux|^2 / 2) of a row cancels in the softmax, and the sink has the logit log c + d
    |Ux|^2 / 2. `sinks` gives different logits log c to different roles of the query token, {roles:
    log c}.
    """

    scalars_at = ROLES
    degree = 1

    def __init__(self, kernel: Kernel, softmax: Softmax, *options: Any, sinks: Mapping | None):
        super().__init__(kernel, "softmax", *options)
        log_c, limit = checks.concrete(softmax.log_sink), int(-np.log(jnp.finfo(self.dtype).tiny))
        if log_c is not None and abs(log_c) > limit:  # ridge / c would be lost
            hint = "" if self.dtype == np.float64 else ", or use float64"
            raise ValueError(
                f"log_sink must be between -{limit} and {limit} for {self.dtype}, got "
                f"{softmax.log_sink}; raise the temperature{hint}"
            )
        log_sink = xp.asarray(softmax.log_sink, self.dtype)
        self.scale = xp.exp(-log_sink)
        self.log_sink = log_sink * self.one
        if sinks is not None:
            parts = [xp.asarray(v, self.dtype) * self.inside(at) for at, v in sinks.items()]
            self.log_sink = reduce(add, parts)
        self.patterns = kernel.patterns(self.dtype, softmax.epsilon, softmax.symmetric)
        self.spec = replace(self.spec, centred=kernel.stationary)
        self.sink_states: dict[tuple[int, int | None], dict[str, Read]] = {}
        self.started = False
        self.half_squares = {
            k: self.state(self.named("half_square", k), SUPPORTS_AND_QUERIES, "|x|^2 / 2", width=1)
            for k, pattern in enumerate(self.patterns)
            if pattern.norm is not None
        }

    @cached_property
    def terms(self) -> list[_Term]:
        """The patterns, cached, because packing merges heads by the identity of query and key."""
        return [self.term(pattern, k) for k, pattern in enumerate(self.patterns)]

    def term(self, pattern: Pattern, k: int) -> _Term:
        x = self.projected(pattern)
        tilt = tilted(self, pattern)
        of_sink, of_support = self.log_sink - tilt, tilt
        if pattern.norm is not None:
            norms = pattern.norm * self.half_squares[k]
            of_sink, of_support = of_sink + norms, of_support - norms
        if self.log_gate is not None:  # the factor exp(G_i) of a row cancels
            of_sink, of_support = of_sink - self.log_gate, of_support - self.log_gate
        query, key = [of_sink], [self.aggregator]
        if of_support.blocks:
            query, key = [self.one, of_sink], [of_support, self.aggregator]
        if pattern.inner is not None:
            query, key = [pattern.inner * x, *query], [x, *key]
        return _Term(join(*query), join(*key), pattern.weight)

    def start(self) -> None:
        """Compute |x|^2 / 2, and the sink weights and normalisers that the steps use."""
        for k, halves in self.half_squares.items():
            x = self.projected(self.patterns[k])
            add_product(self, x, x, 0.5, halves)
        for of, states in self.sink_states.items():
            self.compute(*of, states)
        self.started = True
        super().start()

    def compute(self, k: int, window: int | None, states: dict[str, Read]) -> None:
        """Compute the sink weight of a pattern, and the normalisers that are its reciprocals."""
        term, sink = self.terms[k], states.get("sink")
        if sink is None:
            sink = self.scratch(self.named("sink", k), ROLES, "c / (Z + c)", width=1)
        with self.within(window):
            self.head(term.query, term.key, self.aggregator, to=sink)
        for name, slot in states.items():
            if name != "sink":
                self.arithmetic.invert(self, sink, slot)

    def keep(self, name: str, at: tuple[str, ...], k: int = 0) -> Read:
        """Return a state with the sink weight of a pattern, or else with a normaliser.

        The first call declares it, and `start` computes it.
        """
        states, slot = self.sink_states.setdefault((k, self.window), {}), self.named(name, k)
        if name not in states:
            slot = f"{slot}_of_{self.window}" if slot in self.embedding else slot
            about = "c / (Z + c)" if name == "sink" else "(Z + c) / c"
            states[name] = self.state(slot, at, about, width=1)
            if self.started:  # only what comes before the first step needs it
                self.compute(k, self.window, {name: states[name]})
        return states[name]

    def named(self, name: str, k: int) -> str:
        return f"{name}_{k}" if len(self.patterns) > 1 else name

    def term_normaliser(self, role: str, k: int) -> Read:
        """Return a state with (Z_i + c) / c at tokens of a role."""
        return self.keep(f"normaliser_{role}", (role,), k)

    def smooth_all(self, v: Read, to: str) -> list[Read]:
        """Compute (K v)_i / (Z_i + c) in a new scratch slot, for every pattern."""
        means = []
        for k, term in enumerate(self.terms):
            means.append(self.scratch(self.named(to, k), ROLES, f"softmax mean of {label(v)}"))
            self.head(term.query, term.key, v, to=means[-1])
        return means

    def weighted(self, means: list[Read]) -> Read:
        """Return K v for the means of `smooth_all`: a sum of means that `add` has to multiply."""
        self.unfinished |= {mean.slot: k for k, mean in enumerate(means)}
        return reduce(add, (t.weight * mean for t, mean in zip(self.terms, means, strict=True)))

    def kernel_times(self, v: Read) -> Read:
        return self.weighted(self.smooth_all(v, "mean_" + "_".join(v.blocks)))

    def add(self, value: Any, to: str | Read, at: tuple[str, ...] | None = None) -> Read:
        if not isinstance(value, Read) or not value.slots & self.unfinished.keys():
            return super().add(value, to, at)
        to = self.written_slot(to, SUPPORTS_AND_QUERIES, "product with K")
        where = self.at(to) if at is None else at
        parts: dict[int, dict[str, Any]] = {}
        for slot, block in value.blocks.items():
            parts.setdefault(self.unfinished.get(slot, -1), {})[slot] = block
        rest = parts.pop(-1, None)
        if rest is not None:
            super().add(Read(rest, value.width), to, where)
        for k, blocks in parts.items():
            normaliser = reduce(add, (self.term_normaliser(role, k) for role in where))
            means = Read(blocks, value.width)
            if len(normaliser.blocks) == 1:  # a table of a small factor has a small error
                ((slot, c),) = normaliser.blocks.items()
                means, normaliser = means * c, self.layout.read(slot, self.dtype)
            self.arithmetic.multiply(self, means, self.per_output(normaliser), to, None, normaliser)
        return to

    def add_average(self, v: Read, to: Read) -> None:
        """Add D^-1 K v, for the row sums D of K; the aggregator must have the logit -1e30.

        A `Mixture` has one head for each kernel and the weighted mean of their averages, which
        differs from the average of the mixture. A kernel that is a sum of patterns divides the sum
        of k(x, x_j) v_j by that of k(x, x_j), with any sink.
        """
        if len(self.kernel.parts) < len(self.patterns):
            dividend = self.finish(self.kernel_times(v), to="above")
            divisor = self.finish(self.kernel_times(self.per_output(self.support)), to="below")
            self.divide(dividend, divisor, to=to)
            return
        at_all_roles = self.at(to) == ROLES
        mean = to if at_all_roles else self.scratch("mean", ROLES, f"softmax mean of {label(v)}")
        total = sum(term.weight for term in self.terms)
        for term in self.terms:
            self.head(term.query, term.key, (term.weight / total) * v, to=mean)
        if not at_all_roles:
            self.add(mean, to=to)

    def kernel_diagonal(self, to: Read) -> None:
        fill_diagonal(self, self.kernel, to)

    def exponential(self, logit: Read, to: Read, out: Any) -> None:
        """Add e^logit / c, by a head with logit 0 for the n supports and this logit for the sink.

        The sink has the weight e^logit / (e^logit + n) and the supports have n / (e^logit + n)
        together, so the quotient is e^logit / n. A second head with logit 0 everywhere gives n.
        """
        logit = logit - self.log_sink
        if self.spec.causal:  # the first support sees no other one
            super().exponential(logit, to, out)
            return
        at, parts = self.at(to), []
        for name, query in (("exponential", logit), ("count", _ZERO)):
            sink = self.scratch(f"{name}_sink", ROLES, "weight of the sink", width=1)
            rest = self.scratch(f"{name}_supports", ROLES, "weight of the supports", width=1)
            self.head(query, self.aggregator, self.aggregator, to=sink)
            self.head(query, self.aggregator, self.support, to=rest)
            parts.append((sink, rest))
        (sink, rest), (sink_mean, rest_mean) = parts
        odds = self.scratch("odds", at, "e^logit / n", width=1)
        count = self.scratch("count", at, "n", width=1)
        self.divide_there(sink, rest, to=odds)
        self.divide_there(rest_mean, sink_mean, to=count)
        self.multiply(odds, count, to=to, out=out)

    def divide_there(self, dividend: Read, divisor: Read, to: Read) -> None:
        """Add the quotient of what may be nonzero elsewhere to a slot of one channel."""
        above = self.scratch(f"above_{to.slot}", self.at(to), "dividend", width=1)
        self.divide(self.add(dividend, to=above), divisor, to=to)

    def cumsum(self, value: Read, to: Read) -> None:
        shares = []
        for name, of in (("sum", value), ("share", self.aggregator)):
            share = self.scratch(f"{name}_{to.slot}", ROLES, f"mean of {label(of)}", width=1)
            self.mean(of, to=share)
            shares.append(share)
        self.divide_there(*shares, to=to)

    def gather(self, place: Read, at: Read, value: Read, to: Read) -> None:
        gathered = self.scratch(f"found_{to.slot}", ROLES, "value of a token", width=value.width)
        logit = -2 * np.log(jnp.finfo(self.dtype).tiny)  # the weights of all other tokens underflow
        self.head(query=logit * place, key=at, value=value, to=gathered)
        self.add(gathered, to=to)

    def dot(self, a: Read, b: Read, to: str | Read) -> Read:
        self.check_sums()
        to = self.written_slot(to, self.scalars_at, f"mean of ({label(a)}) x ({label(b)})")
        self.mean(self.multiply(a, b, to=f"{to.slot}_each"), to=to)
        return to

    def mean(self, value: Read, to: Read) -> None:
        """Add the mean over all visible tokens to a slot; the mean is the same at every token."""
        with self.within(None):
            self.head(query=_ZERO, key=_ZERO, value=value, to=to)
