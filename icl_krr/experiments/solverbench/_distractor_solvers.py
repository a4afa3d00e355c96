"""Solvers that are no candidate of `identify`, as weights of the one forward pass."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from ... import Kernel, Transformer, per_step, solver
from ...constructions import SUPPORTS, SUPPORTS_AND_QUERIES, machine


@solver
def descent(K, y, *, ridge, step_size):
    r"""Gradient descent that keeps no coefficients, with a step size for each step or for all.

    $$r_{t+1} = r_t - \eta_t (K + \lambda I) r_t$$
    """

    def step(r, prediction):
        Kr = K @ r
        return dict(r=r - step_size * (Kr + ridge * r), prediction=prediction + step_size * Kr)

    return dict(r=y, prediction=0), step


@solver
def averaged_descent(K, y, *, ridge, steps, step_size):
    r"""Gradient descent that predicts with the mean of its iterates 1 to t.

    $$\bar f_{t+1} = \bar f_t + (f_{t+1} - \bar f_t) / (t + 1)$$
    """
    share = per_step(1 / np.arange(1.0, steps + 1))

    def step(r, now, prediction):
        Kr = K @ r
        now = now + step_size * Kr
        r = r - step_size * (Kr + ridge * r)
        return dict(r=r, now=now, prediction=prediction + share * (now - prediction))

    return dict(r=y, now=0, prediction=0), step


@solver
def nesterov(K, y, *, ridge, steps, step_size):
    r"""Nesterov's accelerated gradient method with momentum $\mu_t = t / (t + 3)$.

    $$p_{t+1} = \mu_t p_t + \eta (r_t - \mu_t A p_t), \quad \alpha_{t+1} = \alpha_t + p_{t+1}$$

    The residual in the bracket belongs to the point $\alpha_t + \mu_t p_t$ ahead. The state `ahead`
    is $K p_t$, so that a step applies $K$ once.

    Source: Nesterov, A method of solving a convex programming problem with convergence rate
    O(1/k^2), 1983.
    """
    t = np.arange(float(steps))
    momentum = per_step(t / (t + 3))

    def step(r, p, ahead, prediction):
        g = r - momentum * (ahead + ridge * p)
        p = momentum * p + step_size * g
        ahead = momentum * ahead + step_size * (K @ g)
        return dict(r=r - (ahead + ridge * p), p=p, ahead=ahead, prediction=prediction + ahead)

    return dict(r=y, p=0, ahead=0, prediction=0), step


@solver
def steepest_descent(K, y, *, ridge):
    r"""Steepest descent: the step size $r^T r / r^T A r$ of the exact line search."""

    def step(r, prediction):
        Kr = K @ r
        Ar = Kr + ridge * r
        rr = r @ r
        rAr = r @ Ar
        eta = rr / rAr
        return dict(r=r - eta * Ar, prediction=prediction + eta * Kr)

    return dict(r=y, prediction=0), step


def one_attention(kernel: Kernel, *, num_features: int, ridge: float, steps: int) -> Transformer:
    """Build conjugate gradient with one layer of attention and four layers of units in a step.

    The heads give every token X^T p, X^T r and the sums p.p and r.p. As X^T X is known from a first
    block, every token then computes gamma and beta itself.
    """
    m = machine(kernel, num_features)
    at, size, tokens = SUPPORTS_AND_QUERIES, num_features, m.inside(SUPPORTS_AND_QUERIES)
    ones = jnp.ones((size, 1))
    alpha = m.state("alpha", SUPPORTS, "dual coefficients")
    r = m.state("r", SUPPORTS, "residual y - A alpha", starts_as=m.y)
    p = m.state("p", SUPPORTS, "search direction", starts_as=m.y)
    prediction = m.state("prediction", at, "k(x)^T alpha")
    gram = m.state("gram", at, "X^T X", width=size**2)
    repeat, total = jnp.tile(jnp.eye(size), size), jnp.repeat(jnp.eye(size), size, axis=0)

    def start() -> None:
        m.head(tokens @ jnp.ones((1, size)), key=m.x, value=m.x @ repeat, to=gram, heads=size)

    def step() -> None:
        pp, rp = m.scratch("pp", at, "p . p"), m.scratch("rp", at, "r . p")
        Xp, Xr = m.scratch("Xp", at, "X^T p", size), m.scratch("Xr", at, "X^T r", size)
        rp_own = m.scratch("rp_support", SUPPORTS, "r . p")
        m.head(m.support, r, p, to=rp_own)
        for key, value, to in ((p, p, pp), (r, p, rp), (p, m.x, Xp), (r, m.x, Xr)):
            m.head(tokens, key, value, to)
        XXp = m.multiply(gram, Xp @ repeat, to=m.scratch("XXp", at, "X^T X X^T p", size), out=total)
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
