"""The implicit delta rule: a proximal step in closed form for each support."""

from __future__ import annotations

from typing import Unpack

from jaxtyping import Array, Float

from .. import checks
from ..constants import xp
from ..kernels import Kernel
from ..residual import Read
from ..transformer.weights import Transformer
from .assembly.choice import construction, machine
from .assembly.prefix import CausalOptions
from .assembly.turns import Turns
from .delta_rule import learned


@construction
def implicit_delta_rule(
    kernel: Kernel,
    *,
    num_features: int,
    step_size: float | Float[Array, ""],
    steps: int | None = None,
    **options: Unpack[CausalOptions],
) -> Transformer:
    r"""Build a causal transformer that takes an implicit step for each support, one a step.

    $$\alpha_i = \frac{\eta_i}{1 + \eta_i k(x_i, x_i)} (y_i - f_i), \quad
    f_i = \sum_{j < i} e^{G_i - G_j} k(x_i, x_j) \alpha_j, \quad \eta_i = \eta \beta_i$$

    This minimises $|S - S_{i-1}|^2 + \eta_i |y_i - S \phi_i|^2$, so it never steps too far: the
    error at $x_i$ shrinks by the factor $1 / (1 + \eta_i k(x_i, x_i))$ for every step size. For
    $\eta \to \infty$, it is the delta rule with `normalised` and step size 1.

    With the linear kernel, this is the state of Longhorn with the key $k_i = x_i$, the value
    $v_i = y_i$ and the strength $\beta_i$ (with $\eta = 1$),

    $$S_i = S_{i-1} + \epsilon_i (v_i - S_{i-1} k_i) k_i^T, \quad
    \epsilon_i = \frac{\beta_i}{1 + \beta_i |k_i|^2}$$

    The published layer replaces $k_i k_i^T$, where it forgets, by its diagonal, to run as a
    parallel scan. It reads after the write: `prefix="inclusive"`.

    A step takes one block with linear attention and two with softmax attention. The states are
    those of `delta_rule`, which also explains the order of a step.

    Args:
        kernel, num_features: as in `icl_krr.constructions`, which also says what is raised.
        step_size: step size $\eta$ > 0; may be a traced scalar.
        steps: as in `delta_rule`.
        options: further keywords, explained in `CausalOptions` and `Options`.

    Source: Liu et al., Longhorn: state space models are amortized online learners, 2024, eq. 4;
    Kulis and Bartlett, Implicit online learning, 2010.

    >>> import numpy as np
    >>> import icl_krr as ik
    >>> model = implicit_delta_rule(ik.Linear(), num_features=1, step_size=1.0, steps=2)
    >>> task = ik.Task(x=np.ones((2, 1)), y=[2.0, 2.0], x_query=[[1.0]])
    >>> ik.predict_along(model, task).tolist()
    [0.0, 1.0, 1.5]
    """
    checks.positive_scalar("step_size", step_size)
    turns = Turns(machine, kernel, num_features, steps, options)
    m = turns.m
    eta = xp.asarray(step_size, m.dtype) * turns.strength

    def divisor(own: Read) -> Read:  # own is c k(x, x) with c = m.scale
        return m.scale * m.support + m.multiply(eta, own, to="eta_k")

    return learned(turns, m.scale * eta, divisor)
