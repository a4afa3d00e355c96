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
    """Build a causal transformer that takes an implicit step for each support, one a step.

    It is `icl_krr.solvers.implicit_delta_rule`. A step takes one block with linear attention and
    two with softmax attention. Steps and states are those of `delta_rule`.

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
