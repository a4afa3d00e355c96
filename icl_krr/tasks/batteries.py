"""Named batteries: tasks outside of the distribution that a model was trained on."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from .. import checks
from ..catalogue import BATTERIES, find
from ..pytree import checked, static
from .samplers import Sampler, check_sampler
from .task import Task


def battery(name: str, family: Sampler) -> Sampler:
    """Return a family whose tasks differ from those of another one in a single respect.

    A model that runs a solver runs it outside of its training distribution, too. So candidates that
    are fitted to tasks of `family` can be scored on tasks of a battery:

    - "fewer_supports", "more_supports": half and twice as many supports.
    - "less_noise", "more_noise": a tenth and ten times the noise variance.
    - "conditioning": features are multiplied by factors that fall geometrically from 1 to 1 / 10.
    - "duplicates": the last half of the supports copies the first half, x and y.
    - "smaller_x", "larger_x": inputs are multiplied by 1 / 2 or 2, and outputs stay.
    - "smaller_y", "larger_y": outputs are multiplied by 1 / 4 or 4.

    Args:
        name: name of the battery, a row of `icl_krr.catalogue.BATTERIES`.
        family: sampler of the training distribution.

    Returns:
        A sampler of tasks.

    Raises:
        TypeError: `family` is not a sampler.
        ValueError: the name is unknown, or `family` has no number of supports or no noise > 0 that
            the battery could change.

    >>> import icl_krr as ik
    >>> family = ik.tasks.LinearRegression(num_features=3, num_supports=8)
    >>> ik.tasks.sample(jax.random.key(0), battery("more_supports", family)).x.shape
    (16, 3)
    """
    row = find("battery", BATTERIES, name)
    check_sampler("family", family)
    own: Any = family
    if row.supports != 1:
        if not hasattr(own, "num_supports"):
            raise ValueError(f"family must have num_supports, got {type(own).__name__}")
        own = dataclasses.replace(own, num_supports=max(1, int(row.supports * own.num_supports)))
    if row.noise != 1:
        known = checks.concrete(getattr(own, "noise", None))
        if known is None or not known > 0:
            raise ValueError(f"family must have noise > 0, got {type(own).__name__}")
        own = dataclasses.replace(own, noise=row.noise * own.noise)
    return Changed(own, row.name)


@checked
class Changed:
    """Tasks of a family with the inputs and outputs of a battery."""

    family: Any
    battery: str = static()

    def sample(self, key: jax.Array, active: Any = None) -> Task:
        return changed(self.battery, self.family.sample(key, active))


@partial(jax.jit, static_argnums=0)
def changed(battery: str, task: Task) -> Task:
    row = BATTERIES[battery]
    shares = jnp.linspace(0, 1, task.num_features, dtype=task.x.dtype)[None]
    factors = row.x * row.condition**-shares
    x, y = task.x * factors, row.y * task.y
    if row.repeated and (half := task.num_supports // 2):
        x, y = (values.at[-half:].set(values[:half]) for values in (x, y))
    return Task(
        x=x,
        y=y,
        x_query=task.x_query * factors,
        y_query=None if task.y_query is None else row.y * task.y_query,
    )
