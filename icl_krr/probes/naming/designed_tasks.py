"""Tasks on which two fitted candidates differ most, within a budget."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.tree_util import Partial
from jaxtyping import Array, Float

from ... import checks, solvers
from ...catalogue import make_kernel
from ...kernels import Kernel, check_kernel
from ...readable import readable
from ...tasks import Task, map_tasks
from ...tasks.task import check_plain
from ..resampling import resamples
from .candidate_fit import CandidateFit
from .separation import Program, Separation, check_pair, compare, program_of, separation

IN_THE_LOSS = 64
"""Number of bootstrap resamples in the loss; the report takes more."""
SHARES = np.linspace(1, 0, 33)
"""Shares of a move that are tried, the largest first, until the task is likely enough."""

LogPrior = Callable[[Task], jax.Array]
"""Function from one task to the logarithm of its density under the training distribution."""


@readable
class Design(NamedTuple):
    """Designed tasks, and how far apart two candidates are on them.

    Attributes:
        tasks: the designed batch, without `y_query`, which is not known for them.
        before: `Separation` of the candidates on the drawn tasks.
        after: `Separation` of the candidates on the designed tasks.
        log_prior_before: log prior of the drawn tasks [b].
        log_prior_after: log prior of the designed tasks [b].
        floor: smallest log prior that a designed task may have [b].
        moved: distance of every support from its drawn place [b, n].
        size: root mean square of the predictions of both candidates on the designed tasks, relative
            to that on the drawn tasks.
    """

    tasks: Task
    before: Separation
    after: Separation
    log_prior_before: np.ndarray
    log_prior_after: np.ndarray
    floor: np.ndarray
    moved: np.ndarray
    size: float


def design(
    first: CandidateFit,
    second: CandidateFit,
    tasks: Task,
    *,
    steps: int = 200,
    learning_rate: float = 0.05,
    budget: float = 0.05,
    support_distance: float = 0.5,
    noise: float = 0.01,
    log_prior: LogPrior | None = None,
    seed: int = 0,
) -> Design:
    r"""Move supports and outputs of tasks so that two candidates differ most at the model's depth.

    Adam maximises $\log (d / (s^2 + e^2)^{1/2})$. Here $d$ is the relative distance of the two
    candidates at their aligned steps (see `separation`), $s$ is its bootstrap deviation over the
    tasks, and $e$ is `noise`, the distance that a model may keep from the candidate that it runs.
    In the loss, $d$ is relative to the predictions on the designed or on the drawn tasks, whichever
    are larger: tasks with tiny predictions would be no test of a trained model. Queries stay where
    they are, and candidates keep their parameters. The budget has two parts:

    - A support moves by at most `support_distance`.
    - The log prior of a designed task is at least the quantile `budget` of the log priors of the
      drawn tasks. If the drawn task itself is less likely, its own log prior is the floor. A
      violation costs its size in the loss. A task that is still too unlikely at the end goes back
      towards its drawn place until it is within the budget.

    Pass the designed tasks to `identify` as the tasks to score, and drawn tasks as those to fit.

    Args:
        first: a candidate, as `fit_candidate` returns it.
        second: another candidate that is fitted to the same layers.
        tasks: batch of b drawn tasks, y [b, n], without masks.
        steps: number of steps of Adam, >= 1, 200 by default.
        learning_rate: learning rate of Adam, > 0, 0.05 by default. The unit is
            `support_distance` for supports, and the root mean square of y for outputs.
        budget: quantile of the log priors of the drawn tasks, from 0 to 1, 0.05 by default.
        support_distance: largest distance of a support from its drawn place, >= 0, 0.5 by default.
        noise: distance $e$ > 0, 0.01 by default.
        log_prior: function from one task to the log density of its outputs (or of the whole task)
            under the training distribution. Default: `gaussian_prior` with the kernel and the ridge
            of `first`, or of `second` if `first` has no ridge.
        seed: seed of the bootstrap resamples, 0 by default.

    Returns:
        A `Design`.

    Raises:
        TypeError: a candidate is not a `CandidateFit`, or `log_prior` is not a function.
        ValueError: a number is out of range, the candidates are aligned with different numbers of
            layers, or `log_prior` is not given for two candidates without a ridge.

    Source: Chaloner, Verdinelli, Bayesian experimental design: a review, 1995.

    >>> import icl_krr as ik
    >>> config = ik.tasks.LinearRegression(num_features=2, num_supports=4)
    >>> keys = jax.random.split(jax.random.key(0), 8)
    >>> tasks = jax.vmap(ik.tasks.sample, in_axes=(0, None))(keys, config)
    >>> values = {"ridge": 0.1, "step_size": 0.1}
    >>> first = CandidateFit("gradient_descent", "linear", values, (1, 2), 0.0)
    >>> second = CandidateFit("heavy_ball", "linear", values | {"momentum": 0.5}, (1, 2), 0.0)
    >>> found = design(first, second, tasks)
    >>> found.after.mean > found.before.mean, found.after.deviation < found.before.deviation
    (True, True)
    """
    check_pair(first, second)
    check_plain(tasks)
    checks.count("steps", steps)
    checks.positive_scalar("learning_rate", learning_rate)
    checks.positive_scalar("noise", noise)
    checks.nonnegative_scalar("support_distance", support_distance)
    checks.nonnegative_scalar("budget", budget)
    if budget > 1:
        raise ValueError(f"budget must be a quantile from 0 to 1, got {budget}")
    checks.count("seed", seed, minimum=0)
    if log_prior is not None:
        checks.function("log_prior", log_prior)
    elif not {"ridge"} & {*first.values, *second.values}:
        raise ValueError(
            "log_prior must be given for candidates without a ridge, got "
            f"{first.candidate} and {second.candidate}"
        )
    prior = of_candidates(first, second, tasks) if log_prior is None else Partial(log_prior)
    own = np.asarray(densities(tasks, prior))
    floor = np.minimum(np.quantile(own, budget).astype(own.dtype), own)
    weights = resamples(len(tasks.x), IN_THE_LOSS, seed)
    fits, logs = (program_of(first), program_of(second)), (first.logs, second.logs)
    _, drawn = compare(*fits, *logs, tasks)
    moved = move(
        fits,
        steps,
        logs,
        tasks,
        drawn,
        prior,
        floor,
        weights.astype(tasks.x.dtype),
        np.asarray([learning_rate, support_distance, noise], tasks.x.dtype),
    )
    before, after = (separation(first, second, one, seed=seed) for one in (tasks, moved))
    _, now = compare(*fits, *logs, moved)
    return Design(
        moved,
        before,
        after,
        own,
        np.asarray(densities(moved, prior)),
        floor,
        np.linalg.norm(np.asarray(moved.x) - np.asarray(tasks.x), axis=-1),
        float(np.sqrt(np.sum(now) / np.sum(drawn))),
    )


def of_candidates(first: CandidateFit, second: CandidateFit, tasks: Task) -> Partial:
    known = first if "ridge" in first.values else second
    return gaussian_prior(make_kernel(known.kernel, known.values), known.values["ridge"], tasks)


def gaussian_prior(kernel: Kernel, ridge: float, tasks: Task) -> Partial:
    r"""Return the log density of outputs under a Gaussian process whose amplitude suits the tasks.

    The outputs of a task are $y \sim N(0, a (K + \lambda I))$. The amplitude $a$ is the most likely
    one for the batch, the mean of $y^T (K + \lambda I)^{-1} y / n$ over its tasks. So kernel and
    ridge may be those of a predictor, which are known only up to a common factor.

    Args:
        kernel: kernel $k$ of the process.
        ridge: ridge $\lambda$ > 0.
        tasks: batch of b tasks of the training distribution, y [b, n], without masks.

    Returns:
        A function from a task to $\log p(y | x)$, for `design`.

    Raises:
        TypeError: `kernel` is not a kernel.
        ValueError: `ridge` is not > 0, or `tasks` has several outputs or masks.

    Source: Rasmussen, Williams, Gaussian Processes for Machine Learning, eq. 2.30.

    >>> import icl_krr as ik
    >>> config = ik.tasks.GaussianProcess(ik.Gaussian(), num_features=1, num_supports=4)
    >>> keys = jax.random.split(jax.random.key(0), 64)
    >>> tasks = jax.vmap(ik.tasks.sample, in_axes=(0, None))(keys, config)
    >>> log_prior = gaussian_prior(ik.Gaussian(), 0.1, tasks)
    >>> task = jax.tree.map(lambda leaf: leaf[0], tasks)
    >>> truth = ik.solvers.log_marginal_likelihood(ik.Gaussian(), task, ridge=0.1)
    >>> bool(abs(log_prior(task) - truth) < 0.2)
    True
    """
    check_kernel(kernel)
    checks.positive_scalar("ridge", ridge)
    check_plain(tasks)
    return Partial(of_process, kernel, np.asarray(ridge, float), amplitude(kernel, ridge, tasks))


@jax.jit
def amplitude(kernel: Kernel, ridge: Any, tasks: Task) -> jax.Array:
    def size(task: Task) -> jax.Array:
        return jnp.mean(task.y * solvers.exact(kernel, task, ridge=ridge).alpha)

    return jnp.mean(map_tasks(size, tasks))


def of_process(kernel: Kernel, ridge: jax.Array, amplitude: jax.Array, task: Task) -> jax.Array:
    task = task.replace(y=task.y / jnp.sqrt(amplitude), y_query=None)
    log_density = solvers.log_marginal_likelihood(kernel, task, ridge=ridge)
    return log_density - task.num_supports * jnp.log(amplitude) / 2


@jax.jit
def densities(tasks: Task, log_prior: Partial) -> Float[Array, " b"]:
    return map_tasks(lambda task: jnp.reshape(log_prior(task), ()), tasks)


@partial(jax.jit, static_argnums=(0, 1))
def move(
    fits: tuple[Program, Program],
    steps: int,
    logs: tuple[jax.Array, jax.Array],
    tasks: Task,
    drawn: Float[Array, "b L"],
    log_prior: Partial,
    floor: Float[Array, " b"],
    weights: Float[Array, "resamples b"],
    options: Float[Array, " 3"],
) -> Task:
    """The tasks after `steps` steps of Adam, within the budget."""
    learning_rate, reach, noise = options
    size = jnp.sqrt(jnp.mean(tasks.y**2))

    def moved(at: Any) -> Task:
        x, y = at
        inside = x / jnp.sqrt(1 + jnp.sum(x**2, axis=-1, keepdims=True))
        return tasks.replace(x=tasks.x + reach * inside, y=tasks.y + size * y, y_query=None)

    def loss(at: Any) -> jax.Array:
        now = moved(at)
        squares, sizes = compare(*fits, *logs, now)
        gap = jnp.maximum(floor - densities(now, log_prior), 0)
        return jnp.mean(gap) - log_power(squares, sizes, jnp.sum(drawn, axis=0), weights, noise)

    optimiser = optax.adam(learning_rate)

    def step(state: Any, _: None) -> tuple[Any, None]:
        at, known = state
        updates, known = optimiser.update(jax.grad(loss)(at), known)
        return (optax.apply_updates(at, updates), known), None

    start = jnp.zeros_like(tasks.x), jnp.zeros_like(tasks.y)
    (at, _), _ = jax.lax.scan(step, (start, optimiser.init(start)), length=steps)
    shares = jnp.asarray(SHARES, tasks.x.dtype)

    def part(share: jax.Array) -> Any:
        return at[0] * share[:, None, None], at[1] * share[:, None]

    likely = jax.lax.map(
        lambda share: densities(moved(part(jnp.full_like(floor, share))), log_prior) >= floor,
        shares,
    )
    return moved(part(shares[jnp.argmax(likely.at[-1].set(True), axis=0)]))


def log_power(
    squares: Float[Array, "b L"],
    sizes: Float[Array, "b L"],
    least: Float[Array, " L"],
    weights: Float[Array, "resamples b"],
    noise: jax.Array,
) -> jax.Array:
    """The logarithm of the mean distance over its bootstrap deviation, which is at least `noise`.

    The squared size of a layer's predictions over all tasks counts as at least `least`.
    """
    tiny = jnp.finfo(squares.dtype).tiny ** 0.5

    def distance(of: jax.Array) -> jax.Array:
        size = jnp.maximum(of @ sizes, least[None]) + tiny
        return jnp.mean(jnp.sqrt((of @ squares + tiny) / size), axis=-1)

    sampled = distance(weights)
    spread = jnp.mean((sampled - jnp.mean(sampled)) ** 2)
    return jnp.log(distance(jnp.ones_like(weights[:1]))[0]) - jnp.log(spread + noise**2) / 2
