"""Reference likelihoods: exact regression with its variance, and one Gaussian for all outputs."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from .. import solvers
from ..tasks import Sampler, Task, map_tasks
from ..uncertainty import Predictive, log_density
from .reference import Reference


def likelihoods(best: Reference, scale: Any, tasks: Task) -> dict[str, float]:
    """Mean of minus the log density of outputs at the queries, for predictors of the outputs.

    Args:
        best: exact predictor of the tasks.
        scale: factor of its variances (see `scale_of`).
        tasks: batch of tasks whose `y_query` has noise.

    Returns:
        "exact_nll" of exact regression, with its variance at each query, and "constant_nll" of the
        Gaussian that fits all outputs at the queries best, regardless of the supports.
    """
    run = jax.jit(partial(map_tasks, partial(of_outputs, best, scale)))
    spread = jnp.var(tasks.y_query)
    return {
        "exact_nll": float(-jnp.mean(run(tasks))),
        "constant_nll": float(0.5 * (jnp.log(2 * jnp.pi * spread) + 1)),
    }


def scale_of(best: Reference, family: Sampler, tasks: Task) -> float:
    r"""The factor c such that $c (v(x) + \lambda)$ is the variance of an output.

    A ridge is the variance of the noise in units of the kernel, so c is the variance of the noise
    divided by the ridge. If the regression is not known to be the posterior mean, c is that of
    maximum likelihood on a batch of tasks.
    """
    noise = getattr(family, "noise", None)
    if best.known and noise is not None:
        return float(noise / best.ridge)

    def squares(task: Task) -> jax.Array:
        found = regression(best, 1.0, task)
        return (task.y_query - found.mean) ** 2 / found.variance

    return float(jnp.mean(jax.jit(partial(map_tasks, squares))(tasks)))


def of_outputs(best: Reference, scale: Any, task: Task) -> jax.Array:
    return log_density(regression(best, scale, task), task.y_query)


def regression(best: Reference, scale: Any, task: Task) -> Predictive:
    """The predictive distribution of exact regression at the queries, as one Gaussian."""
    found = solvers.posterior(best.kernel, task, ridge=best.ridge)
    variance = scale * (found.variance + best.ridge)
    variance = variance if task.y.ndim == 1 else variance[:, None]
    mean, variance = found.mean[..., None], jnp.broadcast_to(variance, found.mean.shape)[..., None]
    return Predictive(jnp.ones_like(mean), mean, variance)
