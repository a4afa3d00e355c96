"""Conjugate gradient, with separate slots for alpha, r and p."""

from __future__ import annotations

from typing import Any, Unpack

from jaxtyping import Array, Float

from .. import checks
from ..constants import xp
from ..kernels import Kernel
from ..residual import Read
from ..transformer.weights import Transformer
from .assembly.choice import construction, machine
from .assembly.machine import Machine
from .assembly.options import Options
from .assembly.slots import SUPPORTS, SUPPORTS_AND_QUERIES, label


@construction
def conjugate_gradient(
    kernel: Kernel,
    *,
    num_features: int,
    ridge: float | Float[Array, ""],
    steps: int,
    form: str = "textbook",
    **options: Unpack[Options],
) -> Transformer:
    r"""Build a transformer that solves $(K + \lambda I) \alpha = y$ by conjugate gradient.

    It is `icl_krr.solvers.conjugate_gradient`. The states are alpha, r, p and prediction, which is
    $k(x)^T \alpha_t$ at the queries and the fitted values at the supports. The three forms compute
    the same iterates up to rounding and differ in the number of blocks per step:

    - "textbook" takes 5 blocks per step with linear attention and 7 with softmax attention, where a
      sum takes two sublayers: an MLP computes the summands, and a head their mean.
    - "fused" computes all sums of a step in parallel, in 3 blocks (linear) or 5 (softmax).
    - "pipelined" computes sums and products with $A$ in parallel, in 2 blocks (linear) or 4
      (softmax). It keeps $s_t = A p_t$, and heads compute $A r_t$, $A p_t$ and $A s_t$ in the same
      block. Recurrences for $A r$ and $A p$ would save no depth and accumulate rounding errors.

    Args:
        form: order of the operations.

    Source: the layout follows the in-context KRR theorems, alpha, r and p in disjoint subspaces of
    the residual stream.

    >>> import icl_krr as ik
    >>> model = conjugate_gradient(ik.Linear(), num_features=3, ridge=0.1, steps=16)
    >>> model.depth, model.blocks_per_step
    (81, 5)
    """
    forms = {"textbook": textbook, "fused": fused, "pipelined": pipelined}
    checks.choice("form", form, tuple(forms))
    m = machine(kernel, num_features, **options).solves(ridge)
    return forms[form](m, m.scale * xp.asarray(ridge, m.dtype), steps)


def textbook(m: Machine, ridge: float | Float[Array, ""], steps: int) -> Transformer:
    slots = _, r, p, prediction = states(m, m.right)
    rr = m.scalar("rr", "r . r")

    def start() -> None:
        m.dot(r, r, to=rr)

    def step() -> None:
        advance_alpha(m, ridge, rr, slots)
        turn_direction(m, rr, r, r, p)

    return m.transformer(step, steps=steps, readout=prediction, prologue=start)


def advance_alpha(m: Machine, ridge: Any, rz: Read, slots: tuple[Read, ...]) -> None:
    """gamma = r.z / p.Ap,  alpha += gamma p,  r -= gamma Ap,  prediction += gamma K p."""
    alpha, r, p, prediction = slots
    Kp = m.kernel_times(p)
    d = m.direction
    Ap = m.add(Kp + ridge * p, to=m.scratch_vector(f"A{d}", f"A {d}"))
    Kp = m.fit_of(p, Kp, to=f"K{d}")
    gamma = m.divide(rz, m.dot(p, Ap, to=f"{d}A{d}"), to="gamma")
    m.add_scaled(m.scale * p, by=gamma, to=alpha)
    m.add_scaled(-Ap, by=gamma, to=r)
    m.add_scaled(Kp, by=gamma, to=prediction)


def turn_direction(m: Machine, rz: Read, r: Read, z: Read, p: Read) -> None:
    """beta = r'.z' / r.z,  p = z' + beta p; z is r or the preconditioned residual."""
    rz_next = m.dot(r, z, to=f"{rz.slot}_next")
    beta = m.divide(rz_next, rz, to="beta")
    m.erase(rz)
    m.add(rz_next, to=rz)
    p_last = m.move(p, to=f"{m.direction}_last")
    m.add_scaled(p_last, by=beta, to=p)
    m.add(z, to=p)


def fused(m: Machine, ridge: float | Float[Array, ""], steps: int) -> Transformer:
    alpha, r, p, prediction = states(m, m.right)

    def step() -> None:
        Kp = m.kernel_times(p)
        Ap = m.add(Kp + ridge * p, to=m.scratch_vector(f"A{m.direction}", f"A {m.direction}"))
        Kp = m.fit_of(p, Kp, to=f"K{m.direction}")
        gamma, growth, drop = quotients(m, r, p, Ap)
        p_last = m.move(p, to=f"{m.direction}_last")
        m.add_scaled(m.scale * p_last, by=gamma, to=alpha)
        m.add_scaled(-Ap, by=gamma, to=r)
        m.add_scaled(Kp, by=gamma, to=prediction)
        m.add_scaled(p_last, by=(gamma, growth), to=p)
        m.add_scaled(-p_last, by=drop, to=p)
        m.add(r, to=p)

    return m.transformer(step, steps=steps, readout=prediction)


def pipelined(m: Machine, ridge: float | Float[Array, ""], steps: int) -> Transformer:
    alpha, r, p, prediction = states(m, m.right)
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
    """Compute gamma, growth and drop from sums over r, p and Ap; beta = gamma growth - drop."""
    pAp = m.dot(p, Ap, to="pAp")
    return (
        m.divide(m.dot(r, p, to="rp"), pAp, to="gamma"),
        m.divide(m.dot(Ap, Ap, to="ApAp"), pAp, to="growth"),
        m.divide(m.dot(r, Ap, to="rAp"), pAp, to="drop"),
    )


def states(
    m: Machine, starts_as: Read | None, about: str = "search direction"
) -> tuple[Read, Read, Read, Read]:
    """Declare alpha, r, p and prediction; the direction p has this initial value, or 0."""
    return (
        m.vector(m.solution, m.about_solution),
        m.vector("r", f"residual {label(m.right)} - A {m.solution}", starts_as=m.right),
        m.vector(m.direction, about, starts_as=starts_as),
        m.state_of_fit(),
    )
