"""One compiled step of training: draw tasks, predict, update the weights."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import PartitionSpec

from .. import Transformer, predict, predict_along
from .._core import checks, devices
from .._core.readable import readable
from .._core.xla_workarounds import wait_for_virtual_devices
from ..tasks import Sampler, Task, map_tasks
from ..tasks._batches import check_batch, chunk_size, task_shapes
from ..tasks._samplers import check_sampler
from ..tasks._task import check_axes, support_mask
from ..transformer._hook_points import Request
from ..transformer._readouts import as_distribution, check_distribution
from ..transformer._run_plan import prepare_run
from ..transformer._weights import check_model
from ..uncertainty import log_density
from ._batches import batch, check_observed
from ._reference import Optimal, optimal, regression
from ._settings import LIKELIHOOD, OBJECTIVES, PLACES, Training


@readable
class State(NamedTuple):
    """State of a training run between two steps.

    Attributes:
        optimiser: state of the optimiser.
        key: key of the run; the tasks of step t depend on the key and on t only.
        step: number of updates so far.
    """

    model: Transformer
    optimiser: Any
    key: jax.Array
    step: jax.Array


StepResult = tuple[State, jax.Array]
"""The state after a step, and the loss of the step."""


def optimiser(settings: Training) -> optax.GradientTransformation:
    s = settings
    rate = optax.warmup_cosine_decay_schedule(
        0.0, s.learning_rate, s.warmup, max(s.steps, s.warmup + 1), s.decay * s.learning_rate
    )
    clip = optax.clip_by_global_norm(s.clip)
    return optax.chain(clip, optax.adamw(rate, weight_decay=s.weight_decay))


def start(model: Transformer, settings: Training) -> State:
    """Make the state before the first step, with a copy of the model.

    >>> import icl_krr as ik
    >>> model = ik.constructions.nadaraya_watson(ik.Exponential(), num_features=1)
    >>> int(start(model, Training()).step)
    0
    """
    check_model(model)
    checks.instance("settings", settings, Training, "an icl_krr.training.Training")
    return state_before(model, settings)


@partial(jax.jit, static_argnums=1)
def state_before(model: Transformer, settings: Training) -> State:
    # copy: `advance` donates the state, and leaves of some constructions share a buffer
    copy: Any = jax.tree.map(lambda leaf: jnp.array(leaf, copy=True), model)
    key = jax.random.fold_in(jax.random.key(settings.seed), 1)
    return State(copy, optimiser(settings).init(copy), key, jnp.zeros((), int))


def advance(state: State, family: Sampler, settings: Training, best: Optimal = None) -> StepResult:
    """Update the weights once, on freshly drawn tasks.

    The step is compiled once for each combination of state structure, family shapes and settings.

    Args:
        state: state before the step. Its buffers are donated, so it cannot be used after the call.
        best: kernel and ridge of the posterior mean. The targets are then the predictions of exact
            regression. With None the targets are the outputs at the queries.

    Returns:
        The state after the update, and the loss before the update.

    >>> import icl_krr as ik
    >>> family = ik.tasks.LinearRegression(num_features=1, num_supports=4)
    >>> settings = Training(batch=2)
    >>> model = ik.constructions.gradient_descent(
    ...     ik.Linear(), num_features=1, ridge=0.1, steps=2, step_size=0.1
    ... )
    >>> state, loss = advance(start(model, settings), family, settings)
    >>> int(state.step), loss.shape
    (1, ())
    """
    wait_for_virtual_devices(state.step)
    return state_after(state, family, settings, best)


@partial(jax.jit, static_argnames="settings", donate_argnums=0)
def state_after(state: State, family: Sampler, settings: Training, best: Optimal) -> StepResult:
    model, moments, key, step = state
    tasks = batch(jax.random.fold_in(key, step), family, settings, step)
    if best is not None:
        # an output is the posterior mean plus noise, which only adds variance to the gradient
        means = map_tasks(lambda task: regression(best[0], task, best[1]), tasks)
        tasks = tasks.replace(y_query=means)
    loss, slope = loss_and_gradient(model, tasks, settings.loss, settings.objective)
    weights: Any = model
    updates, moments = optimiser(settings).update(slope, moments, weights)
    weights = optax.apply_updates(weights, updates)
    return State(weights, moments, key, step + 1), loss


def mean_loss(
    model: Transformer, tasks: Task, where: str, objective: str = "squared_error"
) -> jax.Array:
    """Compute the mean of an objective over a batch of tasks.

    Args:
        where: "queries", or "every" for the unmasked supports, too.
        objective: "squared_error", or "gaussian" for the negative log likelihood.

    >>> import icl_krr as ik
    >>> model = ik.constructions.nadaraya_watson(ik.Exponential(), num_features=8)
    >>> task = ik.tasks.sample(jax.random.key(0), ik.tasks.LinearRegression(num_queries=8))
    >>> round(float(mean_loss(model, ik.tasks.batch([task, task]), "queries")), 2)
    0.12
    """
    sums, counts = map_tasks(partial(sum_and_count, where, objective, False), tasks, model)
    return jnp.sum(sums) / jnp.sum(counts)


def sum_and_count(
    where: str, objective: str, store_products: bool, task: Task, model: Transformer
) -> tuple[jax.Array, jax.Array]:
    """The sum of an objective over the targets of one task, and their number.

    For `store_products`, see `icl_krr.transformer.forward`.
    """
    checks.choice("where", where, PLACES)
    checks.choice("objective", objective, OBJECTIVES)
    y, keep = task.y_query, jnp.ones(task.num_queries, bool)
    if where == "every":
        y, keep = jnp.concatenate([task.y, y]), jnp.concatenate([support_mask(task), keep])
    keep = jnp.broadcast_to(keep.reshape(-1, *[1] * (y.ndim - 1)), y.shape)
    answer = None
    if objective == LIKELIHOOD:
        check_distribution(model)
        answer = as_distribution
    request = Request(along=where == "every", answer=answer, store_products=store_products)
    plan = prepare_run(model, task, request)
    result = plan.program(model, plan.task, **plan.options)[0]
    y = jnp.where(keep, y, 0)
    losses = (result - y) ** 2 if answer is None else -log_density(result, y)
    return jnp.sum(jnp.where(keep, losses, 0)), jnp.sum(keep).astype(y.dtype)


def loss_and_gradient(
    model: Transformer, tasks: Task, where: str, objective: str = "squared_error"
) -> tuple[jax.Array, Any]:
    """Compute `mean_loss` and its gradient, by one chunk of tasks after the other.

    On a CPU, the memory does not grow with the batch, and what a chunk stores stays in the caches;
    elsewhere the batch is one chunk. If `jax.set_mesh` has an axis `tasks`, each of its devices
    adds up its own tasks.

    Args:
        where, objective: as in `mean_loss`.

    >>> import icl_krr as ik
    >>> model = ik.constructions.nadaraya_watson(ik.Exponential(), num_features=8)
    >>> task = ik.tasks.sample(jax.random.key(0), ik.tasks.LinearRegression(num_queries=8))
    >>> loss, gradient = loss_and_gradient(model, ik.tasks.batch([task, task]), "queries")
    >>> round(float(loss), 2), gradient.depth
    (0.12, 1)
    """
    check_axes(tasks, 1)
    mesh, batch = devices.ambient_mesh(), len(tasks.x)
    axes, parts = (), 1
    if mesh is not None and devices.TASKS in mesh.axis_names:
        axes, parts = (devices.TASKS,), mesh.shape[devices.TASKS]
    chunks = -(-batch // (parts * chunk_size(tasks, None, 3)))
    tasks = devices.pad_to_multiple(tasks, parts * chunks)
    weights = (jnp.arange(len(tasks.x)) < batch).astype(tasks.y.dtype)

    def chunk_sums(model: Transformer, tasks: Task, weights: jax.Array) -> tuple:
        of_task = partial(sum_and_count, where, objective, True)
        sums, counts = jax.vmap(of_task, in_axes=(0, None))(tasks, model)
        return weights @ sums, weights @ counts

    def run(values: tuple[Task, jax.Array], model: Transformer) -> Any:
        def add(sums: Any, chunk: tuple[Task, jax.Array]) -> tuple[Any, None]:
            terms = jax.value_and_grad(chunk_sums, has_aux=True)(model, *chunk)
            return jax.tree.map(jnp.add, sums, terms), None

        values = jax.tree.map(lambda leaf: leaf.reshape(chunks, -1, *leaf.shape[1:]), values)
        zero = jnp.zeros((), tasks.y.dtype)
        start = (zero, zero), jax.tree.map(jnp.zeros_like, model)
        return devices.psum(jax.lax.scan(add, start, values)[0], axes)

    if mesh is not None and axes:
        run = devices.shard_map(run, mesh, (PartitionSpec(axes), PartitionSpec()), PartitionSpec())
    (loss, count), slope = run((tasks, weights), model)
    return loss / count, jax.tree.map(lambda total: total / count, slope)


def check(model: Transformer, family: Sampler, settings: Training) -> None:
    """Check that settings fit a model and a family, before anything is compiled.

    Raises:
        ValueError: a setting does not fit. The message contains its name, its value and the rule.
        MemoryError: the tasks of one step do not fit into the free memory.

    >>> import icl_krr as ik
    >>> model = ik.constructions.nadaraya_watson(ik.Exponential(), num_features=8)
    >>> check(model, ik.tasks.LinearRegression(), Training(steps=0))
    Traceback (most recent call last):
    ValueError: steps must be >= 1, got 0
    """
    check_model(model)
    check_sampler("family", family)
    checks.instance("settings", settings, Training, "an icl_krr.training.Training")
    s = settings
    for name in ("steps", "batch", "log_every", "validation"):
        checks.count(name, getattr(s, name))
    for name in ("seed", "warmup", "curriculum"):
        checks.count(name, getattr(s, name), minimum=0)
    for name in ("learning_rate", "clip"):
        checks.positive_scalar(name, getattr(s, name))
    for name in ("decay", "weight_decay"):
        checks.nonnegative_scalar(name, getattr(s, name))
    if s.decay > 1:
        raise ValueError(
            f"decay must be <= 1, because it is a fraction of learning_rate, got {s.decay}"
        )
    checks.choice("objective", s.objective, OBJECTIVES)
    checks.choice("loss", s.loss, PLACES)
    checks.choice("target", s.target, ("outputs", "exact"))
    if s.target == "exact" and optimal(family) is None:
        raise ValueError(
            "target must be 'outputs' for a family whose posterior mean is not known, got 'exact'"
        )
    if s.target == "exact" and s.objective == LIKELIHOOD:
        raise ValueError(
            "target must be 'outputs' if objective is 'gaussian', because the posterior mean has "
            "no noise, got 'exact'"
        )
    if s.target == "exact" and (s.loss == "every" or s.start_features is not None):
        raise ValueError(
            "target must be 'outputs' if loss is 'every' or start_features is given, got 'exact'"
        )
    if s.objective == LIKELIHOOD:
        check_distribution(model)
        check_observed(family)
    task = task_shapes(family)
    check_batch(max(s.batch, s.validation), task)
    full = {"supports": task.num_supports, "features": task.num_features}
    kinds = {"min_supports": "supports", "start_supports": "supports", "start_features": "features"}
    for name, what in kinds.items():
        value = getattr(s, name)
        if value is not None:
            checks.count(name, value)
            if value > full[what]:
                raise ValueError(
                    f"{name} must be <= {full[what]}, the number of {what} of a task, got {value}"
                )
    if (s.min_supports or 0) > (s.start_supports or full["supports"]):
        raise ValueError(
            f"min_supports must be <= start_supports = {s.start_supports}, got {s.min_supports}"
        )
    if bool(s.start_supports or s.start_features) != bool(s.curriculum):
        raise ValueError(
            "curriculum must be > 0 if and only if start_supports or start_features is given, got "
            f"curriculum = {s.curriculum}, start_supports = {s.start_supports}, "
            f"start_features = {s.start_features}"
        )
    if s.loss != "queries" and not (model.spec.causal and model.spec.tokens == "interleaved"):
        raise ValueError(
            f"model must be causal with interleaved tokens for loss={s.loss!r}, because the token "
            f"of a pair shows its y, got causal={model.spec.causal}, "
            f"tokens={model.spec.tokens!r}; use loss='queries'"
        )
    jax.eval_shape(predict if s.loss == "queries" else predict_along, model, task)
