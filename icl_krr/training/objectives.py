"""What the parameters of a construction can be fitted for: objectives, functions of them alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..kernels import Kernel
from ..solvers.likelihood import complexity, known
from ..tasks import Task, map_tasks
from ..tasks.task import check_axes
from ..transformer import Transformer, predict_batch, run_with_cache

Build = Callable[[Any], Transformer]
"""From parameters, any pytree, to a model."""

Objective = Callable[[Any], jax.Array]
"""From parameters to the scalar that is to be small."""


def held_out(build: Build, tasks: Task, targets: Float[Array, "b q"] | None = None) -> Objective:
    """The mean squared error of `build(parameters)` at the queries of a batch of tasks.

    Against `targets`, such as the predictions of another model, shaped as its own [b, q] or
    [b, q, r]; by default against the tasks' `y_query`.

    Raises ValueError for one task alone, and for targets that are missing or of other shape.

    >>> import icl_krr as ik
    >>> config = ik.tasks.LinearRegression(num_features=2, num_supports=4)
    >>> keys = jax.random.split(jax.random.key(0))
    >>> tasks = jax.vmap(ik.tasks.sample, in_axes=(0, None))(keys, config)
    >>> head = lambda t: ik.constructions.nadaraya_watson(ik.Exponential(t), num_features=2)
    >>> error = held_out(head, tasks, targets=ik.predict_batch(head(2.0), tasks))
    >>> float(error(2.0)), float(error(1.0)) > 0
    (0.0, True)
    """
    check_axes(tasks, 1)
    wanted = tasks.y_query if targets is None else jnp.asarray(targets)
    if wanted is None:
        raise ValueError("targets must be given for tasks without y_query, got neither")
    shape = (*tasks.x_query.shape[:2], *tasks.y.shape[2:])
    if wanted.shape != shape:
        raise ValueError(f"targets must be shaped {list(shape)}, got {list(wanted.shape)}")
    return lambda parameters: jnp.mean((predict_batch(build(parameters), tasks) - wanted) ** 2)


def marginal_likelihood(
    build: Build, system: Callable[[Any], tuple[Kernel, Any]], tasks: Task
) -> Objective:
    r"""Minus the log marginal likelihood per support of a batch of tasks, alpha by the forward.

    $$(y^T \alpha + \log \det A + n \log 2\pi) / 2n$$

    $A = K + \lambda I$ for `system(parameters)` = (kernel, ridge): $\alpha$ is what the model's
    slot holds after its last step, the determinant is that of the exact factorisation. Once
    $\alpha$ has converged its gradient is that of the exact likelihood. Before, it differentiates
    an unfinished solver, and is much farther off than the value: on tasks of 12 supports, conjugate
    gradient on the exponential kernel is wrong by 6e-2, 6e-3, 4e-4 and 3e-9 in value, but by 1.2,
    0.3, 0.04 and 3e-7 in gradient after 4, 6, 8 and 12 steps.

    Raises ValueError for one task alone, and for a model without a slot `alpha`.

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
    >>> bool(jnp.isclose(loss(0.5), -(each[0] + each[1]) / 8, rtol=1e-4))
    True
    """
    check_axes(tasks, 1)

    def objective(parameters: Any) -> jax.Array:
        model, (kernel, ridge) = build(parameters), system(parameters)
        if "alpha" not in model.layout.names:
            raise ValueError(
                "build must make a model with a slot alpha, a solver of (K + ridge I) alpha = y; "
                f"got slots {', '.join(model.layout.names)}"
            )

        def of_task(task: Task) -> jax.Array:
            alpha = run_with_cache(model, task, names=("alpha",))[1]["alpha"][-1]
            y = task.y if task.mask is None else jnp.where(known_rows(task), task.y, 0)
            return (jnp.sum(y * alpha) + complexity(kernel, task, ridge)) / 2 / known(task)

        return jnp.mean(map_tasks(of_task, tasks))

    return objective


def known_rows(task: Task) -> jax.Array:
    return task.mask.reshape(-1, *[1] * (task.y.ndim - 1))
