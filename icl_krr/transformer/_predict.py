"""Predictions, caches and interventions from a model and a task."""

from __future__ import annotations

from collections.abc import Mapping

import jax
from jax.sharding import Mesh

from .._core import checks
from .._core.status_warning import warn_unless_plausible
from ..tasks import Task
from ._cache import Cache
from ._hook_points import Hook, Request, check_arguments
from ._run_plan import prepare_run
from ._weights import Transformer, check_model


def predict(model: Transformer, task: Task, *, mesh: Mesh | None = None) -> jax.Array:
    """Predict the outputs at the queries of a task: [q] for y [n], or [q, r] for y [n, r].

    The function is jitted and pure: differentiate it with respect to `model` or `task`, and batch
    it by `jax.vmap(predict, in_axes=(None, 0))`. It runs in the dtype of the task. A model with one
    output predicts each output of a task separately, in units of its own. A model with several
    outputs runs in one unit of y, so outputs that are 1e10 times smaller than others can become 0,
    which `icl_krr.check` reports. Outside of JAX transformations, the function waits for its
    result, to warn if it is not finite or too large; `icl_krr.StatusWarning` says how to turn that
    off.

    Args:
        task: the task, in a dtype that is not wider than that of the weights, and not float16.
        mesh: mesh whose axis `context` divides the supports; default None: they stay on the devices
            on which they are.

    >>> import icl_krr as ik
    >>> model = ik.constructions.conjugate_gradient(ik.Linear(), num_features=1, ridge=2.0, steps=1)
    >>> task = ik.Task(x=[[1.0]], y=[3.0], x_query=[[1.0]])
    >>> ik.predict(model, task).tolist()
    [1.0]
    """
    plan = prepare_run(model, task, mesh=mesh)
    return warn_unless_plausible(plan.program(model, plan.task, **plan.options)[0], task)


def predict_batch(
    model: Transformer, tasks: Task, *, chunk: int | None = None, mesh: Mesh | None = None
) -> jax.Array:
    """Predict the outputs at the queries of a batch of tasks.

    The result, [b, q] or [b, q, r], is that of `jax.vmap(predict, in_axes=(None, 0))`.

    Args:
        chunk: number of tasks that run at a time (on each device). Default None: on a CPU, the
            largest power of two that fits its caches; on other devices, the whole batch.
        mesh: mesh whose axis `tasks` divides the tasks, and whose axis `context` divides the
            supports of each; default None: all stay on the devices on which they are, or on those
            of `jax.set_mesh`.

    >>> import jax
    >>> import icl_krr as ik
    >>> config = ik.tasks.LinearRegression(num_features=2, num_supports=4)
    >>> keys = jax.random.split(jax.random.key(0), 5)
    >>> tasks = jax.vmap(ik.tasks.sample, in_axes=(0, None))(keys, config)
    >>> model = ik.constructions.conjugate_gradient(ik.Linear(), num_features=2, ridge=0.1, steps=2)
    >>> ik.predict_batch(model, tasks).shape
    (5, 1)
    """
    plan = prepare_run(model, tasks, batch=1, chunk=chunk, mesh=mesh)
    return warn_unless_plausible(plan.program(model, plan.task, **plan.options), tasks)


def predict_along(model: Transformer, task: Task, *, mesh: Mesh | None = None) -> jax.Array:
    """Predict at every support from the supports before it, then at the queries.

    The result, of a causal model, is [n + q] for y [n] or [n + q, r] for y [n, r]. With interleaved
    tokens, the prediction at a support is read out at the token of its x, which precedes its y.
    With paired tokens, that token also has y: a construction uses it only if its prefix is
    "inclusive", a trained model may.

    >>> import jax
    >>> import icl_krr as ik
    >>> config = ik.tasks.LinearRegression(num_features=2, num_supports=4)
    >>> model = ik.constructions.delta_rule(ik.Linear(), num_features=2, step_size=0.1)
    >>> task = ik.tasks.sample(jax.random.key(0), config)
    >>> predict_along(model, task).shape
    (5,)
    """
    plan = prepare_run(model, task, Request(along=True), mesh=mesh)
    return warn_unless_plausible(plan.program(model, plan.task, **plan.options)[0], task)


