"""The channels that a model needs, and how far it is from its solver with fewer (C15 and C34)."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ... import constructions, sketches, solvers
from ...kernels import Kernel
from ...tasks import Task
from ...transformer import Transformer, run_with_cache
from .measuring import largest_gap, over


class Channels(NamedTuple):
    """A solver by name with its ridge, steps and further options."""

    solver: str
    ridge: float
    steps: int
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def arguments(self) -> dict[str, Any]:
        return {"ridge": self.ridge, "steps": self.steps, **dict(self.options)}

    def build(self, kernel: Kernel, num_features: int, **sketch: jax.Array) -> Transformer:
        construct = getattr(constructions, self.solver)
        return construct(kernel, num_features=num_features, **self.arguments, **sketch)

    def overhead(self, kernel: Kernel, num_features: int) -> int:
        """The number c of channels of the construction that do not store features."""
        return self.build(kernel, num_features).overhead

    def gap(self, kernel: Kernel, task: Task, sketch: jax.Array) -> jax.Array:
        """Return the largest of the gaps |slot - iterate| / |iterate| of the solver's states.

        The model stores the features P^T x, the solver has the features x. The states are alpha,
        the prediction at the queries and, if the model keeps it, r. |.| is a maximum over all
        steps.
        """
        path = getattr(solvers, self.solver)(kernel, task, **self.arguments)
        model = self.build(kernel, task.num_features, sketch=sketch)
        names = tuple(name for name in ("alpha", "r", "prediction") if name in model.layout.names)
        _, cache = run_with_cache(model, task, names=names)
        return jnp.max(jnp.stack([largest_gap(cache[name], getattr(path, name)) for name in names]))


@partial(jax.jit, static_argnames="run")
def channel_gaps(keys: jax.Array, tasks: Task, kernel: Kernel, run: Channels) -> jax.Array:
    """Return the gaps [draw, 2] for p and p - 1 feature channels in a random orthonormal basis.

    p - 1 channels mean that one is 0.
    """

    def gaps(draw: tuple[jax.Array, Task]) -> jax.Array:
        turn, task = draw
        P = sketches.orthonormal(turn, task.num_features, task.num_features)
        both = jnp.stack([P, P.at[:, -1].set(0)])
        return jax.vmap(lambda P: run.gap(kernel, task, P))(both)

    return over(gaps, (keys, tasks))
