"""Conjugate gradient with one layer of attention in a step (C8)."""

from __future__ import annotations

import jax.numpy as jnp

from ...constructions import SUPPORTS, SUPPORTS_AND_QUERIES, machine
from ...kernels import Kernel
from ...transformer import Transformer


def one_attention(kernel: Kernel, *, num_features: int, ridge: float, steps: int) -> Transformer:
    """Build conjugate gradient with one layer of attention and four layers of units in a step.

    The heads give every token X^T p, X^T r and the sums p.p and r.p. As X^T X is known from a first
    block, every token then computes gamma and beta itself.
    """
    m = machine(kernel, num_features)
    at, size, here = SUPPORTS_AND_QUERIES, num_features, m.inside(SUPPORTS_AND_QUERIES)
    ones = jnp.ones((size, 1))
    alpha = m.state("alpha", SUPPORTS, "dual coefficients")
    r = m.state("r", SUPPORTS, "residual y - A alpha", starts_as=m.y)
    p = m.state("p", SUPPORTS, "search direction", starts_as=m.y)
    prediction = m.state("prediction", at, "k(x)^T alpha")
    gram = m.state("gram", at, "X^T X", width=size**2)
    repeat, add_up = jnp.tile(jnp.eye(size), size), jnp.repeat(jnp.eye(size), size, axis=0)

    def start() -> None:
        query = here @ jnp.ones((1, size))
        m.head(query, key=m.x, value=m.x @ repeat, to=gram, heads=size)

    def step() -> None:
        pp, rp = m.scratch("pp", at, "p . p"), m.scratch("rp", at, "r . p")
        Xp, Xr = m.scratch("Xp", at, "X^T p", size), m.scratch("Xr", at, "X^T r", size)
        rp_own = m.scratch("rp_support", SUPPORTS, "r . p")
        m.head(m.support, r, p, to=rp_own)
        for key, value, to in ((p, p, pp), (r, p, rp), (p, m.x, Xp), (r, m.x, Xr)):
            m.head(here, key, value, to)
        XXp = m.multiply(
            gram, Xp @ repeat, to=m.scratch("XXp", at, "X^T X X^T p", size), out=add_up
        )
        Kp = m.multiply(m.x, Xp, to=m.scratch("Kp", at, "K p"), out=ones)
        pKp = m.multiply(Xp, Xp, to=m.scratch("pKp", at, "p . K p"), out=ones)
        rKp = m.multiply(Xr, Xp, to=m.scratch("rKp", at, "r . K p"), out=ones)
        pAp, rAp = pKp + ridge * pp, rKp + ridge * rp
        pKKp = m.multiply(Xp, XXp, to=m.scratch("pKKp", at, "K p . K p"), out=ones)
        gamma, gamma_own = (m.divide(each, pAp, to="gamma") for each in (rp, rp_own))
        along = m.divide(p, pAp, to="p_over_pAp")
        growth = m.multiply(gamma_own, pKKp + 2 * ridge * pKp + ridge**2 * pp, to="gamma_ApAp")
        m.multiply(gamma_own, p, to=alpha)
        m.multiply(-gamma_own, Kp + ridge * p, to=r)
        m.multiply(gamma, Kp, to=prediction)
        m.erase(p)
        m.add(r, to=p)
        m.multiply(growth - rAp, along, to=p)

    return m.transformer(step, steps=steps, readout=prediction, prologue=start)
