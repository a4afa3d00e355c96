"""Named batteries: tasks outside of the distribution that a model was trained on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from .. import checks
from ..pytree import checked, static
from .samplers import Sampler, check_sampler
from .task import Task


class Battery(NamedTuple):
    """A change of a family of tasks, of every task that it draws, or of both."""

    says: str
    family: Callable[[Any], Any] = lambda family: family
    task: Callable[[Task], Task] = lambda task: task


def supports(change: Callable[[int], int]) -> Callable[[Any], Any]:
    def of(family: Any) -> Any:
        own = getattr(family, "num_supports", None)
        if own is None:
            raise ValueError(f"family must have num_supports, got {type(family).__name__}")
        return dataclasses.replace(family, num_supports=max(1, change(own)))

    return of


def noise(factor: float) -> Callable[[Any], Any]:
    def of(family: Any) -> Any:
        own = checks.concrete(getattr(family, "noise", None))
        if own is None or not own > 0:
            raise ValueError(f"family must have noise > 0, got {type(family).__name__}")
        return dataclasses.replace(family, noise=factor * family.noise)

    return of


def scaled(x: float = 1, y: float = 1) -> Callable[[Task], Task]:
    def of(task: Task) -> Task:
        targets = None if task.y_query is None else y * task.y_query
        return task.replace(x=x * task.x, x_query=x * task.x_query, y=y * task.y, y_query=targets)

    return of


def stretched(task: Task) -> Task:
    """The features, multiplied by factors that fall geometrically from 1 to 1 / 10."""
    factors = 10.0 ** -jnp.linspace(0, 1, task.num_features, dtype=task.x.dtype)[None]
    return task.replace(x=task.x * factors, x_query=task.x_query * factors)


def repeated(task: Task) -> Task:
    """The last half of the supports replaced by copies of the first."""
    half = task.num_supports // 2
    x, y = (v.at[-half:].set(v[:half]) if half else v for v in (task.x, task.y))
    return task.replace(x=x, y=y)


BATTERIES = {
    "fewer_supports": Battery("half as many supports", supports(lambda n: n // 2)),
    "more_supports": Battery("twice as many supports", supports(lambda n: 2 * n)),
    "less_noise": Battery("a tenth of the noise variance", noise(0.1)),
    "more_noise": Battery("ten times the noise variance", noise(10.0)),
    "conditioning": Battery("features times factors from 1 to 1 / 10", task=stretched),
    "duplicates": Battery("the last half of the supports copies the first", task=repeated),
    "larger_x": Battery("x times 2, same y", task=scaled(x=2)),
    "smaller_x": Battery("x times 1 / 2, same y", task=scaled(x=0.5)),
    "larger_y": Battery("y times 4", task=scaled(y=4)),
    "smaller_y": Battery("y times 1 / 4", task=scaled(y=0.25)),
}


def battery(name: str, family: Sampler) -> Sampler:
    """Return a family whose tasks differ from those of another one in a single respect.

    A model that runs a solver runs it outside of its training distribution, too. So candidates that
    are fitted to tasks of `family` can be scored on tasks of a battery:

    - "fewer_supports", "more_supports": half and twice as many supports.
    - "less_noise", "more_noise": a tenth and ten times the noise variance.
    - "conditioning": features are multiplied by factors that fall geometrically from 1 to 1 / 10.
    - "duplicates": the last half of the supports copies the first half, x and y.
    - "larger_x", "smaller_x": inputs are multiplied by 2 or 1 / 2, and outputs stay.
    - "larger_y", "smaller_y": outputs are multiplied by 4 or 1 / 4.

    Args:
        name: name of the battery.
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
    checks.choice("name", name, tuple(BATTERIES))
    check_sampler("family", family)
    return Changed(BATTERIES[name].family(family), name)


@checked
class Changed:
    """The tasks of a family after the change of a battery."""

    family: Any
    battery: str = static()

    def sample(self, key: jax.Array, active: Any = None) -> Task:
        return BATTERIES[self.battery].task(self.family.sample(key, active))
