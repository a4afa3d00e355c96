"""The momentum delta rule: heavy-ball online gradient descent with forgetting."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
from jaxtyping import Array, Float

from .. import checks
from ..constants import xp
from ..kernels import Kernel
from ..residual import Read
from ..transformer.weights import Heads, Transformer, Write
from .assembly.choice import construction
from .assembly.linear_attention import LinearAttention
from .assembly.machine import Machine
from .assembly.prefix import CausalOptions, accumulate, floor, of_supports, one_elsewhere
from .assembly.slots import SUPPORTS, SUPPORTS_AND_QUERIES, spread
from .assembly.turns import Shown, everywhere, feature_turns


@construction
def momentum_delta_rule(
    kernel: Kernel,
    *,
    num_features: int,
    step_size: float | Float[Array, "..."],
    momentum: float | Float[Array, "..."],
    decay: float | Float[Array, "..."] = 1.0,
    steps: int | None = None,
    **options: Unpack[CausalOptions],
) -> Transformer:
    r"""Build a causal transformer that runs the delta rule with momentum, one support a step.

    It is `icl_krr.solvers.momentum_delta_rule`. A support stores its momentum $M_i$ in the slot `M`
    of r m channels, a sum over the supports up to it with the gates $\theta$. One more head, with
    the gates $\alpha$ and the keys $M_j$, computes $S_{i-1} \phi_i$. So a step takes 2 blocks.
    Steps and other states are those of `delta_rule`.

    >>> import numpy as np
    >>> import icl_krr as ik
    >>> rule = {"step_size": 0.5, "momentum": 0.5, "steps": 3}
    >>> model = momentum_delta_rule(ik.Linear(), num_features=1, **rule)
    >>> task = ik.Task(x=np.ones((3, 1)), y=[2.0, 2.0, 2.0], x_query=[[1.0]])
    >>> ik.predict_along(model, task).tolist()
    [0.0, 1.0, 2.0, 2.5]
    """
    checks.obeys("step_size", step_size, "> 0")
    checks.obeys("momentum", momentum, ">= 0 and < 1")
    checks.obeys("decay", decay, "> 0 and <= 1")
    turns, m = feature_turns(kernel, num_features, steps, options)
    phi, ahead, r = m.over_outputs(m.features), turns.ahead, m.spec.num_outputs
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

    def predict() -> tuple[Shown, Read]:
        new = m.scratch("new_M", SUPPORTS, "momentum", width=phi.width)
        here = spread(m.per_output(m.support), heads)
        m.head(here, spread(ahead, heads), phi, to=new, heads=heads, log_gate=gate_of_M)
        m.multiply(spread(ahead, phi.width), phi, to=new)
        f = m.scratch("f", SUPPORTS_AND_QUERIES, "S phi")
        values = spread(m.per_output(size), heads)  # the decay of j does not count for M_j
        out = None if heads == r else total
        m.emit(Heads(phi, new, (Write(values, out, f.slot),), heads, gate_of_S))
        m.add(new - M, to=M)
        return everywhere(f)

    def include() -> None:
        f = m.layout.read("f", m.dtype)
        new = m.layout.read("new_M", m.dtype)
        m.multiply(m.per_output(kept - m.support), f, to=turns.prediction)
        m.multiply(m.over_outputs(stepped), new, to=turns.prediction, out=total)

    return turns.learns(turns.strength, predict, include, prepare=prepare)


def with_logs(m: Machine, name: str, value: Any) -> tuple[Read, Read]:
    """The reads of a number >= 0 of every support, and of its logarithm.

    The floor stands for 0. At 0, the derivative of its exponential is that at the number.
    """
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
