"""Tiled softmax attention against PyTorch, and linear attention at long contexts."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp

from .. import constructions
from ..tasks import Task
from ..transformer import memory, predict
from ..transformer.attention import undivided_softmax
from ..transformer.tiled_attention import tiled_softmax
from .contest import Contest, scratch
from .draws import draw, linear
from .peers import torch_attention

WHOLE = 4096
"""Up to this number of tokens, attention with the full pattern in memory also competes."""


def attention(quick: bool, seed: int) -> Iterator[Contest]:
    """One softmax head of width 16 and 1 or 16 values: its forward pass and its gradient."""
    lengths = (256,) if quick else (4096, 16384, 65536)
    for n in lengths:
        for values in (1,) if quick else (1, 16):
            for gradient in (False, True):
                if not gradient or n < lengths[-1] or quick:
                    yield against_torch(n, values, gradient, seed)


def against_torch(n: int, values: int, gradient: bool, seed: int) -> Contest:
    keys = jax.random.split(jax.random.key(seed), 3)
    widths = zip(keys, (16, 16, values), (0.5, 1.0, 1.0), strict=True)
    q, k, v = (scale * jax.random.normal(key, (n, width)) for key, width, scale in widths)
    visible = jnp.ones(n, bool)

    def tiles(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        return tiled_softmax(q, k, v, visible, False)[0]

    def whole(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        return undivided_softmax(q, k, visible, False)(v)

    def of(attend):
        if not gradient:
            return jax.jit(attend)
        slopes = jax.grad(lambda q, k, v: jnp.sum(attend(q, k, v) ** 2), argnums=(0, 1, 2))
        return jax.jit(lambda q, k, v: slopes(q, k, v)[0])

    run, at_once = of(tiles), of(whole)
    rivals = torch_attention(q, k, v, gradient)
    if n <= WHOLE:
        rivals["JAX, pattern formed"] = lambda: at_once(q, k, v)
    if not rivals:
        forward = jax.jit(tiles)
        rivals["icl_krr"] = lambda: forward(q, k, v)
    what = "gradient" if gradient else "forward"
    return Contest(
        "attention",
        f"softmax {what}, n = {n}, {values} values",
        lambda: run(q, k, v),
        rivals,
        target=0.6,
        scratch=lambda: scratch(run, q, k, v),
        size={"n": n, "values": values},
    )


def linear_context(quick: bool, seed: int) -> Iterator[Contest]:
    """8 conjugate gradient steps by linear attention, against a solver with K v = X (X^T v)."""
    for n in (1000,) if quick else (10_000, 100_000, 1_000_000):
        kernel, config, _ = linear(n=n)
        ridge = n / 100  # with a smaller ridge, float32 rounding of the sums dominates
        (task,) = (jax.tree.map(lambda leaf: leaf[0], draw(config, 1, seed)),)
        model = constructions.conjugate_gradient(
            kernel, num_features=config.num_features, ridge=ridge, steps=8
        )

        def matrix_free(task: Task, ridge: float = ridge) -> jax.Array:
            """Conjugate gradient with K v = X (X^T v), whose cost is linear in n."""
            apply = lambda v: task.x @ (task.x.T @ v) + ridge * v  # noqa: E731
            alpha, _ = jax.scipy.sparse.linalg.cg(apply, task.y, tol=0, maxiter=8)
            return task.x_query @ (task.x.T @ alpha)

        forward, bare = jax.jit(predict), jax.jit(matrix_free)
        yield Contest(
            "context",
            f"linear attention, n = {n}",
            lambda model=model, task=task, run=forward: run(model, task),
            {"jax.scipy cg, K v = X (X^T v)": lambda task=task, run=bare: run(task)},
            tolerance=0.05,
            scratch=lambda model=model, task=task: memory(model, task).scratch,
            size={"n": n, "depth": 8, "p": config.num_features},
        )
