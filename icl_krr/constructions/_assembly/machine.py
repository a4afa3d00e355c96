"""The machine that records operations on named slots and returns the blocks of a transformer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Self

import jax
import numpy as np
from jax.typing import DTypeLike

from ... import Kernel
from ..._core import checks
from ..._core.constants import as_jax, stacked_steps, xp
from ...residual import ROLES, Read
from ...transformer._weights import Block, Heads, Problem, Spec, Transformer, Weights, Write
from .arithmetic import Arithmetic, Out, Size
from .packing import Operation, name_patterns, pack
from .slots import SUPPORTS_AND_QUERIES, Recorder, label, repeat


class Machine(Recorder, ABC):
    """Records operations on named slots as heads and MLP units: the back end of `icl_krr.compile`.

    An operation is a method that adds its result to the slot `to`, a read of it or the name of a
    new scratch slot, and returns the read. Values are expressions of reads, such as
    `Kp + ridge * p`. Every scratch slot is erased after its last use, so it is zero when a step
    starts. Flags of the roles gate results at roles that a slot does not have.

    Attributes:
        x, y: reads of the features, of width p or that of the sketch, and of the r outputs.
        aggregator, support, query: reads of width 1 of the flags, which are 1 at this role, else 0.
        one: read of width 1 of the constant 1.
        scale: number c > 0 of the kernel matrix K' = c K that `kernel_times` applies: 1 in linear
            attention, exp(-log_sink) in softmax attention.

    Methods:
        state: declares a slot whose value each step passes to the next step.
        scratch: declares a slot that is zero when a step starts.
        kernel_times: multiplies by the kernel matrix.
        finish: reads a product with the kernel matrix.
        kernel_diagonal: adds the diagonal of the kernel matrix.
        add: adds an expression.
        multiply: adds a product, channel by channel.
        divide: adds a quotient, channel by channel.
        activate: adds a multiple of a nonlinear function.
        dot: adds a sum of products over the supports.
        add_scaled: adds a value times one or two scalars.
        cumsum: adds the cumulative sum over the supports that a token sees.
        gather: adds the value of one earlier token.
        head: adds the output of an attention head.
        erase: makes a slot zero.
        together: puts operations in one sublayer.
        within: gives heads a window.
        per_output: repeats a flag or number for all outputs.
        inside: reads a flag of several roles.
        solves: notes the ridge, for `icl_krr.check`.
        transformer: returns the model.
    """

    scale: Any = 1.0
    degree = 0
    scales_by_head = splits = False

    def __init__(
        self,
        kernel: Kernel,
        attention: str,
        num_features: int,
        num_outputs: int,
        dtype: DTypeLike | None,
        arithmetic: Arithmetic,
        sketch: jax.Array | None,
    ):
        dtype = checks.dtype(dtype)
        sketch = None if sketch is None else xp.asarray(sketch, dtype)
        super().__init__(Spec(num_features, num_outputs, attention), dtype, sketch)
        self.kernel, self.sketch, self.arithmetic = kernel, sketch, arithmetic
        self.problem: Problem | None = None
        self.positions: dict[str, jax.Array] = {}
        self.preparations: list[Callable[[], Any]] = []
        self.log_gate: Read | None = None
        self.unfinished: dict[str, int] = {}

    def solves(self, ridge: Any) -> Self:
        """Note the ridge of the regression that the model solves, for `icl_krr.check`."""
        checks.positive_scalar("ridge", ridge)
        kernel = self.kernel if self.sketch is None else self.kernel.sketched(self.sketch)
        self.problem = Problem(kernel, ridge)
        return self

    @abstractmethod
    def kernel_times(self, v: Read) -> Read:
        """Return K' v at supports and queries as an expression, for v that is zero elsewhere."""

    def finish(self, product: Read, to: str, at: tuple[str, ...] = SUPPORTS_AND_QUERIES) -> Read:
        """Return a read of a product from `kernel_times`, in a new scratch slot if needed.

        Args:
            product: what `kernel_times` returned.
            to: name of the scratch slot.
            at: roles of the tokens at which it is read.
        """
        if not product.slots & self.unfinished.keys():
            return product
        return self.add(product, self.scratch(to, at, "product with K"))

    @abstractmethod
    def kernel_diagonal(self, to: Read) -> None:
        """Add the diagonal of K' to a slot of width 1 at the supports."""

    @abstractmethod
    def cumsum(self, value: Read, to: Read) -> None:
        """Add the sum of a value [1] over all supports of the causal mask, without a window."""

    @abstractmethod
    def gather(self, place: Read, at: Read, value: Read, to: Read) -> None:
        """Add the value of the earlier token whose one-hot code `at` is the token's `place`."""

    def check_sums(self) -> None:
        if self.spec.causal:
            raise ValueError(
                "attention must not be causal for inner products over all supports, got a causal "
                "mask; use prefix_conjugate_gradient"
            )

    @abstractmethod
    def dot(self, a: Read, b: Read, to: str | Read) -> Read:
        """Add c sum_j a_j b_j over the supports, per output; c cancels in quotients.

        The sum is at the aggregator in linear attention, and at all tokens in softmax attention
        (`scalar`). The factors must be zero outside of the supports, and attention must not be
        causal.
        """

    def add_scaled(self, value: Read, by: Any, to: Read) -> None:
        """Add a value times a scalar, which `dot` or `divide` computed.

        Args:
            by: read of the scalar; in linear attention, whose heads multiply, also a pair of them.
        """
        if not self.scales_by_head:
            self.multiply(value, repeat(by, value.width), to=to)
            return
        key, one = by if isinstance(by, tuple) else (by, self.per_output(self.one))
        self.head(query=value, key=key, value=one, to=to, heads=self.spec.num_outputs)

    def start(self) -> None:
        """Record operations before the first step: initial states that the embedding cannot set."""
        for slot, value, divisor in self.late:
            self.add(value, slot) if divisor is None else self.divide(value, divisor, slot)

    def projected(self, kernel: Any) -> Read:
        """Return a read of U x, for the projection U [d, p] of a kernel or a feature map."""
        projection = kernel.projection
        if projection is None:
            return self.x
        if np.shape(projection)[1:] != (self.x.width,):
            raise ValueError(
                f"projection must be [d, p] with p = {self.x.width}, the width of x, "
                f"got shape {list(np.shape(projection))}"
            )
        return self.x @ xp.asarray(projection, self.dtype).T

    def head(
        self, query: Read, key: Read, value: Read, to: Read, heads: int = 1, log_gate: Any = None
    ) -> None:
        """Add sum_j pattern(query_i, key_j) value_j to a slot.

        The pattern of linear attention is the inner product, that of softmax attention its softmax
        over all tokens that token i sees, with the aggregator as a sink. The slot needs all roles
        where the query may be nonzero.

        Args:
            heads: number of heads of equal widths that `query`, `key` and `value` are cut into.
            log_gate: read of cumulated log gates G, for a factor exp(G_i - G_j).
        """
        self.check_roles(to, self.at(query) if self.spec.attention == "linear" else ROLES)
        writes = (Write(value, None, to.slot),)
        self.emit(Heads(query, key, writes, heads, log_gate, window=self.window))

    def add(self, value: Any, to: str | Read, at: tuple[str, ...] | None = None) -> Read:
        """Add an expression to a slot.

        Args:
            value: sum of multiples of reads and of products from `kernel_times`.
            at: roles of the tokens that are written; default None, all roles of the slot.
        """
        checks.instance("value", value, Read, "a read or a product from kernel_times")
        to = self.written_slot(to, self.at(value), f"combines {label(value)}", value.width)
        self.arithmetic.add(self, value, to, self.at(to) if at is None else at)
        return to

    def multiply(
        self, a: Read, b: Read, to: str | Read, out: Out = None, size: Size = None
    ) -> Read:
        """Add the product of two reads to a slot, channel by channel.

        Args:
            out: matrix [width of a, width of the slot] that multiplies the products; default None,
                identity.
            size: bound on the magnitude of `b`, or a read of slots, the largest of whose bounds it
                has; default None, the bound of the slot `to`. Only `icl_krr.ReLU` uses it.
        """
        width = a.width if out is None else out.shape[1]
        to = self.slot_of_product(to, f"({label(a)}) x ({label(b)})", width, a, b)
        self.arithmetic.multiply(self, a, b, to, out, size)
        return to

    def divide(self, dividend: Read, divisor: Read, to: str | Read) -> Read:
        """Add the quotient, channel by channel, to a slot; 0 / 0 is 0."""
        about = f"{label(dividend)} / {label(divisor)}"
        to = self.slot_of_product(to, about, dividend.width, dividend)
        self.arithmetic.divide(self, dividend, divisor, to)
        return to

    def slot_of_product(self, to: str | Read, about: str, width: int, *factors: Read) -> Read:
        if any(factor.slots & self.unfinished.keys() for factor in factors):
            rule = f"a product from kernel_times must be read by finish or add before {about}"
            raise ValueError(rule)
        to = self.written_slot(to, self.at(*factors), about, width)
        self.check_roles(to, self.at(*factors))
        return to

    def activate(self, function: str, value: Read, by: Read, to: Read, out: Any = None) -> None:
        """Add `by` times function(value), channel by channel and multiplied by `out`, to a slot.

        Args:
            function: an activation of `icl_krr.transformer.Unit`, such as "relu" or "exp".
            out: matrix [width of by, width of the slot]; default None, identity.
        """
        self.check_roles(to, self.at(by))
        self.arithmetic.activate(self, function, value, by, to, out)

    def exponential(self, logit: Read, to: Read, out: Any) -> None:
        """Add e^logit, multiplied by `out`, to a slot."""
        self.activate("exp", logit, self.inside(self.at(to)), to, out)

    def erase(self, slot: Read) -> None:
        """Make a slot zero."""
        self.arithmetic.erase(self, slot)

    def record(self, body: Callable[[], Any]) -> tuple[Block, ...]:
        """Return the blocks that run the operations in `body` and erase all scratch slots."""
        self.program = []
        body()
        written = frozenset().union(*(operation.writes for operation in self.program))
        for slot in [slot for slot in self.slots if slot.kind == "scratch"]:
            if slot.name in written:
                self.erase(self.layout.read(slot.name, self.dtype))
        return pack(self.program)

    def transformer(
        self,
        step: Callable[[], Any],
        *,
        steps: int,
        readout: Read,
        prologue: Callable[[], Any] = lambda: None,
        readouts: Mapping[str, Read] = MappingProxyType({}),
    ) -> Transformer:
        """Return a transformer that runs the prologue once and then the step `steps` times.

        All steps share the weights that do not depend on numbers of `icl_krr.per_step`.

        Args:
            step: function that records the operations of a step.
            prologue: function that records what runs once before the first step.
            readouts: further reads by name, for `icl_krr.readouts`.
        """
        checks.count("steps", steps)
        checks.instance("readout", readout, Read, "a read")
        if "query" not in self.at(readout):
            raise ValueError(
                f"readout must be nonzero at queries, got slot {', '.join(readout.slots)} at "
                f"{', '.join(self.at(readout)) or 'no role'}"
            )
        blocks = self.record(step)
        first = self.record(lambda: [make() for make in (*self.preparations, self.start, prologue)])
        layers = tuple(layer for block in (*first, *blocks) for layer in block.layers)
        used = [read.slots for read in readouts.values()]
        unread = self.flags.difference(Operation(layers).reads, *used)
        self.slots = [slot for slot in self.slots if slot.name not in unread]
        self.embedding = {k: v for k, v in self.embedding.items() if k not in unread}
        patterns = {}
        if self.spec.attention == "softmax":  # linear attention forms no patterns
            patterns, (first, blocks) = name_patterns(first, blocks)
        blocks = jax.tree.map(stacked_steps, blocks)
        parts = self.embedding, blocks, readout, first, self.positions, {}, dict(readouts), patterns
        weights = jax.tree.map(lambda weight: as_jax(weight.astype(self.dtype)), Weights(*parts))
        return Transformer(weights, self.spec, self.layout, steps, self.problem)
