"""Feature maps, computed by the first MLPs of a model."""

from typing import Any

import numpy as np

from ..._core.constants import xp
from ...kernels import Diagonal, FeatureLayer, Kernel, Pattern
from ...kernels._monomials import halves, monomials, num_monomials
from ...residual import Read
from ...residual._reads import one_hot
from .machine import Machine
from .slots import SUPPORTS_AND_QUERIES, repeat


def fill(m: Machine, layer: FeatureLayer, to: Read) -> None:
    """Add phi(x) = s B^T e^(<t, x> - damping |Ux|^2) g(W U x + b) to a slot, see `FeatureLayer`."""
    if layer.degree > 1:
        _fill_products(m, layer, to)
        return
    x = m.projected(layer)
    count = len(layer.frequencies)
    size = m.inside(SUPPORTS_AND_QUERIES)
    if layer.scale is not None:
        size = layer.scale * size
    if layer.function == "identity" and layer.tilt is None:
        m.add(x @ xp.matmul(layer.frequencies.T, layer.mix), to=to)
        return
    angles = x @ layer.frequencies.T
    log_size = tilted(m, layer)
    if layer.damping is not None:
        log_size = log_size - _squared_norm(m, x, x, layer.damping)
    if layer.function == "identity":
        m.activate("exp", repeat(log_size, count), angles, to, layer.mix)
        return
    if log_size.blocks:
        if layer.function == "exp":
            angles = angles + repeat(log_size, count)
        else:
            factor = m.scratch("size", SUPPORTS_AND_QUERIES, "factor of the features", width=1)
            m.activate("exp", log_size, size, factor)
            size = factor
    if layer.offsets is not None:
        angles = angles + m.one @ layer.offsets[None]
    m.activate(layer.function, angles, repeat(size, count), to, layer.mix)


def _fill_products(m: Machine, layer: FeatureLayer, to: Read) -> None:
    """Add all products of `degree` channels to a slot, each a product of two of half the degree."""
    x = m.projected(layer)
    if layer.frequencies is not None:
        x = x @ layer.frequencies.T
    if layer.tilt is not None:
        share, bare = (1 / layer.degree) * tilted(m, layer), x
        x = m.scratch("tilted_x", SUPPORTS_AND_QUERIES, "x times a root of its factor", x.width)
        m.activate("exp", repeat(share, x.width), bare, x)
    powers = {1: x}

    def power(degree: int) -> Read:
        if degree not in powers:
            width, about = num_monomials(x.width, degree), f"products of {degree} channels"
            powers[degree] = m.scratch(f"degree_{degree}", SUPPORTS_AND_QUERIES, about, width)
            multiply(degree, powers[degree])
        return powers[degree]

    def multiply(degree: int, to: Read, roots: Any = 1, out: Any = None) -> None:
        first, other = (copies.astype(m.dtype) for copies in halves(x.width, degree))
        half = degree // 2
        m.multiply(power(half) @ first, power(degree - half) @ (other * roots), to, out)

    _, roots = monomials(x.width, layer.degree)
    multiply(layer.degree, to, roots.astype(m.dtype), layer.mix)


def fill_diagonal(m: Machine, kernel: Kernel, to: Read, column: int = 0) -> None:
    """Add c k(x, x), with the c of the machine, to a column of a slot, at the roles of the slot."""
    at, place = m.at(to), one_hot(column, 1, to.width, m.dtype)
    for term in kernel.diagonal_terms(m.dtype):
        if term.function == "one":
            m.add(m.inside(at) @ (m.scale * term.weight * place), to=to)
            continue
        logit, x = tilted(m, term), m.projected(term)
        if term.factor is not None:
            here = x
            if not {*m.at(x)} <= {*at}:
                here = m.add(x, to=m.scratch("x_support", at, "U x", x.width))
            if term.function == "identity":
                out = m.scale * term.weight * term.factor * np.repeat(place, x.width, axis=0)
                m.multiply(here, x, to=to, out=out)
                continue
            logit = logit + _squared_norm(m, here, x, term.factor)
        m.exponential(logit, to, term.weight * place)


def tilted(m: Machine, form: FeatureLayer | Diagonal | Pattern) -> Read:
    """Return a read of <t, x> for the tilt t of a form; an empty read without one."""
    if form.tilt is None:
        return Read({}, 1)
    return m.x @ xp.asarray(form.tilt, m.dtype)[:, None]


def _squared_norm(m: Machine, here: Read, x: Read, factor: Any) -> Read:
    """Compute factor |x|^2 in a new scratch slot, where `here` reads x, too."""
    slot = m.scratch("square", m.at(here), "multiple of |x|^2", width=1)
    add_product(m, here, x, factor, slot)
    return slot


def add_product(m: Machine, a: Read, b: Read, factor: Any, to: Read) -> None:
    """Add factor <a, b> to a slot of one channel."""
    m.multiply(a, b, to=to, out=xp.asarray(factor, m.dtype) * np.ones((a.width, 1), m.dtype))
