"""The preconditioned delta rule: each feature has a step size of its own, from its curvature."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
from jaxtyping import Array, Float

from .. import checks, step_sizes
from ..constants import xp
from ..kernels import Kernel
from ..residual import ROLES, Read
from ..transformer.weights import Transformer
from .assembly.choice import construction
from .assembly.linear_attention import LinearAttention
from .assembly.prefix import CausalOptions, floor
from .assembly.slots import SUPPORTS, spread
from .assembly.turns import feature_turns


@construction
def preconditioned_delta_rule(
    kernel: Kernel,
    *,
    num_features: int,
    step_size: float | Float[Array, ""],
    initial: float | Float[Array, " m"] = 1.0,
    squash: float | Float[Array, ""] | None = None,
    center: float | Float[Array, ""] = 0.0,
    steps: int | None = None,
    **options: Unpack[CausalOptions],
) -> Transformer:
    r"""Build a causal transformer that divides the steps of the delta rule by a curvature.

    It is `icl_krr.solvers.preconditioned_delta_rule`. $A_i$ is the diagonal of $C_i$ in
    `prefix_conjugate_gradient`, plus what is left of $A_0$. The keys $M_i \phi_i$ do not depend on
    y, so they are computed once, before the first step: one head sums the squares. Then a step
    takes one block. Steps and states are those of `delta_rule`; the slots `curvature` [T, m] and
    `written` [T, m] contain $A_i$ and $M_i \phi_i$.

    >>> import numpy as np
    >>> import icl_krr as ik
    >>> model = preconditioned_delta_rule(ik.Linear(), num_features=1, step_size=0.5, steps=2)
    >>> task = ik.Task(x=np.ones((2, 1)), y=[2.0, 2.0], x_query=[[1.0]])
    >>> ik.predict_along(model, task).round(4).tolist()
    [0.0, 0.5, 0.75]
    """
    checks.positive_scalar("step_size", step_size)
    turns, m = feature_turns(kernel, num_features, steps, options)
    width = m.features.width
    step_sizes.check_curvature(initial, squash, center, width)
    curvature = m.state("curvature", ROLES, "sum of squared features; 1 elsewhere", width=width)
    written = m.state("written", SUPPORTS, "preconditioned features", width=width)
    own = m.state("diagonal", SUPPORTS, "phi . M phi", width=1)

    def prepare() -> None:
        here = m.features_here(SUPPORTS)
        sum_squares(m, here, turns.strength, xp.asarray(initial, m.dtype), curvature)
        if squash is None:
            m.divide(here, curvature, to=written)
        else:
            factor = xp.log(xp.asarray(squash, m.dtype)) * squashed(m, curvature, center)
            m.activate("exp", -factor, here, to=written)
        m.multiply(written, m.features, to=own, out=np.ones((width, 1), m.dtype))

    rate = xp.asarray(step_size, m.dtype) * turns.strength
    return turns.learns_along(written, own, rate, prepare=prepare)


def sum_squares(m: LinearAttention, phi: Read, strength: Read, initial: Any, to: Read) -> None:
    """Compute A_i = e^(G_i) A_0 + sum_(j <= i) e^(G_i - G_j) beta_j phi_j^2 at the supports."""
    width, gate = phi.width, m.log_gate
    weighted = m.multiply(phi, spread(strength, width), to="weighted")
    squares = m.multiply(weighted, phi, to="squares")
    m.add(spread(m.one - m.support, width), to=to)
    m.add(floor(m) * spread(m.support, width), to=to)
    heads = 1 if gate is None else gate.width
    flags = spread(m.support, heads)
    m.head(flags, flags, squares, to=to, heads=heads, log_gate=gate)
    m.add(squares, to=to)
    first = m.support @ xp.broadcast_to(initial, (1, width))
    if gate is None:
        m.add(first, to=to)
    else:
        m.activate("exp", spread(gate, width), first, to=to)


def squashed(m: LinearAttention, curvature: Read, center: Any) -> Read:
    """Compute u / (1 + |u|) with u = log A - c."""
    here = spread(m.support, curvature.width)
    u = m.scratch("log_curvature", SUPPORTS, "log A - c", width=curvature.width)
    m.activate("log", curvature, here, to=u)
    m.add(-xp.asarray(center, m.dtype) * here, to=u)
    size = m.scratch("size", ROLES, "1 + |log A - c|", width=curvature.width)
    with m.together():
        m.add(spread(m.one, curvature.width), to=size)
        m.activate("relu", u, here, to=size)
        m.activate("relu", -u, here, to=size)
    return m.divide(u, size, to="power")
