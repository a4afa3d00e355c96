"""The Kalman delta rule: gains from a covariance with one number for each feature, or one."""

from __future__ import annotations

from typing import Unpack

import numpy as np
from jaxtyping import Array, Float

from .. import checks
from ..constants import xp
from ..kernels import Kernel
from ..residual import ROLES
from ..transformer.weights import Transformer
from .assembly.choice import construction
from .assembly.prefix import CausalOptions, of_supports
from .assembly.slots import SUPPORTS, spread
from .assembly.turns import feature_turns

COVARIANCES = ("diagonal", "isotropic")


@construction
def kalman_delta_rule(
    kernel: Kernel,
    *,
    num_features: int,
    ridge: float | Float[Array, ""],
    process_noise: float | Float[Array, " p"] = 0.0,
    covariance: str = "diagonal",
    info_scale: float | Float[Array, ""] = 1.0,
    steps: int | None = None,
    **options: Unpack[CausalOptions],
) -> Transformer:
    r"""Build a causal transformer that runs a Kalman filter with an approximate covariance.

    It is `icl_krr.solvers.kalman_delta_rule`. The gains do not depend on y. Each depends on the
    precision before it, so the supports compute them in turn: the slot `change` contains what each
    support adds to the precision $1 / p$, and one head sums it. A step takes 3 blocks. Steps and
    states are those of `delta_rule`; the slot `gain` [T, m] contains $\kappa_i$.

    >>> import numpy as np
    >>> import icl_krr as ik
    >>> model = kalman_delta_rule(ik.Linear(), num_features=1, ridge=1.0, steps=2)
    >>> task = ik.Task(x=np.ones((2, 1)), y=[2.0, 4.0], x_query=[[1.0]])
    >>> ik.predict_along(model, task).round(4).tolist()
    [0.0, 1.0, 2.0]
    """
    checks.positive_scalar("ridge", ridge)
    checks.positive_scalar("info_scale", info_scale)
    checks.choice("covariance", covariance, COVARIANCES)
    checks.obeys("process_noise", process_noise, ">= 0")
    turns, m = feature_turns(kernel, num_features, steps, options)
    width, now = m.features.width, turns.now
    ridge, scale = (xp.asarray(value, m.dtype) for value in (ridge, info_scale))
    omega = of_supports(m, "process_noise", process_noise)
    pool = np.eye(width, dtype=m.dtype)
    if covariance == "isotropic":
        pool = np.full((width, 1), 1 / width, m.dtype)
    count = pool.shape[1]
    weighted = m.state("weighted", SUPPORTS, "strength phi(x)", width=width)
    squares = m.state("squares", SUPPORTS, "strength phi^2", width=width)
    kept = m.state("kept", SUPPORTS, "squared gate", width=count)
    change = m.state("change", SUPPORTS, "what a support adds to the precision", width=count)
    gain = m.state("gain", SUPPORTS, "gain", width=width)
    own = m.state("own", SUPPORTS, "phi . gain", width=1)
    here = spread(m.support, count)

    def prepare() -> None:
        m.multiply(m.features_here(SUPPORTS), spread(turns.strength, width), to=weighted)
        m.multiply(weighted, m.features, to=squares)
        if m.own_log_gate is None:
            m.add(here, to=kept)
        else:
            gates = spread(2 * m.own_log_gate, width)
            m.activate("exp", gates, spread(m.support, width), to=kept, out=pool)

    def refresh() -> None:
        added = m.scratch("added", SUPPORTS, "changes of the precision before", width=count)
        m.sum_before(change, to=added)
        # divisors are 1 at other tokens, where merged slots have rounding errors in place of zeros
        precision = spread(m.one, count) + added
        predicted = m.scratch("predicted", ROLES, "predicted covariance; 1 elsewhere", width=count)
        with m.together():
            m.divide(kept, precision, to=predicted)
            m.add(spread(omega, count), to=predicted)
            m.add(spread(m.one - m.support, count), to=predicted)
        each = spread(predicted, width)
        above = m.multiply(each, weighted, to="gain_above")
        below = m.scratch("gain_below", SUPPORTS, "strength phi . P phi", width=1)
        m.multiply(each, squares, to=below, out=np.ones((width, 1), m.dtype))
        with m.together():
            m.add(-change, to=change)
            m.divide(spread(now, count), predicted, to=change)
            m.multiply(spread(now, count), squares @ (scale / ridge * pool) - precision, to=change)
        total = below + ridge * m.one
        with m.together():
            m.add(-gain, to=gain)
            m.divide(above, spread(total, width), to=gain)
            m.add(-own, to=own)
            m.divide(below, total, to=own)

    return turns.learns_along(gain, own, m.support, prepare=prepare, refresh=refresh)
