"""The delta rule: online gradient descent, one support after the other."""

from __future__ import annotations

from functools import partial
from typing import Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .. import checks, losses
from ..kernels import Kernel
from ..losses import Loss
from ..numerics import matmul, reciprocal
from ..tasks import Task
from ..tasks.task import check_axes
from .fast_weights import error, follow, only_S, outer
from .prefix import PrefixOptions, decays, in_units_of_y, learned, sees, tokens_of
from .results import CausalTrajectory, recurrent


@checks.suggesting
def delta_rule(
    kernel: Kernel,
    task: Task,
    *,
    step_size: float | Float[Array, ""],
    steps: int | None = None,
    normalised: bool = False,
    loss: Loss | None = None,
    erase: Float[Array, "m p"] | None = None,
    **options: Unpack[PrefixOptions],
) -> CausalTrajectory:
    r"""Learn the supports one by one, each from its error.

    $$\alpha_i = \eta_i (y_i - f_i), \quad f_i = \sum_{j < i} e^{G_i - G_j} k(x_i, x_j) \alpha_j$$

    The step size is $\eta_i = \eta \beta_i$, divided by $k(x_i, x_i)$ if `normalised`. $G_i$ is the
    sum of the log gates up to i. Iterate t has learned from the first t supports that are not
    masked. For the linear kernel, $S_i = \sum_{j \leq i} e^{G_i - G_j} \alpha_j x_j^T$ follows the
    recurrence $S_i = e^{g_i} S_{i-1} + \alpha_i x_i^T$; without gates, $\alpha$ solves
    $(\mathrm{tril}(K, -1) + \eta^{-1} I) \alpha = y$.

    Args:
        step_size: step size $\eta$ > 0.
        loss: loss $\ell$ from `icl_krr.losses`: $\alpha_i = \eta_i \ell'(y_i - f_i)$, with y in its
            own units; default None, the squared error.
        erase: matrix E [m, p] for a kernel of m features: the error is $y_i - S \, E x_i$; default
            None: at the features themselves.

    Source: Widrow and Hoff, Adaptive switching circuits, 1960.

    >>> from icl_krr import Linear, Task
    >>> task = Task(x=[[1.0], [1.0]], y=[2.0, 2.0], x_query=[[1.0]])
    >>> delta_rule(Linear(), task, step_size=0.5).along[-1].tolist()
    [0.0, 1.0, 1.5]
    """
    checks.positive_scalar("step_size", step_size)
    checks.flag("normalised", normalised)
    losses.check(loss)
    divisor = NORMALISED if normalised else PLAIN
    return learn(kernel, task, (step_size, loss, divisor), steps, options, erase)


def learn(kernel, task, numbers, steps, options, erase=None):
    """The delta rule with the step sizes eta_i / (a + (b + c eta_i) k(x_i, x_i))."""
    _, loss, _ = numbers
    if erase is not None or np.ndim(options.get("log_gate")) == 2:
        if erase is not None:
            checks.reals(erase=erase)
        own, rule = ({}, corrected) if erase is None else ({"erase": erase}, corrected_elsewhere)
        return follow(kernel, task, rule, only_S, numbers, steps, options, own, loss is None)
    check_axes(task)
    steps = task.num_supports if steps is None else steps
    return run(task, (kernel, sees(kernel, task, steps, options), *numbers), steps)


PLAIN, NORMALISED, IMPLICIT = (1, 0, 0), (0, 1, 0), (1, 0, 1)


def rate(eta: jax.Array, own: jax.Array, divisor: tuple) -> jax.Array:
    a, b, c = divisor
    return eta * reciprocal(a + (b + c * eta) * own)


def corrected(numbers, states, token):
    """The rule of features, with a gate of its own for each."""
    return write(numbers, states, token, error(states, token))


def corrected_elsewhere(numbers, states, token):
    """The rule of features that erases at other vectors."""
    return write(numbers, states, token, error(states, token._replace(phi=token.own["erase"])))


def write(numbers, states, token, e):
    eta, loss, divisor = numbers
    size = rate(eta * token.strength, jnp.sum(token.phi * token.phi), divisor)
    alpha = size * (e if loss is None else loss.derivative(e))
    return (states[0] + outer(token.phi, alpha),), alpha


@partial(jax.jit, static_argnames="steps")
def run(task, given, steps):
    iterates, no_loss = partial(coefficients, steps), given[3] is None
    return recurrent(task, *in_units_of_y(task, iterates, 1, *given, scales_with_y=no_loss))


def coefficients(steps, task, kernel, given, step_size, loss, divisor):
    tokens, n = tokens_of(task, given), task.num_supports
    own = jnp.where(tokens.kept[:n], kernel.diagonal(tokens.x[:n]), 0)
    values = kernel(tokens.x, tokens.x[:n])
    earlier = faded(tokens, given.replace(prefix="exclusive"), values)
    step_size, *divisor = (jnp.asarray(value, own.dtype) for value in (step_size, *divisor))
    sizes = rate(step_size * tokens.strength, own, tuple(divisor))

    def step(alpha, i):
        e = tokens.y[i] - matmul(earlier[i][None], alpha)[0]
        return alpha.at[i].set(sizes[i] * (e if loss is None else loss.derivative(e))), None

    alpha, _ = jax.lax.scan(step, jnp.zeros_like(tokens.y), jnp.arange(n))
    path = jnp.where(learned(tokens, steps)[:, :, None], alpha[None], 0)
    weights = earlier if given.prefix == "exclusive" else faded(tokens, given, values)
    finite = jnp.isfinite(path)  # an overflow spreads to the tokens that see it, and to no other
    lost = matmul((weights != 0).astype(path.dtype), (~finite).astype(path.dtype)) > 0
    along = jnp.where(lost, jnp.nan, matmul(weights, jnp.where(finite, path, 0)))
    return path, jnp.where(tokens.kept[None, :, None], along, 0)


def faded(tokens, given, values):
    """Kernel values times decays; 0 also where a value that no token sees overflows."""
    weights = decays(tokens, given)
    return jnp.where(weights == 0, 0, weights * values)