def run_with_cache(
    model: Transformer,
    task: Task,
    *,
    names: tuple[str, ...] | None = None,
    points: tuple[str, ...] = (),
    everything: bool = False,
    hooks: Mapping[str, Hook] | None = None,
    mesh: Mesh | None = None,
) -> tuple[jax.Array, Cache]:
    """Predict, and store slots after every step and points inside blocks.

    A slot has the shape [steps + 1, tokens, width]: its values at the start and after each step.
    The tokens are those of one role (aggregator, support or query) if the slot exists at one role
    only, otherwise all T tokens. So `cache["alpha"]` is [steps + 1, n, r], and
    `cache["prediction"]` is the readout at the queries, [steps + 1, q, r]. For a task with y [n],
    states of width 1 and the prediction have no last axis. If a model with one output takes a task
    with y [n, r], the r outputs are the last axis of every stored value, after the width. For
    states of width 1, they replace the width.

    If the largest |y| is not between 2^-20 and 2^20, a model whose slots are all powers of y in its
    size (`icl_krr.constructions`) runs on y divided by a power of two. Predictions and slots are
    given in the units of y; points, and the values that hooks get, are those of the run.

    Args:
        names: slots to store, or "prediction". Default None: all states, and the prediction.
        points: points to store in every block that has them, such as "resid_mid" or "attn.alpha".
        everything: whether to store all points, including the patterns [T, T]. Linear attention
            then forms its pattern, which changes rounding errors.
        hooks: functions that replace values inside blocks (see `run_with_hooks`).
        mesh: as in `predict`. If the supports are divided, only slots can be stored, no points.

    >>> import icl_krr as ik
    >>> model = ik.constructions.conjugate_gradient(ik.Linear(), num_features=1, ridge=2.0, steps=1)
    >>> task = ik.Task(x=[[1.0]], y=[3.0], x_query=[[1.0]])
    >>> prediction, cache = ik.run_with_cache(model, task)
    >>> cache["alpha"].tolist(), cache["prediction"].tolist()
    ([[0.0], [1.0]], [[0.0], [1.0]])
    """
    check_model(model)
    if names is None:
        names = (*model.layout.states, "prediction")
    for what, value in (("names", names), ("points", points)):
        checks.names(what, value)
    checks.flag("everything", everything)
    if everything and points:
        raise ValueError(f"points must not be given with everything=True, got {points}")
    keep = True if everything else tuple(points)
    request = Request(tuple(dict.fromkeys(names)), keep, placed_hooks(hooks or {}))
    plan = prepare_run(model, task, request, mesh=mesh)
    prediction, (slots, stored) = plan.program(model, plan.task, **plan.options)
    warn_unless_plausible(prediction, task)
    return prediction, Cache(slots, stored, len(model.weights.prologue), model.steps)


def run_with_hooks(model: Transformer, task: Task, hooks: Mapping[str, Hook]) -> jax.Array:
    """Predict, with functions (hooks) that replace values inside blocks.

    The points of block 3, for its group J of heads or MLP units, are:

    - `blocks.3.resid_pre`, `blocks.3.resid_mid`, `blocks.3.resid_post`: the stream before the
      block, between its sublayers and after it;
    - `blocks.3.heads.J.pattern` [H, T, T]: attention patterns of the heads;
    - `blocks.3.heads.J.mixed` [T, H, d]: for each head, its pattern times its values;
    - `blocks.3.units.J.hidden` [T, hidden]: hidden units;
    - `blocks.3.heads.J`, `blocks.3.units.J`: what the group writes to the stream;
    - `blocks.3.attn`, `blocks.3.mlp`: what the sublayer writes to the stream.

    A point without a shape in this list is a dictionary {slot: [T, width]}, and each slot is also a
    point, such as `blocks.3.attn.alpha` [T, width]. The name `blocks.*.attn` means the point `attn`
    of every block that has it.

    Every new hook function is compiled anew. For a sweep over values, write one hook that reads
    them from an array, and call `run_with_hooks` inside your own `jax.jit` or `jax.vmap`.

    Args:
        hooks: {name of a point: function (value, where) -> value}. A hook must be pure and return a
            value with the same slots, shapes and dtypes. `where` is a `Where`: `where.name` is this
            name, `where.block` the number of the block and `where.step` the number of the step.

    >>> import icl_krr as ik
    >>> model = ik.constructions.conjugate_gradient(ik.Linear(), num_features=1, ridge=2.0, steps=1)
    >>> task = ik.Task(x=[[1.0]], y=[3.0], x_query=[[1.0]])
    >>> double = lambda value, where: 2 * value
    >>> ik.run_with_hooks(model, task, {"blocks.3.attn.prediction": double}).tolist()
    [2.0]
    """
    plan = prepare_run(model, task, Request(hooks=placed_hooks(hooks)))
    return plan.program(model, plan.task, **plan.options)[0]


def placed_hooks(hooks: Mapping[str, Hook]) -> tuple[tuple[str, Hook], ...]:
    """The points of hooks, each with its function."""
    if not isinstance(hooks, Mapping) or not all(map(callable, hooks.values())):
        needed = "{name: function (value, where) -> value}"
        raise TypeError(f"hooks must be {needed}, got {checks.short_repr(hooks)}")
    for name, hook in hooks.items():
        check_arguments(name, hook)
    return tuple(hooks.items())
