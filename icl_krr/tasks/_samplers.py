"""Random tasks: a frozen config and a key determine a `Task`, inside or outside `jax.jit`."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from .._core import checks
from .._core.pytree import jit_if_concrete, pytree_dataclass, static
from ..catalogue import SHIFTS, find
from ._task import Task, check_task


class Sampler(Protocol):
    """The protocol of samplers: every object with a method `sample` is a sampler of tasks."""

    def sample(self, key: jax.Array, active: Any = None) -> Task:
        """Draw a task; `icl_krr.tasks.sample` calls this method.

        Args:
            active: as in `icl_krr.tasks.sample`.
        """
        ...


def sample(key: jax.Array, config: Sampler, active: int | jax.Array | None = None) -> Task:
    """Draw a task from a sampler.

    The fields of the `Task` have JAX's default floating dtype; tasks of `Rows` have the dtype of
    the table's arrays. `jax.vmap(sample, in_axes=(0, None))` draws a batch.

    Args:
        config: sampler, such as `GaussianProcess` or `LinearRegression`.
        active: number of features that keep their values, from 0 to p; may be traced. The other
            features are set to 0 before a function is evaluated. Default None, all features.

    >>> import jax
    >>> import icl_krr as ik
    >>> family = ik.tasks.LinearRegression(num_features=3, num_supports=8)
    >>> task = sample(jax.random.key(0), family, 2)
    >>> task.x.shape, task.y.shape, task.x_query.shape, task.x[0, 2].item()
    ((8, 3), (8,), (1, 3), 0.0)
    """
    checks.key("key", key)
    check_sampler("config", config)
    if active is not None:
        checks.at_least("active", active, 0)
    return config.sample(key, active)


def check_sampler(name: str, value: Any) -> None:
    if not callable(getattr(value, "sample", None)) or isinstance(value, type):
        raise TypeError(
            f"{name} must be a sampler of tasks such as icl_krr.tasks.GaussianProcess(...), "
            f"got {checks.short_repr(value)}"
        )


class InOneProgram:
    """Base class of samplers that are pytrees: `draw` is one program for all their numbers."""

    def sample(self, key: jax.Array, active: Any = None) -> Task:
        """Draw a task; `icl_krr.tasks.sample` calls this method.

        Args:
            active: as in `icl_krr.tasks.sample`.
        """
        dtype = jnp.result_type(float)
        floats = jax.tree.map(lambda v: np.asarray(v, dtype) if np.isscalar(v) else v, self)
        task = _draw(floats, key, active)
        check_task(task)
        return task

    def draw(self, key: jax.Array, active: Any) -> Task:
        """Compute the task that `sample` returns, inside of `jax.jit`.

        Args:
            active: as in `icl_krr.tasks.sample`.
        """
        raise NotImplementedError


@jit_if_concrete
def _draw(sampler: InOneProgram, key: jax.Array, active: Any) -> Task:
    return sampler.draw(key, active)


INPUTS = ("normal", "sphere", "uniform")


def draw_inputs(key: jax.Array, config: Any, active: Any) -> jax.Array:
    """Points [rows, p]: standard normal, uniform on the unit sphere, or uniform in (-1, 1)."""
    shape, kind = (config.num_supports + config.num_queries, config.num_features), config.inputs
    if kind == "uniform":
        return restrict(jax.random.uniform(key, shape, minval=-1), active)
    x = restrict(jax.random.normal(key, shape), active)
    return x / jnp.linalg.norm(x, axis=-1, keepdims=True) if kind == "sphere" else x


def restrict(x: jax.Array, active: Any) -> jax.Array:
    """Set all but the first `active` features to 0."""
    return x if active is None else jnp.where(jnp.arange(x.shape[1])[None] < active, x, 0)


def observe(key: jax.Array, x: jax.Array, f: jax.Array, config: Any) -> Task:
    """The task with f plus noise at the supports and f without noise at the queries."""
    n = config.num_supports
    noise = jnp.sqrt(jnp.asarray(config.noise, f.dtype))
    y = f[:n] + noise * jax.random.normal(key, f[:n].shape)
    y_query = f[n:]
    if config.num_outputs is None:
        y, y_query = y[:, 0], y_query[:, 0]
    return Task(x=x[:n], y=y, x_query=x[n:], y_query=y_query)


def check_sizes(config: Any) -> None:
    for name in ("num_features", "num_supports", "num_queries"):
        checks.count(name, getattr(config, name))
    if config.num_outputs is not None:
        checks.count("num_outputs", config.num_outputs)


def check_noise(noise: Any) -> None:
    checks.nonnegative_scalar("noise", noise)


def shifted(name: str, family: Sampler) -> Sampler:
    """Return a family under a distribution shift: its tasks differ in a single respect.

    A model that runs a solver also runs it outside of its training distribution. So candidates that
    are fitted to tasks of `family` can be scored on shifted tasks:

    - "fewer_supports", "more_supports": half and twice as many supports.
    - "less_noise", "more_noise": a tenth and ten times the noise variance.
    - "conditioning": features are multiplied by factors that fall geometrically from 1 to 1 / 10.
    - "duplicates": the last half of the supports copies the first half, x and y.
    - "smaller_x", "larger_x": inputs are multiplied by 1 / 2 or 2, and outputs stay.
    - "smaller_y", "larger_y": outputs are multiplied by 1 / 4 or 4.

    Args:
        name: name of the shift, a row of `icl_krr.catalogue.SHIFTS`.

    >>> import icl_krr as ik
    >>> family = ik.tasks.LinearRegression(num_features=3, num_supports=8)
    >>> ik.tasks.sample(jax.random.key(0), shifted("more_supports", family)).x.shape
    (16, 3)
    """
    entry = find("shift", SHIFTS, name)
    check_sampler("family", family)
    result: Any = family
    if entry.supports != 1:
        if not hasattr(result, "num_supports"):
            raise ValueError(f"family must have num_supports, got {type(result).__name__}")
        supports = max(1, int(entry.supports * result.num_supports))
        result = dataclasses.replace(result, num_supports=supports)
    if entry.noise != 1:
        noise = checks.concrete(getattr(result, "noise", None))
        if noise is None or not noise > 0:
            raise ValueError(f"family must have noise > 0, got {type(result).__name__}")
        result = dataclasses.replace(result, noise=entry.noise * result.noise)
    return _Shifted(result, entry.name)


@pytree_dataclass
class _Shifted:
    """Tasks of a family with shifted inputs and outputs."""

    family: Any
    shift: str = static()

    def sample(self, key: jax.Array, active: Any = None) -> Task:
        return _shift_task(self.shift, self.family.sample(key, active))


@partial(jax.jit, static_argnums=0)
def _shift_task(shift: str, task: Task) -> Task:
    entry = SHIFTS[shift]
    shares = jnp.linspace(0, 1, task.num_features, dtype=task.x.dtype)[None]
    factors = entry.x * entry.condition**-shares
    x, y = task.x * factors, entry.y * task.y
    if entry.repeated and (half := task.num_supports // 2):
        x, y = (values.at[-half:].set(values[:half]) for values in (x, y))
    y_query = None if task.y_query is None else entry.y * task.y_query
    return Task(x=x, y=y, x_query=task.x_query * factors, y_query=y_query)
