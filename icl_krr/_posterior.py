"""The posterior of a Gaussian process, computed by a model that solves linear systems."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from . import solvers
from ._core import checks
from ._core.pytree import jit_if_concrete
from ._core.rounding import in_float64
from ._core.status import Status, assess
from ._core.status_warning import warn_unless_ok
from .kernels import Kernel
from .kernels._kernel import check_kernel
from .solvers import _accuracy
from .solvers._results import Posterior
from .tasks import Task, system
from .tasks._task import check_axes
from .transformer import Transformer, predict
from .transformer._blockwise_softmax import is_blockwise
from .transformer._homogeneity import homogeneity
from .transformer._weights import check_model


def posterior(model: Transformer, kernel: Kernel, task: Task) -> Posterior:
    r"""Compute the posterior mean and variance of a Gaussian process at the queries.

    $$\mu(x) = k(x)^T A^{-1} y, \quad v(x) = k(x, x) - k(x)^T A^{-1} k(x), \quad
    A = K + \lambda I$$

    Here $K$ is the kernel matrix of the supports, and the vector $k(x)$ contains the kernel values
    of $x$ with the supports. These vectors are q additional outputs of the task. At query $x$, the
    model predicts $k(x)^T A^{-1} k(x)$ for the output $k(x)$, and the function subtracts this
    prediction from $k(x, x)$. You can jit, vmap and differentiate this function like `predict`.

    A model that has not converged gives a wrong variance. In exact arithmetic, the variance of
    conjugate gradient and of Richardson iteration is never too small, and more steps never increase
    it. Gradient descent, Chebyshev iteration and heavy ball multiply the error by polynomials that
    change sign, so their variance can be too large, too small and negative. The variance is not
    clipped. The status compares mean and variance with exact regression, which takes one
    factorisation of an n x n matrix. It is not `ok` if the ridge of the model is not known (see
    `Transformer`) or if softmax attention is computed in tiles because n is large.

    Args:
        model: transformer with one output that solves $A \alpha = y$ for `kernel`. Its ridge
            $\lambda$ is the variance of the noise.

    Raises:
        ValueError: the model has more than one output, or `kernel` is not the kernel of the model.

    Source: Rasmussen, Williams, Gaussian Processes for Machine Learning, eq. 2.25, 2.26.

    >>> import icl_krr as ik
    >>> task = ik.Task(x=[[1.0]], y=[3.0], x_query=[[1.0]])
    >>> model = ik.constructions.conjugate_gradient(ik.Linear(), num_features=1, ridge=2.0, steps=1)
    >>> result = posterior(model, ik.Linear(), task)
    >>> mean, variance = result
    >>> round(float(mean[0]), 4), round(float(variance[0]), 4), bool(result.status.ok)
    (1.0, 0.6667, True)
    """
    check_model(model)
    check_kernel(kernel)
    check_axes(task)
    if model.spec.num_outputs != 1:
        raise ValueError(
            f"model must have one output, got num_outputs = {model.spec.num_outputs}; "
            "build it with num_outputs=1"
        )
    if model.problem is not None and _differ(kernel, model.problem.kernel):
        raise ValueError(
            f"kernel must be that of the model, {model.problem.kernel!r}, got {kernel!r}"
        )
    f = predict(model, _with_kernel_values(kernel, task))
    mean, variance = _mean_and_variance(kernel, task, f)
    spec = model.spec
    tiles = spec.attention == "softmax" and is_blockwise(task.num_supports, spec.streaming)
    if model.problem is None or tiles:
        return warn_unless_ok(Posterior(mean, variance, _unmeasured_status(variance, model.steps)))
    options = {"steps": model.steps, "spectrum": model.takes("spectrum")}
    measure = partial(_measured_status, any_size=homogeneity(model) is not None, **options)
    status = in_float64(measure, *model.problem[:2], task, mean, variance)
    return warn_unless_ok(Posterior(mean, variance, status))


@jit_if_concrete
def _with_kernel_values(kernel: Kernel, task: Task) -> Task:
    """The task whose further outputs are k(x) of each query."""
    cross = kernel(task.x, task.x_query)
    counts = jnp.isfinite(cross)  # the status says that the others overflow
    if task.mask is not None:
        counts = counts & task.mask[:, None]
    y = task.y.reshape(task.num_supports, -1)
    outputs = jnp.concatenate([y, jnp.where(counts, cross, 0)], axis=1)
    return task.replace(y=outputs, y_query=None)


@jit_if_concrete
def _mean_and_variance(kernel: Kernel, task: Task, f: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Mean and variance, from the predictions of the outputs and of k(x)."""
    r = task.num_outputs
    variance = kernel.diagonal(task.x_query) - jnp.diagonal(f[:, r:])
    return f[:, 0] if task.y.ndim == 1 else f[:, :r], variance


def _differ(kernel: Kernel, other: Kernel) -> bool:
    """Whether two kernels differ in their classes or in numbers that are not traced."""
    ours, theirs = (jax.tree.flatten(one) for one in (kernel, other))
    if ours[1] != theirs[1]:
        return True
    values = [[checks.concrete(value) for value in leaves] for leaves, _ in (ours, theirs)]
    return not all(
        a is None or b is None or (a.shape == b.shape and np.allclose(a, b, rtol=1e-5, atol=0))
        for a, b in zip(*values, strict=True)
    )


@partial(jax.jit, static_argnums=1)
def _unmeasured_status(variance: jax.Array, steps: int) -> Status:
    negative = jnp.any(variance < 0)
    return assess(0.0, jnp.inf, 0.0, variance.dtype, steps=steps, negative=negative)


@partial(jax.jit, static_argnames=("any_size", "steps", "spectrum"))
def _measured_status(kernel, ridge, task: Task, mean, variance, *, any_size, **options) -> Status:
    wide = jnp.result_type(float)
    wide_task = task.astype(wide)
    exact = solvers.posterior(kernel, wide_task, ridge=ridge)
    parts = system(kernel, task)  # where the y of masked supports is 0
    f, optimum = (part.reshape(len(part), task.num_outputs) for part in (mean, exact.mean))
    errors = (
        jnp.abs(f.astype(wide) - optimum)
        / _accuracy.output_scale(parts.y.astype(wide), optimum)[None],
        jnp.abs(variance.astype(wide) - exact.variance)
        / _accuracy.nonzero_divisor(kernel.diagonal(wide_task.x_query)),
    )
    error = jnp.maximum(*map(_accuracy.max_error, errors))
    negative = jnp.any(variance < 0)
    options |= dict(any_size=any_size, negative=negative)
    return _accuracy.measured_status(exact.status, parts, 0.0, error, f, variance, **options)
