"""One task at a time, as in a notebook: predictions and gradients, against plain jitted code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp

from .. import constructions
from ..kernels import Kernel
from ..tasks import Task
from ..transformer import Transformer, memory, predict
from ..transformer.tiled_attention import uses_tiles
from .contest import Contest
from .draws import draw, exponential, linear
from .plain import System, conjugate_gradient, factored, formed


def one_task(quick: bool, seed: int) -> Iterator[Contest]:
    """Conjugate gradient by linear and by softmax attention, n = 64 and 4096.

    Linear attention takes 6 steps, fewer than there are features, because plain code has no
    gradient after convergence. Softmax attention takes 16 steps. `predict` is called as it is,
    within `jax.jit` with the model as an argument and with its weights as constants, and
    differentiated with respect to y. Plain code has the numbers of the kernel as constants. With
    softmax attention and n = 4096, plain code holds the kernel matrix, as the model does with
    `streaming=False`.
    """
    for label, route, steps in (("linear", linear, 6), ("softmax", exponential, 16)):
        for n in (16,) if quick else (64, 4096):
            kernel, config, _ = route(n=n)
            ridge = n / 10  # with a smaller ridge, programs disagree before convergence
            model = constructions.conjugate_gradient(
                kernel, num_features=config.num_features, ridge=ridge, steps=steps
            )
            task = jax.tree.map(lambda leaf: leaf[0], draw(config, 1, seed))
            system = factored if kernel.featured else formed
            plain = partial(plain_prediction, system, kernel, ridge, steps)
            ways = {"": model}
            if model.spec.attention == "softmax" and uses_tiles(n, None):
                ways[", streaming=False"] = model.replace(spec=replace(model.spec, streaming=False))
            for way, own in ways.items():
                yield from contests(f"{label}, CG, n = {n}{way}", own, task, plain)


def plain_prediction(
    system: Callable[..., System], kernel: Kernel, ridge: float, steps: int, task: Task
) -> jax.Array:
    return conjugate_gradient(system(kernel, task), ridge, steps)


def contests(
    name: str, model: Transformer, task: Task, plain: Callable[[Task], jax.Array]
) -> Iterator[Contest]:
    def slopes(task: Task, run: Callable[[Task], jax.Array]) -> jax.Array:
        return jax.grad(lambda y: jnp.sum(run(task.replace(y=y, y_query=None))))(task.y)

    jitted, rival = jax.jit(predict), jax.jit(plain)
    constant = jax.jit(partial(predict, model))
    gradient, of_rival = (jax.jit(partial(slopes, run=run)) for run in (constant, plain))
    for what, run, other in (
        ("predict", lambda: predict(model, task), lambda: rival(task)),
        ("jit, model as argument", lambda: jitted(model, task), lambda: rival(task)),
        ("jit, weights as constants", lambda: constant(task), lambda: rival(task)),
        ("gradient in y", lambda: gradient(task), lambda: of_rival(task)),
    ):
        yield Contest(
            "task",
            f"one task, {name}: {what}",
            run,
            {"plain": other},
            target=2.0,
            tolerance=0.05,
            scratch=lambda what=what: memory(model, task, gradient="grad" in what).scratch,
            size={"n": task.num_supports, "tasks": 1, "depth": model.steps},
        )
