"""Conjugate gradient, with alpha, r and p in slots of their own."""

from __future__ import annotations

from typing import Unpack

import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import checks
from ..kernels import Kernel
from ..residual import Read
from ..transformer.weights import Transformer
from .assembly.choice import machine
from .assembly.machine import Machine
from .assembly.options import Options
from .assembly.slots import SUPPORTS, SUPPORTS_AND_QUERIES


def conjugate_gradient(
    kernel: Kernel,
    *,
    num_features: int,
    ridge: float | Float[Array, ""],
    steps: int,
    form: str = "textbook",
    **options: Unpack[Options],
) -> Transformer:
    r"""A transformer that runs conjugate gradient on $A \alpha = y$, $A = K + \lambda I$.

    $$\gamma_t = |r_t|^2 / p_t^T A p_t, \quad \alpha_{t+1} = \alpha_t + \gamma_t p_t, \quad
    r_{t+1} = r_t - \gamma_t A p_t,$$
    $$\beta_t = |r_{t+1}|^2 / |r_t|^2, \quad p_{t+1} = r_{t+1} + \beta_t p_t$$

    The prediction $k(x)^T \alpha$ accumulates at the queries (at the supports: the fitted values),
    and each of the `num_outputs` outputs has its own $\gamma$ and $\beta$. Three forms, equal but
    for rounding, cost five, three and two blocks a step with linear attention, whose sums are heads
    of the aggregator; with softmax attention a sum takes a product in the MLP and a mean head:
    - "textbook": as above, after one block for the first $|r|^2$;
    - "fused": all sums at once, $\gamma_t = r_t^T p_t / p_t^T A p_t$ and
      $\beta_t = -r_{t+1}^T A p_t / p_t^T A p_t$ with
      $r_{t+1}^T A p_t = r_t^T A p_t - \gamma_t |A p_t|^2$;
    - "pipelined": sums and products at once, $s_t = A p_t$ being known a step before, by
      $s_{t+1} = A r_t - \gamma_t A s_t + \beta_t A p_t$, after one block for the first. $A r$ and
      $A p$ are made afresh by heads beside $A s$, where a sequential machine would recur to save
      them: depth is what counts here, and past convergence the recurrences would drift.

    `ridge` $\lambda > 0$ is traced. $|r|^2$ and $p^T A p$ must be representable: in float32 an r
    below 1e-16 counts as converged, so a y below 1e-9 loses digits (below 1e-16 the prediction
    stays 0), and one above 1e18 overflows (it is NaN). Scale y: the method is linear in it.

    Further keywords are the `Options` of every construction.

    Raises ValueError for an unknown form, for a kernel that the `attention` cannot apply and
    for numbers out of range.

    Source: Hestenes, Stiefel, 1952; Chronopoulos, Gear, 1989; Ghysels, Vanroose, 2014. The
    layout is that of the in-context KRR theorems: alpha, r and p in disjoint subspaces of the
    residual stream.

    >>> import icl_krr as ik
    >>> model = conjugate_gradient(ik.Linear(), num_features=3, ridge=0.1, steps=16)
    >>> model.depth, model.blocks_per_step
    (81, 5)
    """
    checks.positive_scalar("ridge", ridge)
    forms = {"textbook": textbook, "fused": fused, "pipelined": pipelined}
    checks.choice("form", form, tuple(forms))
    m = machine(kernel, num_features, **options)
    return forms[form](m, m.scale * jnp.asarray(ridge, m.dtype), steps)


def textbook(m: Machine, ridge: float | Float[Array, ""], steps: int) -> Transformer:
    alpha, r, p, prediction = states(m)
    rr = m.scalar("rr", "r . r")

    def start() -> None:
        m.dot(r, r, to=rr)

    def step() -> None:
        advance_alpha(m, ridge, rr, alpha, r, p, prediction)
        turn_direction(m, rr, r, r, p)

    return m.transformer(step, steps=steps, readout=prediction, prologue=start)


def advance_alpha(
    m: Machine,
    ridge: float | Float[Array, ""],
    rz: Read,
    alpha: Read,
    r: Read,
    p: Read,
    prediction: Read,
) -> None:
    """gamma = r.z / p.Ap,  alpha += gamma p,  r -= gamma Ap,  prediction += gamma K p."""
    Kp = m.kernel_times(p)
    Ap = m.add(Kp + ridge * p, to=m.scratch("Ap", SUPPORTS, "A p"))
    Kp = m.finish(Kp, to="Kp")
    gamma = m.divide(rz, m.dot(p, Ap, to="pAp"), to="gamma")
    m.add_scaled(m.scale * p, by=gamma, to=alpha)
    m.add_scaled(-Ap, by=gamma, to=r)
    m.add_scaled(Kp, by=gamma, to=prediction)


