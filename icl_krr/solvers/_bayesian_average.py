"""Bayesian model averaging over kernels and ridges, with all iterates of conjugate gradient."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float

from .. import Task
from .._core import checks, linalg
from .._core.numerics import matmul
from .._core.readable import readable
from .._core.rounding import MARGIN, UNITS, cast, in_float64, with_rounding_error
from .._core.status import Status, assess
from .._core.status_warning import warn_unless_ok
from ..kernels import Kernel
from ..kernels._mixture import check_pairs
from ..tasks._linear_system import System
from ..tasks._task import support_mask
from . import _accuracy
from ._algebra import like, masked_arrays
from ._likelihood import num_unmasked
from ._prefix import PrefixSpec, prefix_spec
from ._prefix_iterations import solve_posterior
from ._results import Result


@readable
@struct.dataclass
class AverageTrajectory(Result):
    """The averages of `bayesian_average`, from 0 to L, at the supports, then at the queries.

    Args:
        prediction: averages at the queries, [L + 1, q] or [L + 1, q, r].
        along: averages at supports and queries.
        means: means of the G models, [L + 1, n + q, G r], the r outputs of a model side by side.
        variances: variances of an output, [L + 1, n + q, G].
        log_evidence: log marginal likelihoods of the supports before a token, [L + 1, n + q, G].
        weights: probabilities of the models, [L + 1, n + q, G].
        status: a `Status` of the last average, compared with exact Bayesian model averaging.

    >>> import icl_krr as ik, numpy as np
    >>> task = ik.Task(x=[[1.0]], y=[3.0], x_query=[[1.0]])
    >>> result = ik.solvers.bayesian_average(ik.Linear(), task, ridges=np.ones(2), steps=2)
    >>> result.prediction[:, 0].tolist(), result.weights[-1, 1].tolist()
    ([0.0, 0.0, 1.5], [0.5, 0.5])
    """

    prediction: Float[Array, "..."]
    along: Float[Array, "..."]
    means: Float[Array, "..."]
    variances: Float[Array, "..."]
    log_evidence: Float[Array, "..."]
    weights: Float[Array, "..."]
    status: Status | None = None


@checks.suggest_keywords
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
    of conjugate gradient, and entry 0 is zero, so m + 1 steps are exact for m features without
    rounding; 3 m are safer. A model whose evidence is not finite has the weight 0; if no model has
    an evidence, the average is NaN.

    The status compares prediction and weights at the queries with exact averaging in float64, or
    inside of JAX transformations in the widest dtype that JAX allows.

    As weights, which must have exact arithmetic, every model has its own group of channels. One
    head sums the evidence, and MLPs compute $1 / w_{gi} = \sum_h \exp(\beta (e_{hi} - e_{gi}))$
    from $G^2$ differences, which are cut at 80, so that nothing overflows in float32. A step takes
    7 blocks in the form "textbook"; in the form "fused" it takes 6, and 7 with `edges`. A model
    with one output takes tasks with several, and gives each its own evidence and weights. With
    `num_outputs`, all outputs are draws of the same model, and their log densities are added.

    The states, all of them readouts, are means [T, G r], variances (of an output: ridge included),
    variance_gaps, log_evidence and weights [T, G], prediction [T, r] and, with `edges`, bins
    [T, r (E + 1)]. Before convergence, variances are too small, by at most `variance_gaps` (read
    them at all supports, `icl_krr.readouts(model, task, along=True)`, because all count): an error
    that is small beside the ridge can still be large in the evidence, in which negative variances
    count as 0. `icl_krr.check` compares prediction and weights with exact averaging.

    Args:
        kernel: kernel with a feature map, or G of them; for bandwidths, random or Nystrom features
            of kernels with these bandwidths, as `icl_krr.Features(map)`.
        ridges: ridge $\lambda_g$ > 0 of every model, the variance of its noise.
        approximates: kernel that the features of all models approximate, or G of them. It adds what
            the features leave out to the variances of the result (see `prefix_posterior`), not to
            those of the evidence. Default None.
        sharpness: exponent $\beta$ > 0 of the evidence; 1 is Bayes. For $\beta \to \infty$, the
            model with the largest evidence has the weight 1.

    Source: Hoeting, Madigan, Raftery, Volinsky, Bayesian model averaging: a tutorial, 1999, eq. 1;
    Dawid, Present position and potential developments: the prequential approach, 1984, for the
    chain rule; Mueller, Hollmann, Arango, Grabocka, Hutter, Transformers can do Bayesian inference,
    2022, for outputs in bins.

    >>> import icl_krr as ik, numpy as np
    >>> task = ik.Task(x=[[1.0], [1.0]], y=[2.0, 4.0], x_query=[[1.0]])
    >>> result = bayesian_average(ik.Linear(), task, ridges=np.array([1.0, 4.0]), steps=2)
    >>> exact = ik.solvers.log_marginal_likelihood(ik.Linear(), task, ridge=4.0)
    >>> bool(np.isclose(result.log_evidence[-1, -1, 1], exact))
    True
    """
    kernels = check_pairs(kernel, ridges)
    checks.positive_scalar("sharpness", sharpness)
    if approximates is not None:
        approximates = check_pairs(approximates, ridges, "approximates")
    prefix_spec(kernels[0], task, steps, {})
    result = average(kernels, task, ridges, approximates, sharpness, steps)
    judge = partial(average_status, steps=steps)
    at_queries = result.weights[:, task.num_supports :]
    arguments = kernels, ridges, sharpness, task, result.prediction, at_queries
    return warn_unless_ok(result.replace(status=in_float64(judge, *arguments)))


