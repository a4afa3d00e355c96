"""Bayesian model averaging over kernels and ridges, with all iterates of conjugate gradient."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float

from .. import checks
from ..kernels import Kernel, check_pairs
from ..readable import readable
from ..tasks import Task
from ..tasks.task import kept
from .algebra import like, seen
from .prefix import check_prefix, num_features
from .prefix_posterior import solve as solve_posterior
from .results import Result


@readable
@struct.dataclass
class AverageTrajectory(Result):
    """The averages of `bayesian_average`, from 0 to L, at the supports, then at the queries.

    Args:
        prediction: averages at the queries, [L + 1, q] or [L + 1, q, r].
        along: averages at supports and queries, [L + 1, n + q] or [L + 1, n + q, r].
        means: means of the G models, [L + 1, n + q, G r], the r outputs of a model side by side.
        variances: variances of an output, [L + 1, n + q, G].
        log_evidence: log marginal likelihoods of the supports before a token, [L + 1, n + q, G].
        weights: probabilities of the models, [L + 1, n + q, G].

    >>> import icl_krr as ik
    >>> task = ik.Task(x=jnp.ones((1, 1)), y=jnp.array([3.0]), x_query=jnp.ones((1, 1)))
    >>> ridges = jnp.array([1.0, 1.0])
    >>> result = ik.solvers.bayesian_average(ik.Linear(), task, ridges=ridges, steps=2)
    >>> result.prediction[:, 0].tolist(), result.weights[-1, 1].tolist()
    ([0.0, 0.0, 1.5], [0.5, 0.5])
    """

    prediction: Float[Array, "..."]
    along: Float[Array, "..."]
    means: Float[Array, "..."]
    variances: Float[Array, "..."]
    log_evidence: Float[Array, "..."]
    weights: Float[Array, "..."]


def bayesian_average(
    kernel: Kernel | Sequence[Kernel],
    task: Task,
    *,
    ridges: Float[Array, " G"],
    steps: int,
    approximates: Kernel | Sequence[Kernel] | None = None,
    sharpness: float | Float[Array, ""] = 1.0,
) -> AverageTrajectory:
    r"""Average the posteriors of G Gaussian processes with weights proportional to the evidence.

    $$e_{gi} = \sum_{j < i} \log N(y_j; f_{gj}, s_{gj}), \quad s_{gj} = \lambda_g + v_{gj}, \quad
    w_{gi} = \frac{\exp(\beta e_{gi})}{\sum_h \exp(\beta e_{hi})}$$

    The mean $f_{gi}$ and the variance $v_{gi}$ of token i come from `prefix_posterior` with the
    supports before i. After convergence, $e_{gi}$ is the log marginal likelihood of these supports,
    by the chain rule of probability, and $\sum_g w_{gi} f_{gi}$ is the mean of exact Bayesian model
    averaging with equal prior probabilities. Entry t of the result is the average of iterate t - 1
    of conjugate gradient, and entry 0 is zero.

    Args:
        kernel: kernel with a feature map, or G of them.
        task: supports, outputs and queries; x [n, p], y [n] or [n, r], x_query [q, p].
        ridges: ridge $\lambda_g$ > 0 of every model.
        steps: number of steps, >= 1; m + 1 steps are exact without rounding for m features.
        approximates: kernel that the features of all models approximate, or G of them. It adds
            what the features leave out to the variances of the result (see `prefix_posterior`), not
            to those of the evidence, which is that of the features. Default None.
        sharpness: exponent $\beta$ > 0 of the evidence; default 1, Bayes. For $\beta \to \infty$,
            the model with the largest evidence has the weight 1.

    Returns:
        An `AverageTrajectory`, in the dtype of the task.

    Raises:
        ValueError: a number is out of range, the numbers of kernels and ridges differ, or `task` is
            a batch.
        TypeError: `kernel` is neither a kernel nor a sequence of kernels.
        MemoryError: the sums and the stored steps do not fit into memory.

    Source: Hoeting, Madigan, Raftery, Volinsky, Bayesian model averaging: a tutorial, 1999, eq. 1;
    Dawid, Present position and potential developments: the prequential approach, 1984, for the
    chain rule.

    >>> import icl_krr as ik
    >>> task = ik.Task(x=jnp.ones((2, 1)), y=jnp.array([2.0, 4.0]), x_query=jnp.ones((1, 1)))
    >>> result = bayesian_average(ik.Linear(), task, ridges=jnp.array([1.0, 4.0]), steps=2)
    >>> exact = ik.solvers.log_marginal_likelihood(ik.Linear(), task, ridge=4.0)
    >>> bool(jnp.isclose(result.log_evidence[-1, -1, 1], exact))
    True
    """
    kernels = check_pairs(kernel, ridges)
    checks.positive_scalar("sharpness", sharpness)
    known = None if approximates is None else check_pairs(approximates, ridges, "approximates")
    width = len(kernels) * max(num_features(kernel, task) for kernel in kernels)
    check_prefix(kernels[0], task, "exclusive", steps, width)
    return average(kernels, task, ridges, known, sharpness, steps)


@partial(jax.jit, static_argnames="steps")
def average(kernels, task, ridges, approximated, sharpness, steps):
    n = task.num_supports
    T = n + task.num_queries

    def path(g: int, approximates: Any) -> Any:
        options = None, None, steps, "exclusive"
        return solve_posterior(kernels[g], task, ridges[g], approximates, *options)

    every = range(len(kernels))
    paths = [path(g, None) for g in every]
    means = jnp.stack([p.along.reshape(steps + 1, T, -1) for p in paths], 2)[:-1]
    variances = jnp.stack([p.variance + ridges[g] for g, p in enumerate(paths)], 2)[:-1]
    y = seen(task)[1][None, :, None]
    scores = jax.scipy.stats.norm.logpdf(y, means[:, :n], jnp.sqrt(variances[:, :n, :, None]))
    scores = jnp.where(kept(task)[None, :, None], jnp.sum(scores, 3), 0)
    before = jnp.cumsum(scores, 1) - scores
    total = jnp.broadcast_to(jnp.sum(scores, 1, keepdims=True), (steps, T - n, len(paths)))
    evidence = jnp.concatenate([before, total], 1)
    if approximated is not None:
        full = [path(g, approximated[g]).variance + ridges[g] for g in every]
        variances = jnp.stack(full, 2)[:-1]
    weights = jax.nn.softmax(sharpness * evidence, axis=2)
    along = jnp.sum(weights[..., None] * means, 2)
    everywhere = (along, means.reshape(steps, T, -1), variances, evidence, weights)
    along, *rest = (jnp.concatenate([jnp.zeros_like(a[:1]), a]) for a in everywhere)
    along = like(task.y, along)
    return AverageTrajectory(along[:, n:], along, *rest)
