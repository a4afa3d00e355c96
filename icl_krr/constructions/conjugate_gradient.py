"""Conjugate gradient, with alpha, r and p in slots of their own."""

from __future__ import annotations

from jax.typing import DTypeLike
from jaxtyping import Array, Float

from .. import checks
from ..kernels import Kernel
from ..transformer.weights import Transformer
from .machine import SUPPORTS, SUPPORTS_AND_QUERIES
from .routes import machine


def conjugate_gradient(
    kernel: Kernel,
    *,
    num_features: int,
    ridge: float | Float[Array, ""],
    steps: int,
    num_outputs: int = 1,
    attention: str = "linear",
    arithmetic: str = "exact",
    dtype: DTypeLike | None = None,
) -> Transformer:
    """A transformer that runs conjugate gradient on (K + ridge I) alpha = y.

    gamma = r.r / p.Ap,  alpha += gamma p,  r -= gamma Ap,  beta = r'.r' / r.r,  p = r' + beta p:
    five blocks a step in the textbook's order, after one block for the first r.r. Sums over
    the supports are heads of the aggregator, the two divisions are reciprocal units, and the
    prediction k(x)^T alpha accumulates at the queries (at the supports: the fitted values).
    Each of the `num_outputs` outputs has its own gamma and beta. `ridge` > 0 is traced. The
    weights are float32 or float64 as `dtype` or JAX's default says.

    r.r and p.Ap must be representable: in float32 an r below 1e-16 counts as converged, so a y
    below 1e-9 loses digits (below 1e-16 the prediction stays 0), and one above 1e18 overflows
    (it is NaN). Scale y: the method is linear in it.

    Raises ValueError for a kernel that is not linear and for numbers out of range.

    Source: Hestenes, Stiefel, 1952; the layout is that of the in-context KRR theorems: alpha,
    r and p in disjoint subspaces of the residual stream.

    >>> import icl_krr as ik
    >>> model = conjugate_gradient(ik.Linear(), num_features=3, ridge=0.1, steps=16)
    >>> model.depth, model.blocks_per_step
    (81, 5)
    """
    checks.positive_scalar("ridge", ridge)
    m = machine(kernel, attention, arithmetic, num_features, num_outputs, dtype)
    alpha = m.state("alpha", SUPPORTS, "dual coefficients")
    r = m.state("r", SUPPORTS, "residual y - A alpha", starts_as="y")
    p = m.state("p", SUPPORTS, "search direction", starts_as="y")
    prediction = m.state("prediction", SUPPORTS_AND_QUERIES, "k(x)^T alpha")
    rr = m.scalar("rr", "r . r")

    def start() -> None:
        m.dot(r, r, to=rr)

    def step() -> None:
        Kp = m.kernel_times(p, to="Kp")
        Ap = m.add(Kp + ridge * p, to="Ap", where=m.support)
        gamma = m.divide(rr, m.dot(p, Ap, to="pAp"), to="gamma")
        m.add_scaled(p, by=gamma, to=alpha)
        m.add_scaled(-Ap, by=gamma, to=r)
        m.add_scaled(Kp, by=gamma, to=prediction)

        rr_next = m.dot(r, r, to="rr_next")
        beta = m.divide(rr_next, rr, to="beta")
        m.erase(rr)
        m.add(rr_next, to=rr)
        p_last = m.move(p, to="p_last")
        m.add_scaled(p_last, by=beta, to=p)
        m.add(r, to=p)

    return m.transformer(step, steps=steps, readout=prediction, prologue=start)
