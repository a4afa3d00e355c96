"""Feature maps as the first MLPs of a model that runs on their kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from ...kernels import Exponential, Gaussian, Linear, project
from ...residual import Read, join
from ...sketches import NystromFeatures, RandomFeatures
from .arithmetic import repeat
from .slots import SUPPORTS_AND_QUERIES

if TYPE_CHECKING:
    from .machine import Machine


def fill(m: Machine, phi: NystromFeatures | RandomFeatures, to: Read) -> None:
    """Add phi(x) to a slot, at supports and queries."""
    if isinstance(phi, RandomFeatures):
        random(m, phi, to)
    else:
        nystrom(m, phi, to)


def random(m: Machine, phi: RandomFeatures, to: Read) -> None:
    """e^(-damping |x|^2) times the exponentials, or the cosines and sines, of W x."""
    x = m.projected(phi)
    frequencies, count = jnp.asarray(phi.frequencies, m.dtype), len(phi.frequencies)
    angles, here = x @ frequencies.T, m.inside(SUPPORTS_AND_QUERIES)
    exponent = -square(m, x, phi.damping)
    if phi.kind == "positive":
        out = jnp.eye(count, dtype=m.dtype) / np.sqrt(count)
        m.activate("exp", angles + repeat(exponent, count), repeat(here, count), to, out)
        return
    size = m.scratch("size", SUPPORTS_AND_QUERIES, "e^(-damping |x|^2)", width=1)
    m.activate("exp", exponent, here, size)
    # sin is cos a quarter turn later
    waves = join(angles, angles - np.pi / 2 * repeat(m.one, count))
    out = jnp.eye(2 * count, dtype=m.dtype) / np.sqrt(count)
    m.activate("cos", waves, repeat(size, 2 * count), to, out)


def nystrom(m: Machine, phi: NystromFeatures, to: Read) -> None:
    """k(x, landmarks) by one exponential each, mixed; for the linear kernel without any."""
    kernel = phi.kernel
    if not isinstance(kernel, (Linear, Exponential, Gaussian)):
        raise ValueError(
            "kernel must be Linear, Exponential or Gaussian to be seen from landmarks, "
            f"got {kernel!r}"
        )
    x, landmarks = m.projected(kernel), project(kernel.projection, phi.landmarks.astype(m.dtype))
    mix = jnp.asarray(phi.mix, m.dtype)
    if isinstance(kernel, Linear):
        m.add(x @ (landmarks.T @ mix), to=to)
        return
    count = len(landmarks)
    if isinstance(kernel, Exponential):
        logits = (1 / jnp.asarray(kernel.temperature, m.dtype)) * x @ landmarks.T
    else:
        inverse = 1 / jnp.asarray(kernel.lengthscale, m.dtype) ** 2
        halves = inverse / 2 * jnp.sum(landmarks * landmarks, axis=1)
        logits = inverse * x @ landmarks.T - repeat(square(m, x, inverse / 2), count)
        logits = logits - m.one @ halves[None]
    m.activate("exp", logits, repeat(m.inside(SUPPORTS_AND_QUERIES), count), to, mix)


def square(m: Machine, x: Read, factor: Any) -> Read:
    """factor |x|^2 in a new scratch."""
    slot = m.scratch("square", SUPPORTS_AND_QUERIES, "multiple of |x|^2", width=1)
    m.multiply(x, x, to=slot, out=jnp.full((x.width, 1), factor, m.dtype))
    return slot
