"""Objectives for fitting the parameters of a construction: functions of the parameters alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.tree_util import Partial
from jaxtyping import Array, Float

from .. import Kernel, Task, map_tasks
from .._core import checks
from ..solvers._likelihood import complexity, num_unmasked
from ..tasks._task import check_axes
from ..transformer import Transformer, predict_batch, predictive, run_with_cache
from ..uncertainty import log_density

Build = Callable[[Any], Transformer]
System = Callable[[Any], tuple[Kernel, Any]]
"""Function from parameters, any pytree, to a model."""

Objective = Callable[[Any], jax.Array]
"""Function from parameters to the scalar loss that a fit minimises."""


def held_out(
    build: Build, tasks: Task, targets: Float[Array, "b q"] | None = None, mesh: Mesh | None = None
) -> Objective:
    """Build an objective: the mean squared error of `build(parameters)` at the queries of a batch.

    Args:
        build: function from parameters to a model.
        targets: targets at the queries [b, q], or [b, q, r] for r outputs, such as the predictions
            of another model. Default: `tasks.y_query`.
        mesh: mesh over whose devices the batch is divided (see `icl_krr.predict_batch`).

    >>> import icl_krr as ik
    >>> config = ik.tasks.LinearRegression(num_features=2, num_supports=4)
    >>> keys = jax.random.split(jax.random.key(0))
    >>> tasks = jax.vmap(ik.tasks.sample, in_axes=(0, None))(keys, config)
    >>> head = lambda t: ik.constructions.nadaraya_watson(ik.Exponential(t), num_features=2)
    >>> error = held_out(head, tasks, targets=ik.predict_batch(head(2.0), tasks))
    >>> float(error(2.0)), float(error(1.0)) > 0
    (0.0, True)
    """
    checks.function("build", build)
    check_axes(tasks, 1)
    targets = tasks.y_query if targets is None else targets
    if targets is None:
        raise ValueError("targets must be given for tasks without y_query")
    checks.floating("targets", targets)
    checks.finite("targets", targets)
    shape = (*tasks.x_query.shape[:2], *tasks.y.shape[2:])
    if targets.shape != shape:
        raise ValueError(f"targets must have shape {list(shape)}, got {list(targets.shape)}")

    def objective(build: Build, tasks: Task, targets: jax.Array, parameters: Any) -> jax.Array:
        return jnp.mean((predict_batch(build(parameters), tasks, mesh=mesh) - targets) ** 2)

    return Partial(objective, as_pytree(build), tasks, targets)


def negative_log_likelihood(build: Build, tasks: Task) -> Objective:
    """Build an objective: minus the mean log density of the outputs at the queries.

    The densities are those of `icl_krr.predictive`, so this fits any parameters of any model that
    has a predictive distribution. They are those of outputs with noise: `y_query` must have noise
    as y does, as rows of a table have. The samplers of `icl_krr.tasks` that have a field `noise`
    leave it out of `y_query`.

    Args:
        build: function from parameters to a model with a predictive distribution.

    >>> import icl_krr as ik
    >>> tasks = ik.Task(x=[[[1.0]]], y=[[1.0]], x_query=[[[1.0]]])
    >>> tasks = tasks.replace(y_query=[[1.0]])
    >>> build = lambda ridge: ik.constructions.prefix_posterior(
    ...     ik.Linear(), num_features=1, ridge=ridge, steps=1
    ... )
    >>> loss = negative_log_likelihood(build, tasks)  # of y = 1 under N(0.5, 1.5)
    >>> round(float(loss(1.0)), 4)
    1.205
    """
    checks.function("build", build)
    check_axes(tasks, 1)
    if tasks.y_query is None:
        raise ValueError("tasks must have y_query, the outputs at the queries, got none")

    def objective(build: Build, tasks: Task, parameters: Any) -> jax.Array:
        def task_log_density(task: Task, model: Transformer) -> jax.Array:
            return jnp.mean(log_density(predictive(model, task), task.y_query))

        return -jnp.mean(map_tasks(task_log_density, tasks, build(parameters)))

    return Partial(objective, as_pytree(build), tasks)


def marginal_likelihood(build: Build, system: System, tasks: Task) -> Objective:
    r"""Build an objective: minus the log marginal likelihood per support, with the model's alpha.

    $$(y^T \alpha + \log \det A + n \log 2\pi) / 2n$$

    Here $A = K + \lambda I$, and $\alpha$ is the slot `alpha` of the model after its last step. An
    exact factorisation gives the determinant. The objective is the mean over the batch.

    If $\alpha$ has converged, the gradient is that of the exact likelihood. Before convergence, the
    gradient is much less accurate than the value.

    Args:
        build: function from parameters to a model with a slot `alpha`.
        system: function from parameters to the kernel and the ridge of $A$.

    >>> import numpy as np
    >>> import icl_krr as ik
    >>> config = ik.tasks.LinearRegression(num_features=2, num_supports=4)
    >>> keys = jax.random.split(jax.random.key(0))
    >>> tasks = jax.vmap(ik.tasks.sample, in_axes=(0, None))(keys, config)
    >>> cg = lambda ridge: ik.constructions.conjugate_gradient(
    ...     ik.Linear(), num_features=2, ridge=ridge, steps=3
    ... )
    >>> loss = marginal_likelihood(cg, lambda ridge: (ik.Linear(), ridge), tasks)
    >>> exact = ik.solvers.log_marginal_likelihood
    >>> each = [exact(ik.Linear(), jax.tree.map(lambda a: a[i], tasks), ridge=0.5) for i in (0, 1)]
    >>> bool(np.isclose(loss(0.5), -(each[0] + each[1]) / 8, rtol=1e-4))
    True
    """
    checks.function("build", build)
    checks.function("system", system)
    check_axes(tasks, 1)

    def objective(build: Build, tasks: Task, parameters: Any) -> jax.Array:
        model, (kernel, ridge) = build(parameters), system(parameters)
        if "alpha" not in model.layout.names:
            raise ValueError(
                "build must return a model with a slot 'alpha', the solution of "
                f"(K + ridge I) alpha = y, got slots {', '.join(model.layout.names)}"
            )

        def task_loss(task: Task, model: Transformer, kernel: Kernel, ridge: Any) -> jax.Array:
            alpha = run_with_cache(model, task, names=("alpha",))[1]["alpha"][-1]
            y = task.y if task.mask is None else jnp.where(known_rows(task), task.y, 0)
            return (jnp.sum(y * alpha) + complexity(kernel, task, ridge)) / 2 / num_unmasked(task)

        return jnp.mean(map_tasks(task_loss, tasks, model, kernel, ridge))

    return Partial(objective, as_pytree(build), tasks)


def as_pytree(function: Callable) -> Callable:
    """The function as a `jax.tree_util.Partial`, whose arrays `jax.jit` takes as arguments.

    XLA would fold what it can compute from constant arrays, such as kernel matrices, as it
    compiles.
    """
    return function if isinstance(function, Partial) else Partial(function)


def known_rows(task: Task) -> jax.Array:
    return task.mask.reshape(-1, *[1] * (task.y.ndim - 1))
