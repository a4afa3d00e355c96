"""Time of a program compared with the time of its parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp

from .. import constructions, linalg, solvers
from ..numerics import matmul
from ..tasks import Task, map_tasks
from ..transformer import predict_batch
from ..transformer.tiled_attention import into_tiles, tile_side, tiled_softmax
from ..transformer.visible import Order
from .contest import Contest
from .draws import draw, exponential
from .plain import plain_predictions


def profile(quick: bool, seed: int) -> Iterator[Contest]:
    """Tiled attention, exact KRR and the forward pass, each compared with its parts."""
    yield of_attention(256 if quick else 16384, seed)
    yield of_exact(8 if quick else 4096, seed)
    yield of_forward(4 if quick else 256, seed)


def part_of(name: str, whole: Callable, parts: dict[str, Callable], size: dict) -> Contest:
    return Contest("profile", name, whole, parts, tolerance=None, size=size)


def of_attention(n: int, seed: int) -> Contest:
    q, k = (jax.random.normal(key, (n, 16)) for key in jax.random.split(jax.random.key(seed)))
    v, tile = jnp.ones((n, 1)), tile_side(n)

    def over_tiles(weigh: Callable[[jax.Array], jax.Array]) -> Callable[[], jax.Array]:
        """Sum of `weigh(logits)` over the keys, tile by tile; logits are [keys, queries]."""

        def of_queries(q: jax.Array) -> jax.Array:
            def take(sums: jax.Array, k: jax.Array) -> tuple[jax.Array, None]:
                return sums + weigh(matmul(k, q.T)), None

            return jax.lax.scan(take, jnp.zeros((1, tile)), into_tiles(k, tile))[0]

        run = jax.jit(lambda q: jax.lax.map(of_queries, into_tiles(q, tile)))
        return lambda: run(q)

    ones = jnp.ones((1, tile))
    parts = {
        "logits, largest of each query": over_tiles(lambda made: jnp.max(made, 0, keepdims=True)),
        "logits and exp2, summed at once": over_tiles(
            lambda made: jnp.sum(jnp.exp2(made), 0, keepdims=True)
        ),
        "logits and exp2, then a product": over_tiles(lambda made: matmul(ones, jnp.exp2(made))),
    }
    run = jax.jit(lambda q, k: tiled_softmax(q, k, v, jnp.ones(n, bool), Order()))
    return part_of(f"softmax forward, n = {n}", lambda: run(q, k), parts, {"n": n})


def of_exact(batch: int, seed: int) -> Contest:
    kernel, config, ridge = exponential()
    tasks = draw(config, batch, seed)

    def A(task: Task) -> jax.Array:
        return kernel(task.x, task.x) + ridge * jnp.eye(task.num_supports)

    def run(function: Callable[[Task], jax.Array]) -> Callable[[], jax.Array]:
        program = jax.jit(lambda tasks: map_tasks(function, tasks))
        return lambda: program(tasks)

    parts = {
        "Gram matrices": run(lambda task: A(task) @ task.y),
        "Gram matrices, factored and solved": run(
            lambda task: linalg.solve(A(task), task.y[:, None])
        ),
    }
    whole = run(lambda task: solvers.exact(kernel, task, ridge=ridge).prediction)
    return part_of(f"exact KRR, {batch} tasks", whole, parts, {"tasks": batch, "n": 64})


def of_forward(batch: int, seed: int) -> Contest:
    kernel, config, ridge = exponential()
    tasks = draw(config, batch, seed)
    model = constructions.conjugate_gradient(
        kernel, num_features=config.num_features, ridge=ridge, steps=16
    )
    forward = jax.jit(predict_batch)
    short = {steps: model.replace(steps=steps) for steps in (1, 8)}  # pyright: ignore[reportAttributeAccessIssue]
    parts = {f"{steps} steps": lambda m=m: forward(m, tasks) for steps, m in short.items()}
    for steps in (1, 16):
        options = {"ridge": ridge, "steps": steps}
        plain = plain_predictions(kernel, tasks, "conjugate_gradient", options)
        parts |= {f"{name}, {steps} steps": program for name, program in plain.items()}
    size = {"tasks": batch, "n": 64, "depth": 16}
    return part_of(
        f"softmax, CG, 16 steps, {batch} tasks", lambda: forward(model, tasks), parts, size
    )
