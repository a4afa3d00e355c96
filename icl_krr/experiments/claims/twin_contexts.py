"""Two contexts that one block with one softmax head cannot tell apart (C2).

The query is e1 and the four supports are (h, c cos t, c sin t) with h = 0.6, c = 0.8 and y = 1. All
supports have the logit h / temperature, for every set of angles t. Both sets of angles have sum of
cos t = sum of sin t = 0. So the attention weights, their normaliser and the means of x and y agree,
and with them the mean of all values that are linear in (x, y, 1). The angles enter f* through the
kernel of the supports with each other.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ...constructions.assembly.choice import softmax_machine
from ...constructions.assembly.machine import Machine
from ...kernels import Exponential
from ...residual import ROLES, Read, join
from ...tasks import Task
from ...transformer import Transformer

ANGLES = ((0.0, 90.0, 180.0, 270.0), (0.0, 20.0, 180.0, 200.0))  # in degrees
HEIGHT = 0.6


def contexts() -> Task:
    """Return the two contexts as a batch."""
    angles = jnp.deg2rad(jnp.asarray(ANGLES))
    radius = jnp.sqrt(1 - HEIGHT**2)
    x = jnp.stack(
        [jnp.full_like(angles, HEIGHT), radius * jnp.cos(angles), radius * jnp.sin(angles)], axis=-1
    )
    query = jnp.broadcast_to(jnp.eye(3)[:1], (len(x), 1, 3))
    return Task(x=x, y=jnp.ones(x.shape[:2]), x_query=query)


def block(key: jax.Array, kernel: Exponential, width: int) -> Transformer:
    """Build a block with one softmax head, whose sink is the aggregator, and a random MLP."""
    m = softmax_machine(kernel, 3)
    of_values, of_mean, of_data, of_hidden = (
        jax.random.normal(one, shape)
        for one, shape in zip(
            jax.random.split(key, 4),
            ((6, width), (width, width), (6, width), (width, 1)),
            strict=True,
        )
    )
    mean = m.state("mean", ROLES, "weighted mean of the values", width=width)
    prediction = m.state("prediction", ROLES, "output of the MLP")

    def step() -> None:
        for term in m.terms:
            m.head(term.query, term.key, values(m, of_values), to=mean)
        hidden = mean @ of_mean + join(m.x, m.y, m.one, m.aggregator) @ of_data
        m.activate("gelu", hidden, m.one @ jnp.ones((1, width)), to=prediction, out=of_hidden)

    return m.transformer(step, steps=1, readout=prediction)


def values(m: Machine, matrix: jax.Array) -> Read:
    return join(m.x, m.y, m.one, m.aggregator) @ matrix
