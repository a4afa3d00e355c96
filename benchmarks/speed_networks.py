"""Trained models against plain transformers, and all programs against the machine itself."""

from collections.abc import Callable, Iterator
from functools import partial
from math import ceil
from typing import Any

import jax
import jax.numpy as jnp

import icl_krr as ik
from benchmarks.contests import Contest, scratch
from benchmarks.speed_solvers import constructed, draw, exponential, first, linear
from benchmarks.speed_transformer import gradients, plain_weights, predictions, torch_transformer
from icl_krr.training import loss_and_gradient
from icl_krr.transformer import Architecture, init, step_cost


def network(depth: int, width: int, batch: int, seed: int) -> tuple[ik.Transformer, ik.Task, str]:
    """A model in the style of GPT-2, and tasks of 82 tokens, p = 20."""
    spec = Architecture(num_features=20, width=width, depth=depth, causal=True, max_tokens=128)
    tasks = draw(ik.tasks.LinearRegression(num_features=20, num_supports=80), batch, seed)
    return init(jax.random.key(seed), spec), tasks, f"{depth} layers x {width}"


def loss(model: ik.Transformer, tasks: ik.Task) -> jax.Array:
    return jnp.mean((ik.predict_batch(model, tasks) - tasks.y_query) ** 2)


def training(quick: bool, seed: int) -> Iterator[Contest]:
    """What `icl-krr train` runs, the gradient through `predict_batch`, and predictions."""
    sizes = ((2, 16, 8, 1.0),) if quick else ((8, 128, 64, 1.0), (12, 256, 64, 1.05))
    for depth, width, batch, target in sizes:
        model, tasks, named = network(depth, width, batch, seed)
        size = {"tasks": batch, "n": 80, "depth": depth, "width": width}
        step = partial(loss_and_gradient, where="queries")
        of = partial(against_plain, model=model, tasks=tasks, size=size)
        yield of(f"gradient of a training step, {named}", step, target, gradient=True)
        if not quick:
            through = jax.value_and_grad(loss)
            yield of(f"gradient through predict_batch, {named}", through, 1.05, gradient=True)
        yield of(f"predictions, {named}", ik.predict_batch, 1.05, gradient=False)


def against_plain(
    name: str,
    function: Callable[[ik.Transformer, ik.Task], Any],
    target: float,
    *,
    model: ik.Transformer,
    tasks: ik.Task,
    size: dict[str, int],
    gradient: bool,
) -> Contest:
    heads, batch, weights = model.num_heads, len(tasks.x), plain_weights(model)
    run = jax.jit(function)
    competitors = {}
    for way, program in (gradients if gradient else predictions)(heads, batch).items():
        competitors[f"plain JAX, {way}"] = partial(jax.jit(program), weights, tasks)
    competitors |= torch_transformer(weights, tasks, heads, gradient)

    def renamed(result: Any) -> Any:
        return (result[0], plain_weights(result[1])) if gradient else result

    ours, buffers = partial(run, model, tasks), partial(scratch, run, model, tasks)
    options: dict[str, Any] = {"target": target, "like_competitors": renamed, "size": size}
    return Contest("training", name, ours, competitors, scratch=buffers, **options)


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
    of = partial(against_machine, quick=quick)
    for name, route in (("linear CG", linear()), ("softmax CG", exponential())):
        model, tasks = constructed(route, route[2], 16), draw(route[1], batch, seed)
        yield from of(f"{name}, {batch} tasks", jax.jit(ik.predict_batch), model, tasks)
    long = linear(n=n)
    model, task = constructed(long, n / 100, 8), first(long[1], seed)
    yield from of(f"linear CG, n = {n}", jax.jit(ik.predict), model, task)
    model, tasks, name = network(*((2, 16, 4) if quick else (8, 128, 64)), seed)
    yield from of(f"{name}, forward", jax.jit(ik.predict_batch), model, tasks)
    yield from of(f"{name}, gradient", jax.jit(jax.grad(loss)), model, tasks, passes=3)


def against_machine(
    name: str,
    forward: Callable,
    model: ik.Transformer,
    tasks: ik.Task,
    quick: bool,
    passes: int = 1,
) -> Iterator[Contest]:
    run = partial(forward, model, tasks)
    flops, moved = (passes * model.steps * work for work in step_cost(model, tasks)[:2])
    least = (1, 1) if quick else (2 * LEAST_ROWS * SIDE**2, 12 * LEAST_NUMBERS)
    for speed, work, enough, machine, what in (
        ("products", flops, least[0], product, "GFLOP in one product"),
        ("memory", moved, least[1], sum_of_vectors, "GB in one sum of vectors"),
    ):
        runs = ceil(enough / work)
        title = f"{speed}: {name}{f' ({runs} times)' if runs > 1 else ''}"
        rival = {f"{runs * work / 1e9:.3g} {what}": machine(runs * work)}
        size = {"flops": runs * flops, "bytes": runs * moved}
        yield Contest("roofline", title, repeated(run, runs), rival, tolerance=None, size=size)


def repeated(run: Callable[[], Any], runs: int) -> Callable[[], Any]:
    def program() -> Any:
        for _ in range(runs - 1):
            jax.block_until_ready(run())  # otherwise the runs would share the cores
        return run()

    return program


matmul = jax.jit(partial(jnp.matmul, precision="highest"))


def product(flops: int) -> Callable[[], jax.Array]:
    rows = max(1, round(flops / (2 * SIDE**2)))
    return partial(matmul, jnp.ones((rows, SIDE)), jnp.ones((SIDE, SIDE)))


def sum_of_vectors(moved: int) -> Callable[[], jax.Array]:
    """a / 2 + b in place of a: two numbers of 4 bytes are read and one is written."""
    shape = max(1, round(moved / 12 / ROW)), ROW  # XLA gives whole rows to its threads
    add = jax.jit(lambda a, b: a / 2 + b, donate_argnums=0)
    b, state = jnp.ones(shape), [jnp.ones(shape)]

    def program() -> jax.Array:
        state[0] = add(state[0], b)  # a new array would be memory that the system has to clear
        return state[0]

    return program
