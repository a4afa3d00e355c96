"""Causal machines whose supports learn one after the other, one in each step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ... import checks, step_sizes
from ...kernels import Kernel
from ...losses import Loss
from ...residual import Read
from ...transformer.weights import Transformer
from .choice import linear_machine
from .linear_attention import LinearAttention
from .prefix import PREFIXES, CausalOptions, causal_machine, check_featured
from .slots import SUPPORTS, SUPPORTS_AND_QUERIES

STEPS = 256
"""Default number of steps, and the largest number of supports of a model with this default."""


Shown = Mapping[tuple[str, ...], Read]
"""{roles: read of the predictions at tokens of these roles}."""


class Turns:
    """A machine, and the states of its supports: each has its turn in one step, and then learns.

    In every step, all supports whose turn has come compute their coefficients again from the
    prediction of the step. These do not change any more, because they depend on earlier supports
    only.

    Attributes:
        m: the machine.
        strength: read of the write strengths of the supports.
        inclusive: whether the prediction at a support is read after its own write.
        ahead, prediction: reads of these states; `ahead` is `alpha` one step later.
        now: read of a multiple of a flag: not 0 at the supports whose turn has come.
    """

    def __init__(
        self,
        make: Callable[..., Any],
        kernel: Kernel,
        num_features: int,
        steps: int | None,
        options: CausalOptions,
    ):
        self.steps = STEPS if steps is None else steps
        checks.count("steps", self.steps)
        prefix = options.get("prefix", "exclusive")
        checks.choice("prefix", prefix, PREFIXES)
        self.inclusive = prefix == "inclusive"
        # coefficients depend on earlier supports only, also where predictions do not
        most: CausalOptions = {"max_supports": STEPS} if steps is None else {}
        given: CausalOptions = {**most, **options, "prefix": "exclusive"}
        self.m, self.strength = causal_machine(make, kernel, num_features, **given)
        m = self.m
        self.alpha = m.state("alpha", SUPPORTS, "dual coefficients")
        self.ahead = m.state("ahead", SUPPORTS, "alpha one step later")
        self.prediction = m.state_of_fit()
        self.turn = m.state("turn", SUPPORTS, "1 if the support has its turn, else <= 0", width=1)
        self.now = m.state("now", SUPPORTS, "step size of a support that has its turn", width=1)

    def learns(
        self,
        rate: Read,
        predict: Callable[[], tuple[Shown, Read]],
        include: Callable[[], None],
        *,
        prepare: Callable[[], None] = lambda: None,
        refresh: Callable[[], None] = lambda: None,
        loss: Loss | None = None,
    ) -> Transformer:
        """Return the transformer whose supports learn `rate` times the derivative of the loss.

        Args:
            predict: records what computes the predictions from `ahead`, and returns their reads by
                roles, and the read of what a support erases.
            include: adds to the predictions what a support itself wrote; used if `inclusive`.
            prepare: records what runs once, before the first turn.
            refresh: records what the supports whose turn has come compute for those after them.
            loss: loss whose derivative in the error is learned; default None: the error itself.
        """
        m, ahead = self.m, self.ahead

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
            shown, erased = predict()
            error = derivative(m.y - erased)
            with m.together():
                for at, f in shown.items():
                    m.add(f - self.prediction, to=self.prediction, at=at)
                if self.inclusive:
                    include()
                m.add(ahead - self.alpha, to=self.alpha)
                m.add(-ahead, to=ahead)
                learn(error)
            refresh()
            advance()

        return m.transformer(step, steps=self.steps, readout=self.prediction, prologue=start)

    def learns_along(
        self,
        keys: Read,
        own: Read,
        rate: Read,
        prepare: Callable[[], None],
        refresh: Callable[[], None] = lambda: None,
    ) -> Transformer:
        """Return the transformer whose supports write along the keys [m], not along their features.

        `own` reads the inner product of features and keys at a support; the rest is as in `learns`.
        """
        m = self.m

        def predict() -> tuple[Shown, Read]:
            return everywhere(m.inner_products_times(self.ahead, keys=keys))

        def include() -> None:
            m.multiply(m.per_output(own), self.ahead, to=self.prediction)

        return self.learns(rate, predict, include, prepare=prepare, refresh=refresh)


def everywhere(f: Read) -> tuple[Shown, Read]:
    """Return the predictions of a rule that erases what it predicts."""
    return {SUPPORTS_AND_QUERIES: f}, f


def feature_turns(
    kernel: Kernel, num_features: int, steps: int | None, options: CausalOptions
) -> tuple[Turns, LinearAttention]:
    """Return a machine for rules that need the features of the kernel, in linear attention."""
    step_sizes.no_window(options.get("window"))
    if not callable(options.get("sketch")):
        check_featured(kernel)
    turns = Turns(linear_machine, kernel, num_features, steps, options)
    return turns, turns.m