@partial(jax.jit, static_argnames="steps")
def average(kernels, task, ridges, approximated, sharpness, steps):
    n, G = task.num_supports, len(kernels)

    def posteriors(approximates: Sequence[Any]) -> tuple[jax.Array, jax.Array]:
        parts = zip(kernels, ridges, approximates, strict=True)
        paths = [solve_posterior(k, task, ridge, a, PrefixSpec(), steps) for k, ridge, a in parts]
        means = jnp.stack([p.along.reshape(*p.variance.shape, -1) for p in paths], 2)
        variances = jnp.stack([p.variance for p in paths], 2)
        above = jnp.maximum(variances, 0)  # rounding makes some negative
        return means[:-1], above[:-1] + ridges[None, None]

    means, variances = posteriors([None] * G)
    y = masked_arrays(task)[1][None, :, None]
    scores = jax.scipy.stats.norm.logpdf(y, means[:, :n], jnp.sqrt(variances[:, :n, :, None]))
    sums = jnp.cumsum(jnp.where(support_mask(task)[None, :, None], jnp.sum(scores, 3), 0), 1)
    total = jnp.broadcast_to(sums[:, -1:], (steps, task.num_queries, G))
    evidence = jnp.concatenate([jnp.zeros_like(sums[:, :1]), sums[:, :-1], total], 1)
    if approximated is not None:
        _, variances = posteriors(approximated)
    usable = jnp.where(jnp.isfinite(evidence), evidence, -jnp.inf)
    weights = jax.nn.softmax(sharpness * usable, axis=2)
    shares = weights[..., None]
    along = like(task.y, jnp.sum(jnp.where(shares == 0, 0, shares * means), 2))
    means = means.reshape(*variances.shape[:2], -1)
    iterates = AverageTrajectory(along[:, n:], along, means, variances, evidence, weights)
    return jax.tree.map(lambda a: jnp.concatenate([jnp.zeros_like(a[:1]), a]), iterates)


@jax.jit
def best(kernels, ridges, sharpness, task) -> tuple[jax.Array, jax.Array]:
    r"""Exact averages [q, r] at the queries and the weights [G], from $w = C^{-1} \Phi^T y$.

    With $C = \Phi^T \Phi + \lambda I$, it is $y^T A^{-1} y = |y - \Phi w|^2 / \lambda + |w|^2$ and
    $\det A = \lambda^{n - m} \det C$: these are accurate for ridges for which $A$ is singular.
    """
    x, y = masked_arrays(task)
    count, outputs = num_unmasked(task), y.shape[1]

    def model(kernel: Kernel, ridge: jax.Array) -> tuple[jax.Array, jax.Array]:
        phi, at = (kernel.feature_map(points) for points in (x, task.x_query))
        phi = jnp.where(support_mask(task)[:, None], phi, 0)
        C = matmul(phi.T, phi) + ridge * jnp.eye(phi.shape[1], dtype=y.dtype)
        lower, w = linalg.factor_and_solution(C, matmul(phi.T, y))
        fit = jnp.sum((y - matmul(phi, w)) ** 2) / ridge + jnp.sum(w**2)
        size = 2 * jnp.sum(jnp.log(jnp.diagonal(lower))) + (count - len(C)) * jnp.log(ridge)
        return matmul(at, w), -(fit + outputs * (size + count * math.log(2 * math.pi))) / 2

    means, evidence = zip(*(model(k, ridges[g]) for g, k in enumerate(kernels)), strict=True)
    weights = jax.nn.softmax(sharpness * jnp.stack(evidence))
    return jnp.tensordot(weights, jnp.stack(means), axes=1, precision="highest"), weights


@partial(jax.jit, static_argnames=("steps", "spectrum", "model"))
def average_status(kernels, ridges, sharpness, data: Task, means, weights, **about: Any) -> Status:
    """The status of averages [L + 1, q, r] and weights [L + 1, q, G] at the queries.

    With weights [L + 1, q, G, r], every output has its own.
    """
    wide = jnp.result_type(float)
    separate = weights.ndim == 4

    def exactly(*problem: Any) -> tuple[jax.Array, jax.Array]:
        *model, task = problem
        if not separate:
            return best(*model, task)

        def average_output(y):
            return best(*model, task.replace(y=y, mask=data.mask))

        f, w = jax.vmap(average_output, in_axes=1, out_axes=1)(task.y)
        return f[..., 0], w

    problem = cast((kernels, jnp.asarray(ridges), jnp.asarray(sharpness), data), wide)
    (optimum, shares), changes = with_rounding_error(exactly, *problem)
    y = masked_arrays(data)[1]
    scale = _accuracy.output_scale(y.astype(wide), optimum)[None]

    def gap(f: jax.Array, w: jax.Array) -> jax.Array:
        return jnp.maximum(_accuracy.max_error(jnp.abs(f) / scale), _accuracy.max_error(jnp.abs(w)))

    errors = means.reshape(-1, *optimum.shape).astype(wide) - optimum[None]
    gaps = jax.vmap(gap)(errors, weights.astype(wide) - shares[None, None])
    change, points = gap(*changes), (masked_arrays(data)[0], data.x_query)
    norms = [jnp.stack([k.diagonal(at) for k in kernels]) for at in points]
    return _accuracy.measured_status(
        assess(0.0, MARGIN * change, change / UNITS, wide),
        System(norms[0], norms[1], y),
        0.0,
        gaps[-1],
        means[-1],
        weights[-1],
        falling=gaps[-1] < 0.9 * gaps[(len(gaps) - 1) // 2],
        **about,
    )
