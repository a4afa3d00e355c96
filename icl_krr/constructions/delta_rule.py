"""The delta rule: online gradient descent, one support after the other."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Unpack

import numpy as np
from jaxtyping import Array, Float

from .. import checks, losses, step_sizes
from ..constants import xp
from ..kernels import Kernel
from ..losses import Loss
from ..residual import Read
from ..transformer.weights import Transformer
from .assembly.choice import construction, machine
from .assembly.linear_attention import LinearAttention
from .assembly.machine import Machine
from .assembly.prefix import CausalOptions
from .assembly.slots import QUERIES, SUPPORTS, SUPPORTS_AND_QUERIES
from .assembly.turns import Shown, Turns


@construction
def delta_rule(
    kernel: Kernel,
    *,
    num_features: int,
    step_size: float | Float[Array, ""],
    steps: int | None = None,
    normalised: bool = False,
    loss: Loss | None = None,
    erase: Float[Array, "m p"] | None = None,
    **options: Unpack[CausalOptions],
) -> Transformer:
    r"""Build a causal transformer that runs the delta rule, one support a step.

    It is `icl_krr.solvers.delta_rule`. A step computes all $f_i$ by one head and then sets one more
    coefficient: after t steps, the model has learned from the first t supports that are not masked.
    The slot `turn` says at which supports the step size `now` is not 0. A step takes one block with
    linear attention and two with softmax attention, which multiplies by the normaliser first. The
    slot `ahead` contains $\alpha$ one step later, so that `alpha` and `prediction` belong together.
    The states are alpha, ahead, turn and prediction.

    `prefix="inclusive"` adds $k(x_i, x_i) \alpha_i$ to the prediction at support i; that of
    "exclusive" is $e^{g_i} S_{i-1} k_i$, which a layer erases. `normalised` is not quite a layer
    that divides $q_i$ and $k_i$ by their lengths: it erases as such a layer does, but writes
    $y_i / |x_i|$ and reads at $x_i$. With $y_i = |k_i| v_i$ it has the state of that layer, and
    predicts $|k_i| o_i$.

    With a `window` of w, $S_i$ sums over $i - w < j \leq i$, so that a write is forgotten after w
    supports, and $\alpha_i$ corrects what $S_{i-1}$ predicts. For the prefix "inclusive", one more
    head predicts from the w - 1 supports before the own one.

    Args:
        steps: number of steps, >= 1: the number of supports that the model learns from. Default
            None: 256, and a task must not have more supports.
        loss: as in `icl_krr.solvers.delta_rule`. A step takes two blocks more for `Huber` and three
            for `Power`.
        erase: as in `icl_krr.solvers.delta_rule`, in linear attention.

    >>> import numpy as np
    >>> import icl_krr as ik
    >>> model = delta_rule(ik.Linear(), num_features=1, step_size=0.5, steps=2)
    >>> x = np.ones((2, 1))
    >>> task = ik.Task(x=x, y=[2.0, 2.0], x_query=[[1.0]])
    >>> ik.predict_along(model, task).tolist()
    [0.0, 1.0, 1.5]
    """
    checks.positive_scalar("step_size", step_size)
    checks.flag("normalised", normalised)
    losses.check(loss)
    turns = Turns(machine, kernel, num_features, steps, options)
    eta = xp.asarray(step_size, turns.m.dtype)
    erased = None if erase is None else partial(times_erased, turns.m, erase)
    size, divisor = eta * turns.strength, None
    if normalised:
        size, divisor = turns.m.scale * size, lambda own: own
    return learned(turns, size, divisor, loss, erased)


def times_erased(m: Machine, erase: Any, v: Read) -> Read:
    """Compute sum_j <E x_i, phi_j> v_j."""
    checks.reals(erase=erase)
    step_sizes.no_window(m.window)
    if not isinstance(m, LinearAttention):
        raise ValueError("erase must be None in softmax attention, which has no feature vectors")
    shape = (m.features.width, m.x.width)
    if np.shape(erase) != shape:
        raise ValueError(
            f"erase must be a matrix [m, p] with m = {shape[0]} features of the kernel and "
            f"p = {shape[1]}, got shape {list(np.shape(erase))}"
        )
    return m.inner_products_times(v, queries=m.x @ xp.asarray(erase, m.dtype).T)


def learned(
    turns: Turns,
    size: Read,
    divisor: Callable[[Read], Read] | None = None,
    loss: Loss | None = None,
    erased: Callable[[Read], Read] | None = None,
) -> Transformer:
    """Return the delta rule with the given step sizes, divided by a function of c k(x, x)."""
    m, ahead, prediction = turns.m, turns.ahead, turns.prediction
    own, rate = Read({}, 1), size
    if divisor is not None or turns.inclusive:
        own = m.state("diagonal", SUPPORTS, "k(x, x)", width=1)
    if divisor is not None:
        rate = m.state("rate", SUPPORTS, "step size", width=1)

    def prepare() -> None:
        if own.blocks:
            m.kernel_diagonal(own)
        if divisor is not None:
            m.divide(size, divisor(own), to=rate)

    def fit(to: str) -> Read:
        return m.finish(m.kernel_times(ahead), to=to) * (1 / m.scale)

    def predict() -> tuple[Shown, Read]:
        f = fit("f")
        shown: dict[tuple[str, ...], Read] = {SUPPORTS_AND_QUERIES: f}
        if turns.inclusive and m.window is not None:  # a support has one place of the window
            shown = {QUERIES: f, SUPPORTS: Read({}, f.width)}
            if m.window > 1:
                with m.within(m.window - 1):
                    shown[SUPPORTS] = fit("f_of_fewer")
        return shown, f if erased is None else erased(ahead)

    def include() -> None:
        m.multiply((1 / m.scale) * m.per_output(own), ahead, to=prediction)

    return turns.learns(rate, predict, include, prepare=prepare, loss=loss)
