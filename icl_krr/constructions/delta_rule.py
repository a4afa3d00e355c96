"""The delta rule: online gradient descent, one support after the other."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Unpack

import numpy as np
from jaxtyping import Array, Float

from .. import checks, losses
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

    $$\alpha_i = \eta_i (y_i - f_i), \quad f_i = \sum_{j < i} e^{G_i - G_j} k(x_i, x_j) \alpha_j$$

    $f_i$ is the prediction at support i from the supports before it. With the linear kernel,
    $S_i = \sum_{j \leq i} e^{G_i - G_j} \alpha_j x_j^T$ is the state of (Gated) DeltaNet, with the
    key $k_i = x_i$, the value $v_i = y_i$, the log gate $g_i$, the write strength $\beta_i$ and
    $\eta = 1$,

    $$S_i = e^{g_i} S_{i-1} + \beta_i (v_i - e^{g_i} S_{i-1} k_i) k_i^T, \quad o_i = c S_i q_i$$

    The layer reads after the write: this is `prefix="inclusive"` with $q_i = k_i$, and a query of
    the task is any other $q$ (see `CausalOptions`). The prediction has no scale c; layers use
    $c = 1 / \sqrt{d}$ for keys [d]. The prediction of `prefix="exclusive"` is
    $e^{g_i} S_{i-1} k_i$, which the layer erases. Its code stores $S^T$. A matrix `log_gate` gives
    each key channel its own gate, $S_{i-1} \mathrm{diag}(e^{g_i})$, as in KDA. A token that writes
    several times, as in DeltaProduct, is as many supports, of which only the first has a gate
    (`icl_krr.export.from_linear_attention` makes them). Gated DeltaNet-2 has $y_i = w_i v_i$ and
    `erase` for $b_i k_i$, with its write gate $w_i$ and its erase gate $b_i$ of each channel.

    The step size is $\eta_i = \eta \beta_i$, with the `strength` $\beta_i$ of `CausalOptions`. If
    `normalised`, it is $\eta \beta_i / k(x_i, x_i)$. This is not quite a layer that divides $q_i$
    and $k_i$ by their lengths. It erases as such a layer does, but it writes $y_i / |x_i|$ and
    reads at $x_i$. With $y_i = |k_i| v_i$ it has the state of that layer, and predicts $|k_i| o_i$
    at $x_i = k_i$.

    A step computes all $f_i$ by one head and then sets one more coefficient: after t steps, the
    model has learned from the first t supports that are not masked. It needs as many steps as
    supports, because $\alpha_i$ depends on all coefficients before it. The slot `turn` says at
    which supports the step size `now` is not 0. A step takes one block with linear attention and
    two with softmax attention, which multiplies by the normaliser first. The slot `ahead` contains
    $\alpha$ one step later, so that `alpha` and `prediction` belong together. `prefix="inclusive"`
    adds $k(x_i, x_i) \alpha_i$ to the prediction at support i. The states are alpha, ahead, turn
    and prediction.

    With a `window` of w, all sums run over the last w supports: $S_i$ sums over $i - w < j \leq i$,
    so that a write is forgotten after w supports, and $\alpha_i$ corrects what $S_{i-1}$ predicts.
    For the prefix "inclusive", one more head predicts from the w - 1 supports before the own one.

    Args:
        kernel, num_features: as in `icl_krr.constructions`, which also says what is raised.
        step_size: step size $\eta$ > 0; may be a traced scalar.
        steps: number of steps, >= 1: the number of supports that the model learns from. Default
            None: 256, and a task must not have more supports.
        normalised: whether the step size is divided by $k(x_i, x_i)$; default False.
        loss: loss $\ell$ from `icl_krr.losses`, such as `Huber`, whose derivative replaces the
            error: $\alpha_i = \eta_i \ell'(y_i - f_i)$. A step takes two blocks more for
            `Huber` and three for `Power`. The model then runs on y in its own units. Default None:
            the squared error.
        erase: matrix E [m, p], in linear attention. A support then erases at $E x_i$ in place of
            its m features $\phi_i$: the error is $y_i - S \, E x_i$, while the write is along
            $\phi_i$. May be traced; default None: it erases at $\phi_i$.
        options: further keywords, explained in `CausalOptions` and `Options`.

    Source: Widrow and Hoff, Adaptive switching circuits, 1960; Schlag, Irie, Schmidhuber, Linear
    transformers are secretly fast weight programmers, 2021; Yang et al., Gated delta networks,
    2024.

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
    if m.window is not None:
        raise ValueError(f"window must be None with erase, got {m.window}")
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
