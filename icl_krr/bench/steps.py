"""Gradients: of a construction in its hyperparameters, and of a trained model in its weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from .. import constructions
from ..kernels import Exponential
from ..tasks import LinearRegression, Task
from ..training.step import error
from ..transformer import Architecture, Transformer, init, predict_batch
from .contest import Contest, scratch
from .draws import RIDGE, draw, exponential
from .plain import conjugate_gradient, formed, over_tasks
from .plain_transformer import (
    gradients as plain_gradients,
    plain_weights,
    predictions,
    torch_transformer,
)


def gradients(quick: bool, seed: int) -> Iterator[Contest]:
    """The gradient of the loss in temperature and ridge: construction against plain solver.

    Our program also constructs the weights.
    """
    steps, batch = (2, 4) if quick else (32, 256)
    _, config, _ = exponential()
    tasks = draw(config, batch, seed)

    def constructed(at: jax.Array) -> jax.Array:
        model = constructions.conjugate_gradient(
            Exponential(at[0]), num_features=config.num_features, ridge=at[1], steps=steps
        )
        return jnp.mean((predict_batch(model, tasks) - tasks.y_query) ** 2)

    def plain(at: jax.Array, task: Task) -> jax.Array:
        found = conjugate_gradient(formed(Exponential(at[0]), task), at[1], steps)
        return jnp.mean((found - task.y_query) ** 2)

    def mean(run: Callable[[Task], Any], tasks: Task) -> jax.Array:
        return jnp.mean(run(tasks), axis=0)

    at = jnp.array([0.5, RIDGE])
    ours = jax.jit(jax.grad(constructed))
    ways = over_tasks(lambda task: jax.grad(plain)(at, task), tasks)
    yield Contest(
        "gradient",
        f"softmax, CG, d loss / d (temperature, ridge), {steps} steps, {batch} tasks",
        lambda: ours(at),
        {f"plain, {way}": partial(jax.jit(partial(mean, run)), tasks) for way, run in ways.items()},
        target=2.0,
        tolerance=0.05,
        scratch=lambda: scratch(ours, at),
        size={"n": config.num_supports, "tasks": batch, "depth": steps},
    )


def training(quick: bool, seed: int) -> Iterator[Contest]:
    """A GPT-2 style transformer: its gradient in training, and its predictions.

    The batch has 64 tasks of 82 tokens, p = 20. The first contest of a model measures what
    `icl-krr train` runs, the second the gradient through `predict_batch`.
    """
    sizes = ((2, 16, 8, 1.0),) if quick else ((8, 128, 64, 1.0), (12, 256, 64, 1.05))
    for depth, width, batch, target in sizes:
        config = LinearRegression(num_features=20, num_supports=80)
        architecture = Architecture(
            num_features=20, width=width, depth=depth, heads=4, causal=True, max_tokens=128
        )
        model, tasks = init(jax.random.key(seed), architecture), draw(config, batch, seed)
        named = f"{depth} layers x {width}"
        size = {"tasks": batch, "n": 80, "depth": depth, "width": width}
        ways = {
            f"gradient of a training step, {named}": (trained, target),
            f"gradient through predict_batch, {named}": (through_batch, 1.05),
        }
        for name, (loss, goal) in [*ways.items()][: 1 if quick else None]:
            yield against_plain(name, jax.value_and_grad(loss), model, tasks, goal, size, True)
        yield against_plain(f"predictions, {named}", predict_batch, model, tasks, 1.05, size, False)


def trained(model: Transformer, tasks: Task) -> jax.Array:
    return error(model, tasks, "queries")


def through_batch(model: Transformer, tasks: Task) -> jax.Array:
    return jnp.mean((predict_batch(model, tasks) - tasks.y_query) ** 2)


def against_plain(
    name: str,
    function: Callable[[Transformer, Task], Any],
    model: Transformer,
    tasks: Task,
    target: float,
    size: dict[str, int],
    gradient: bool,
) -> Contest:
    heads, batch, weights = model.num_heads, len(tasks.x), plain_weights(model)
    run = jax.jit(function)
    rivals = {}
    for way, program in (plain_gradients if gradient else predictions)(heads, batch).items():
        rivals[f"plain JAX, {way}"] = partial(jax.jit(program), weights, tasks)
    rivals |= torch_transformer(weights, tasks, heads, gradient)

    def renamed(result: Any) -> Any:
        return (result[0], plain_weights(result[1])) if gradient else result

    return Contest(
        "training",
        name,
        lambda: run(model, tasks),
        rivals,
        target=target,
        like_rivals=renamed,
        scratch=lambda: scratch(run, model, tasks),
        size=size,
    )
