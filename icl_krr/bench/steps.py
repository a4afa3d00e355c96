"""Gradients: of a construction in its hyperparameters, and of a trained model in its weights."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp

from .. import constructions, solvers
from ..kernels import Exponential
from ..residual import embed, visible
from ..tasks import LinearRegression, Task, map_tasks
from ..transformer import Architecture, Transformer, init, predict_batch
from .contest import Contest, scratch
from .draws import RIDGE, draw, exponential
from .torch_model import torch_gradient


def gradients(quick: bool, seed: int) -> Iterator[Contest]:
    """The gradient of the loss in temperature and ridge: construction against solver.

    Our program also constructs the weights.
    """
    steps, batch = (2, 4) if quick else (32, 256)
    _, config, _ = exponential()
    tasks = draw(config, batch, seed)

    def error(predictions: jax.Array) -> jax.Array:
        return jnp.mean((predictions - tasks.y_query) ** 2)

    def constructed(at: jax.Array) -> jax.Array:
        model = constructions.conjugate_gradient(
            Exponential(at[0]), num_features=config.num_features, ridge=at[1], steps=steps
        )
        return error(predict_batch(model, tasks))

    def bare(at: jax.Array) -> jax.Array:
        def solve(task: Task) -> jax.Array:
            kernel = Exponential(at[0])
            path = solvers.conjugate_gradient(kernel, task, ridge=at[1], steps=steps)
            return path.prediction[-1]

        return error(map_tasks(solve, tasks))

    at = jnp.array([0.5, RIDGE])
    ours, floor = jax.jit(jax.grad(constructed)), jax.jit(jax.grad(bare))
    yield Contest(
        "gradient",
        f"A, CG, d loss / d (temperature, ridge), {steps} steps, {batch} tasks",
        lambda: ours(at),
        {"bare solver": lambda: floor(at)},
        target=3.0,
        tolerance=0.05,
        scratch=lambda: scratch(ours, at),
        size={"n": config.num_supports, "tasks": batch, "depth": steps},
    )


def training(quick: bool, seed: int) -> Iterator[Contest]:
    """The gradient of a GPT-2 style transformer in training: batch 64, 82 tokens, p = 20."""
    sizes = ((2, 16, 4, 0.8),) if quick else ((8, 128, 64, 0.8), (12, 256, 64, 0.65))
    for depth, width, batch, target in sizes:
        config = LinearRegression(num_features=20, num_supports=80)
        tasks = draw(config, batch, seed)
        architecture = Architecture(
            num_features=20, width=width, depth=depth, heads=4, causal=True, max_tokens=128
        )
        model = init(jax.random.key(seed), architecture)

        def loss(model: Transformer, tasks: Task) -> jax.Array:
            return jnp.mean((predict_batch(model, tasks) - tasks.y_query) ** 2)

        gradient = jax.jit(jax.grad(loss))
        start = jax.vmap(lambda task, model=model: embed(model.weights.embedding, task))(tasks)
        seen = visible(jax.tree.map(lambda leaf: leaf[0], tasks))

        def readout(model=model, tasks=tasks, run=gradient) -> jax.Array:
            return jax.tree.map(jnp.asarray, run(model, tasks)).weights.readout.blocks["stream"]

        rivals = torch_gradient(model, start["stream"], seen, tasks.y_query)
        yield Contest(
            "training",
            f"gradient of a training step, {depth} layers x {width}",
            readout,
            rivals or {"icl_krr, again": readout},
            target=target,
            scratch=lambda run=gradient, model=model, tasks=tasks: scratch(run, model, tasks),
            size={"tasks": batch, "n": 80, "depth": depth, "width": width},
        )
