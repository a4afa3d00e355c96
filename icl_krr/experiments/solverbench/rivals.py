"""Solvers that are no candidate of `identify`, as weights of the one forward pass."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ...constructions import SUPPORTS, SUPPORTS_AND_QUERIES, machine
from ...kernels import Kernel
from ...transformer import Transformer


def varying_descent(
    kernel: Kernel, *, num_features: int, ridge: float, step_sizes: jax.Array, **options: Any
) -> Transformer:
    r"""Gradient descent with one step size for each step, `step_sizes` [steps].

    $$r_{t+1} = r_t - \eta_t (K + \lambda I) r_t$$
    """
    m = machine(kernel, num_features, **options)
    r = m.state("r", SUPPORTS, "residual y - A alpha", starts_as=m.y)
    prediction = m.state("prediction", SUPPORTS_AND_QUERIES, "k(x)^T alpha")

    def step(eta: jax.Array) -> None:
        Kr = m.kernel_times(r) * (1 / m.scale)
        with m.together():
            m.add(eta * Kr, to=prediction)
            m.add(-eta * (Kr + ridge * r), to=r)

    return m.transformer(
        step, steps=len(step_sizes), readout=prediction, coefficients=(step_sizes,)
    )


def averaged_descent(
    kernel: Kernel, *, num_features: int, ridge: float, steps: int, step_size: float, **options: Any
) -> Transformer:
    r"""Gradient descent that predicts with the mean of its iterates 1 to t.

    $$\bar f_{t+1} = \bar f_t + (f_{t+1} - \bar f_t) / (t + 1)$$
    """
    m = machine(kernel, num_features, **options)
    r = m.state("r", SUPPORTS, "residual y - A alpha", starts_as=m.y)
    now = m.state("now", SUPPORTS_AND_QUERIES, "k(x)^T alpha")
    mean = m.state("prediction", SUPPORTS_AND_QUERIES, "mean of the iterates")

    def step(share: jax.Array) -> None:
        Kr = m.kernel_times(r) * (1 / m.scale)
        with m.together():
            m.add(step_size * Kr, to=now)
            m.add(share * (now + step_size * Kr - mean), to=mean)
            m.add(-step_size * (Kr + ridge * r), to=r)

    shares = 1 / jnp.arange(1.0, steps + 1)
    return m.transformer(step, steps=steps, readout=mean, coefficients=(shares,))


def nesterov(
    kernel: Kernel, *, num_features: int, ridge: float, steps: int, step_size: float, **options: Any
) -> Transformer:
    r"""Nesterov's accelerated gradient method with momentum $\mu_t = t / (t + 3)$.

    $$p_{t+1} = \mu_t p_t + \eta (r_t - \mu_t A p_t), \quad \alpha_{t+1} = \alpha_t + p_{t+1}$$

    The residual in the bracket belongs to the point $\alpha_t + \mu_t p_t$ ahead. The slot `ahead`
    contains $K p_t$, so that a step applies $K$ once.

    Source: Nesterov, A method of solving a convex programming problem with convergence rate
    O(1/k^2), 1983.
    """
    m = machine(kernel, num_features, **options)
    r = m.state("r", SUPPORTS, "residual y - A alpha", starts_as=m.y)
    p = m.state("p", SUPPORTS, "last change of alpha")
    Kp = m.state("ahead", SUPPORTS_AND_QUERIES, "K p at supports, k(x)^T p at queries")
    g = m.state("g", SUPPORTS, "residual at the point ahead", starts_as=m.y)
    prediction = m.state("prediction", SUPPORTS_AND_QUERIES, "k(x)^T alpha")

    def step(mu: jax.Array, mu_next: jax.Array) -> None:
        Kg = m.kernel_times(g) * (1 / m.scale)
        p_new = mu * p + step_size * g
        Kp_new = mu * Kp + step_size * Kg
        r_change = Kp_new + ridge * p_new
        with m.together():
            m.add(p_new - p, to=p)
            m.add(Kp_new - Kp, to=Kp)
            m.add(Kp_new, to=prediction)
            m.add(-r_change, to=r)
            m.add(r - r_change - mu_next * r_change - g, to=g)

    t = jnp.arange(0.0, steps + 1)
    mu = t / (t + 3)
    return m.transformer(step, steps=steps, readout=prediction, coefficients=(mu[:-1], mu[1:]))


def steepest_descent(
    kernel: Kernel, *, num_features: int, ridge: float, steps: int, **options: Any
) -> Transformer:
    r"""Steepest descent: the step size $r^T r / r^T A r$ of the exact line search."""
    m = machine(kernel, num_features, **options)
    r = m.state("r", SUPPORTS, "residual y - A alpha", starts_as=m.y)
    prediction = m.state("prediction", SUPPORTS_AND_QUERIES, "k(x)^T alpha")

    def step() -> None:
        Kr = m.finish(m.kernel_times(r), to="Kr")
        Ar = m.add(Kr + m.scale * ridge * r, to=m.scratch("Ar", SUPPORTS, "A r"))
        eta = m.divide(m.dot(r, r, to="rr"), m.dot(r, Ar, to="rAr"), to="eta")
        m.add_scaled(-Ar, by=eta, to=r)
        m.add_scaled(Kr, by=eta, to=prediction)

    return m.transformer(step, steps=steps, readout=prediction)


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
