"""Roofline: the speed of our programs against that of the machine, in products and in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import ceil
from typing import Any

import jax
import jax.numpy as jnp

from .. import constructions
from ..kernels import Kernel
from ..numerics import matmul
from ..tasks import LinearRegression, Task
from ..transformer import Architecture, Transformer, init, predict, predict_batch
from ..transformer.cost import step_cost
from .contest import Contest
from .draws import draw, exponential, linear

SIDE = 2048
"""Rows of the square factor of a product that reaches the speed of the machine."""

ROW = 2**16
"""Numbers in a row of the vectors."""

LEAST_ROWS, LEAST_NUMBERS = 512, 2**25
"""Sizes from which a product, and a sum of vectors larger than all caches, run at full speed."""


def roofline(quick: bool, seed: int) -> Iterator[Contest]:
    """Our programs against as many FLOPs in one product, and as many bytes in one sum of vectors.

    The inverse of the ratio is the share of the speed of the machine that a program reaches. The
    machine needs at least the longer of the two times, unless the stream stays in its caches.
    Short programs run several times.
    """
    batch, n = (4, 1000) if quick else (256, 100_000)
    yield from constructed("linear CG", linear(), batch, 16, quick, seed)
    yield from constructed("softmax CG", exponential(), batch, 16, quick, seed)
    kernel, config, _ = linear(n=n)
    yield from constructed(f"linear CG, n = {n}", (kernel, config, n / 100), None, 8, quick, seed)
    yield from trained(quick, seed)


def constructed(
    name: str,
    route: tuple[Kernel, Any, float],
    batch: int | None,
    steps: int,
    quick: bool,
    seed: int,
) -> Iterator[Contest]:
    """Conjugate gradient for a batch of tasks, or for a single task."""
    kernel, config, ridge = route
    model = constructions.conjugate_gradient(
        kernel, num_features=config.num_features, ridge=ridge, steps=steps
    )
    tasks = draw(config, batch or 1, seed)
    if batch is None:
        tasks = jax.tree.map(lambda leaf: leaf[0], tasks)
    else:
        name = f"{name}, {batch} tasks"
    forward = jax.jit(predict if batch is None else predict_batch)
    yield from against_machine(name, lambda: forward(model, tasks), model, tasks, 1, quick)


def trained(quick: bool, seed: int) -> Iterator[Contest]:
    """The transformer of the suite training: its forward pass, and its gradient."""
    depth, width, batch = (2, 16, 4) if quick else (8, 128, 64)
    tasks = draw(LinearRegression(num_features=20, num_supports=80), batch, seed)
    architecture = Architecture(
        num_features=20, width=width, depth=depth, heads=4, causal=True, max_tokens=128
    )
    model, name = init(jax.random.key(seed), architecture), f"{depth} layers x {width}"

    def loss(model: Transformer, tasks: Task) -> jax.Array:
        return jnp.mean((predict_batch(model, tasks) - tasks.y_query) ** 2)

    forward, gradient = jax.jit(predict_batch), jax.jit(jax.grad(loss))
    yield from against_machine(
        f"{name}, forward", lambda: forward(model, tasks), model, tasks, 1, quick
    )
    yield from against_machine(
        f"{name}, gradient", lambda: gradient(model, tasks), model, tasks, 3, quick
    )


def against_machine(
    name: str, run: Callable[[], Any], model: Transformer, tasks: Task, passes: int, quick: bool
) -> Iterator[Contest]:
    step = step_cost(model, tasks)
    flops, moved = (passes * model.steps * work for work in step)
    least = (1, 1) if quick else (2 * LEAST_ROWS * SIDE**2, 12 * LEAST_NUMBERS)
    for speed, work, enough, machine, what in (
        ("products", flops, least[0], product, "GFLOP in one product"),
        ("memory", moved, least[1], sum_of_vectors, "GB in one sum of vectors"),
    ):
        runs = ceil(enough / work)
        times = f" ({runs} times)" if runs > 1 else ""
        yield Contest(
            "roofline",
            f"{speed}: {name}{times}",
            repeated(run, runs),
            {f"{runs * work / 1e9:.3g} {what}": machine(runs * work)},
            tolerance=None,
            size={"flops": runs * flops, "bytes": runs * moved},
        )


def repeated(run: Callable[[], Any], runs: int) -> Callable[[], Any]:
    def program() -> Any:
        for _ in range(runs - 1):
            jax.block_until_ready(run())  # otherwise the runs would share the cores
        return run()

    return program


def product(flops: int) -> Callable[[], jax.Array]:
    rows = max(1, round(flops / (2 * SIDE**2)))
    a, b = jnp.ones((rows, SIDE)), jnp.ones((SIDE, SIDE))
    multiply = jax.jit(matmul)
    return lambda: multiply(a, b)


def sum_of_vectors(moved: int) -> Callable[[], jax.Array]:
    """a / 2 + b in place of a: two numbers of 4 bytes are read and one is written."""
    shape = max(1, round(moved / 12 / ROW)), ROW  # XLA gives whole rows to its threads
    add = jax.jit(lambda a, b: a / 2 + b, donate_argnums=0)
    b, held = jnp.ones(shape), [jnp.ones(shape)]

    def program() -> jax.Array:
        held[0] = add(held[0], b)  # a new array would be memory that the system has to clear
        return held[0]

    return program
