"""The delta rule: online gradient descent, one support after the other."""

from __future__ import annotations

from typing import Unpack

from jaxtyping import Array, Float

from .. import checks
from ..constants import xp
from ..kernels import Kernel
from ..residual import Read
from ..transformer.weights import Transformer
from .assembly.choice import construction, machine
from .assembly.prefix import PREFIXES, CausalOptions, causal_machine
from .assembly.slots import QUERIES, SUPPORTS, SUPPORTS_AND_QUERIES

STEPS = 256
"""Default number of steps, and the largest number of supports of a model with this default."""


@construction
def delta_rule(
    kernel: Kernel,
    *,
    num_features: int,
    step_size: float | Float[Array, ""],
    steps: int | None = None,
    normalised: bool = False,
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
    $e^{g_i} S_{i-1} k_i$, which the layer erases. Its code stores $S^T$.

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
    checks.stored("steps", STEPS if steps is None else steps)
    prefix = options.get("prefix", "exclusive")
    checks.choice("prefix", prefix, PREFIXES)
    # alpha depends on earlier supports only, also where predictions do not
    most: CausalOptions = {"max_supports": STEPS} if steps is None else {}
    given: CausalOptions = {**most, **options, "prefix": "exclusive"}
    m, strength = causal_machine(machine, kernel, num_features, **given)
    alpha = m.state("alpha", SUPPORTS, "dual coefficients")
    ahead = m.state("ahead", SUPPORTS, "alpha one step later")
    prediction = m.state("prediction", SUPPORTS_AND_QUERIES, "k(x)^T alpha")
    turn = m.state("turn", SUPPORTS, "1 if the support has its turn, else <= 0", width=1)
    now = m.state("now", SUPPORTS, "step size of a support that has its turn", width=1)
    rate = xp.asarray(step_size, m.dtype) * strength
    diagonal = None
    if normalised or prefix == "inclusive":
        diagonal = m.state("diagonal", SUPPORTS, "k(x, x)", width=1)
    size, rate = rate, m.state("rate", SUPPORTS, "step size", width=1) if normalised else rate

    def start() -> None:
        if diagonal is not None:
            m.kernel_diagonal(diagonal)
            if normalised:
                m.divide(m.scale * size, diagonal, to=rate)
        before = m.scratch("before", SUPPORTS, "number of supports before", width=1)
        m.sum_before(m.support, to=before)
        m.add(m.support - before, to=turn)
        advance()
        m.multiply(m.y, m.per_output(now), to=ahead)
        advance()

    def advance() -> None:
        """now = rate relu(turn), turn += 1 - relu(turn): exact, because turn is an integer <= 1."""
        with m.together():
            m.add(-now, to=now)
            m.activate("relu", turn, rate, to=now)
            m.add(m.support, to=turn)
            m.activate("relu", turn, -m.support, to=turn)

    def fit(to: str) -> Read:
        return m.finish(m.kernel_times(ahead), to=to) * (1 / m.scale)

    def step() -> None:
        f = fit("f")
        new = {SUPPORTS_AND_QUERIES: f - prediction}
        if prefix == "inclusive" and m.window is not None:
            new = {QUERIES: f - prediction, SUPPORTS: -prediction}
            if m.window > 1:
                with m.within(m.window - 1):
                    new[SUPPORTS] += fit("f_of_fewer")
        with m.together():
            for at, value in new.items():
                m.add(value, to=prediction, at=at)
            if prefix == "inclusive":
                m.multiply((1 / m.scale) * m.per_output(diagonal), ahead, to=prediction)
            m.add(ahead - alpha, to=alpha)
            m.add(-ahead, to=ahead)
            m.multiply(m.y - f, m.per_output(now), to=ahead)
        advance()

    steps = STEPS if steps is None else steps
    return m.transformer(step, steps=steps, readout=prediction, prologue=start)