def turn_direction(m: Machine, rz: Read, r: Read, z: Read, p: Read) -> None:
    """beta = r'.z' / r.z,  p = z' + beta p; z is r, or what a preconditioner makes of it."""
    rz_next = m.dot(r, z, to=f"{rz.slot}_next")
    beta = m.divide(rz_next, rz, to="beta")
    m.erase(rz)
    m.add(rz_next, to=rz)
    p_last = m.move(p, to="p_last")
    m.add_scaled(p_last, by=beta, to=p)
    m.add(z, to=p)


def fused(m: Machine, ridge: float | Float[Array, ""], steps: int) -> Transformer:
    alpha, r, p, prediction = states(m)

    def step() -> None:
        Kp = m.kernel_times(p)
        Ap = m.add(Kp + ridge * p, to=m.scratch("Ap", SUPPORTS, "A p"))
        Kp = m.finish(Kp, to="Kp")
        gamma, growth, drop = quotients(m, r, p, Ap)
        p_last = m.move(p, to="p_last")
        m.add_scaled(m.scale * p_last, by=gamma, to=alpha)
        m.add_scaled(-Ap, by=gamma, to=r)
        m.add_scaled(Kp, by=gamma, to=prediction)
        m.add_scaled(p_last, by=(gamma, growth), to=p)
        m.add_scaled(-p_last, by=drop, to=p)
        m.add(r, to=p)

    return m.transformer(step, steps=steps, readout=prediction)


def pipelined(m: Machine, ridge: float | Float[Array, ""], steps: int) -> Transformer:
    alpha, r, p, prediction = states(m)
    s = m.state("s", SUPPORTS_AND_QUERIES, "A p at supports, k(x)^T p at queries")

    def start() -> None:
        m.add(m.kernel_times(m.y) + ridge * m.y, to=s)

    def step() -> None:
        gamma, growth, drop = quotients(m, r, p, s)
        Kp = m.finish(m.kernel_times(p), to="Kp")
        Ks = m.finish(m.kernel_times(s), to="Ks")
        Ar = m.add(m.kernel_times(r) + ridge * r, to=m.scratch("Ar", SUPPORTS_AND_QUERIES, "A r"))
        Ap = m.add(s, to=m.scratch("Ap", SUPPORTS, "A p"))
        m.erase(s)
        p_last = m.move(p, to="p_last")
        m.add_scaled(m.scale * p_last, by=gamma, to=alpha)
        m.add_scaled(Kp, by=gamma, to=prediction)
        m.add_scaled(-Ap, by=gamma, to=r)
        for slot, last in ((p, p_last), (s, Kp + ridge * p_last)):
            m.add_scaled(last, by=(gamma, growth), to=slot)
            m.add_scaled(-last, by=drop, to=slot)
        m.add_scaled(-(Ks + ridge * Ap), by=gamma, to=s)
        m.add(r, to=p)
        m.add(Ar, to=s)

    return m.transformer(step, steps=steps, readout=prediction, prologue=start)


def quotients(m: Machine, r: Read, p: Read, Ap: Read) -> tuple[Read, Read, Read]:
    """gamma, and beta = gamma growth - drop, by sums over r, p and Ap alone."""
    pAp = m.dot(p, Ap, to="pAp")
    return (
        m.divide(m.dot(r, p, to="rp"), pAp, to="gamma"),
        m.divide(m.dot(Ap, Ap, to="ApAp"), pAp, to="growth"),
        m.divide(m.dot(r, Ap, to="rAp"), pAp, to="drop"),
    )


def states(m: Machine, starts: bool = True) -> tuple[Read, Read, Read, Read]:
    """alpha, r, p, prediction; p starts as y, unless it waits for a preconditioner."""
    return (
        m.state("alpha", SUPPORTS, "dual coefficients"),
        m.state("r", SUPPORTS, "residual y - A alpha", starts_as=m.y),
        m.state("p", SUPPORTS, "search direction", starts_as=m.y if starts else None),
        m.state("prediction", SUPPORTS_AND_QUERIES, "k(x)^T alpha"),
    )
