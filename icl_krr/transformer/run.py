"""From a model and a task to predictions, caches and interventions."""

from __future__ import annotations

from collections.abc import Mapping

import jax

from ..tasks import Task
from ..tasks.batches import chunk_of
from .cache import Cache
from .evaluate import check_compatible, evaluate, evaluate_batch
from .hook_points import Hook
from .memory import run_if_it_fits
from .weights import Transformer


def predict(model: Transformer, task: Task) -> jax.Array:
    """The model's prediction at the queries: [q] for y of shape [n], [q, r] for [n, r].

    Jitted and pure: differentiate it in `model` or `task`, batch it by
    `jax.vmap(predict, in_axes=(None, 0))`. The weights are evaluated in the task's dtype. A
    model of one output takes each output of a task on its own.

    Raises ValueError for a task that does not fit the model, TypeError for one whose dtype is
    wider than the weights', MemoryError for a run that does not fit the device (see `memory`).

    >>> import jax.numpy as jnp
    >>> import icl_krr as ik
    >>> model = ik.constructions.conjugate_gradient(ik.Linear(), num_features=1, ridge=2.0, steps=1)
    >>> task = ik.Task(x=jnp.ones((1, 1)), y=jnp.array([3.0]), x_query=jnp.ones((1, 1)))
    >>> ik.predict(model, task).tolist()
    [1.0]
    """
    check_compatible(model, task)
    return run_if_it_fits(evaluate, model, task)[0]


def predict_batch(model: Transformer, tasks: Task, *, chunk: int | None = None) -> jax.Array:
    """Predictions for a batch of tasks (leading axis on every field): [b, q] or [b, q, r].

    The same as `jax.vmap(predict, in_axes=(None, 0))`, `chunk` tasks at a time: by default as
    many as the caches of a CPU hold, the whole batch elsewhere (see `map_tasks`).

    Raises as `predict` does, and ValueError if the tasks are not a batch.

    >>> import jax
    >>> import icl_krr as ik
    >>> config = ik.tasks.LinearRegression(num_features=2, num_supports=4)
    >>> keys = jax.random.split(jax.random.key(0), 5)
    >>> tasks = jax.vmap(ik.tasks.sample, in_axes=(0, None))(keys, config)
    >>> model = ik.constructions.conjugate_gradient(ik.Linear(), num_features=2, ridge=0.1, steps=2)
    >>> ik.predict_batch(model, tasks).shape
    (5, 1)
    """
    check_compatible(model, tasks, batch=1)
    return run_if_it_fits(evaluate_batch, model, tasks, chunk=chunk_of(tasks, chunk))


def predict_along(model: Transformer, task: Task) -> jax.Array:
    """Predictions at every support from the supports before it, then at the queries: [n + q].

    What a causal model of interleaved tokens says at the token of each x, [n + q, r] for y of
    shape [n, r]; jitted and pure as `predict`.

    Raises as `predict` does, and ValueError for a model that is not causal or not interleaved.

    >>> import jax
    >>> import icl_krr as ik
    >>> config = ik.tasks.LinearRegression(num_features=2, num_supports=4)
    >>> spec = ik.Architecture(num_features=2, width=8, causal=True, tokens="interleaved")
    >>> task = ik.tasks.sample(jax.random.key(0), config)
    >>> predict_along(ik.init(jax.random.key(1), spec), task).shape
    (5,)
    """
    check_compatible(model, task)
    if not model.spec.causal or model.spec.tokens != "interleaved":
        raise ValueError(
            "model must be causal with interleaved tokens to predict along the supports, got "
            f"causal={model.spec.causal}, tokens={model.spec.tokens!r}"
        )
    return run_if_it_fits(evaluate, model, task, along=True)[0]


def run_with_cache(
    model: Transformer,
    task: Task,
    *,
    names: tuple[str, ...] | None = None,
    points: tuple[str, ...] = (),
    everything: bool = False,
) -> tuple[jax.Array, Cache]:
    """The prediction and a `Cache` of slots after every step, the start included.

    `cache[slot]` is [steps + 1, tokens, width], at the tokens of a role if the slot lives at one
    only, [steps + 1, n, r] for `alpha`, else at all; `cache["prediction"]` is the read-out at
    the queries, [steps + 1, q, r]. Where the task's y is [n], the last axis of states of width 1
    is dropped as it is there; where a model of one output takes r of them, every other slot has
    them as a last axis too.
    `names` chooses slots (by default the layout's states), and nothing else is stored; `points`,
    such as "resid_mid" or "attn.alpha" (see `hook_points`), are kept in every block that has them,
    and with `everything` all are, patterns [T, T] included; linear attention then goes through its
    pattern, which rounds in another order.

    Raises as `predict` does, and ValueError for a name that the layout, or a point that the model
    does not have, and for points beside `everything`.

    >>> import jax.numpy as jnp
    >>> import icl_krr as ik
    >>> model = ik.constructions.conjugate_gradient(ik.Linear(), num_features=1, ridge=2.0, steps=1)
    >>> task = ik.Task(x=jnp.ones((1, 1)), y=jnp.array([3.0]), x_query=jnp.ones((1, 1)))
    >>> prediction, cache = ik.run_with_cache(model, task)
    >>> cache["alpha"].tolist(), cache["prediction"].tolist()
    ([[0.0], [1.0]], [[0.0], [1.0]])
    """
    check_compatible(model, task)
    if names is None:
        states = [slot.name for slot in model.layout.slots if slot.kind == "state"]
        names = (*states, "prediction")
    for what, value in (("names", names), ("points", points)):
        if isinstance(value, str):
            raise TypeError(f"{what} must be a tuple, got {value!r}; use ({value!r},)")
    if everything and points:
        raise ValueError(f"points must be left out with everything=True, got {points}")
    for name in names:
        if name != "prediction":
            model.layout[name]
    prediction, (slots, kept) = run_if_it_fits(
        evaluate, model, task, names=tuple(dict.fromkeys(names)), keep=everything or tuple(points)
    )
    return prediction, Cache(slots, kept, len(model.weights.prologue), model.steps)


def run_with_hooks(model: Transformer, task: Task, hooks: Mapping[str, Hook]) -> jax.Array:
    """The prediction with values replaced on the way: {"blocks.3.attn": fn}.

    `fn(value, name)` must be pure and return what it got in shape and dtype: {slot: [T, width]}
    for the points of a block, an array for a slot of one, `blocks.3.attn.alpha` (see
    `hook_points`). A hook at `blocks.*.attn` is called in every block, with its `HookPlace` for the
    name.
    Each new function is compiled anew; for a sweep let one function take its values from an
    array, under `jax.jit` or `jax.vmap` of your own.

    Raises as `predict` does, and ValueError for a point that the model does not have.

    >>> import jax, jax.numpy as jnp
    >>> import icl_krr as ik
    >>> model = ik.constructions.conjugate_gradient(ik.Linear(), num_features=1, ridge=2.0, steps=1)
    >>> task = ik.Task(x=jnp.ones((1, 1)), y=jnp.array([3.0]), x_query=jnp.ones((1, 1)))
    >>> double = lambda value, name: 2 * value
    >>> ik.run_with_hooks(model, task, {"blocks.3.attn.prediction": double}).tolist()
    [2.0]
    """
    check_compatible(model, task)
    if not isinstance(hooks, Mapping) or not all(map(callable, hooks.values())):
        raise TypeError("hooks must be {name: function (value, name) -> value}, got " + repr(hooks))
    return run_if_it_fits(evaluate, model, task, hooks=tuple(hooks.items()))[0]
