"""Tiled softmax attention against PyTorch, and linear attention at long contexts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import jax
import jax.numpy as jnp

from .. import constructions
from ..tasks import Task
from ..transformer import memory, predict
from ..transformer.tiled_attention import tiled_softmax
from ..transformer.undivided_softmax import undivided_softmax
from ..transformer.visible import Order
from .contest import Contest, scratch
from .draws import draw, linear
from .peers import torch_attention
from .plain import conjugate_gradient, factored

WHOLE = 4096
"""Up to this number of tokens, attention with the full pattern in memory also competes."""


def attention(quick: bool, seed: int) -> Iterator[Contest]:
    """One softmax head of width 16 and 1 or 16 values: its forward pass and its gradient."""
    lengths = (256,) if quick else (4096, 16384, 65536)
    for n in lengths:
        for values in (1,) if quick else (1, 16):
            for gradient in (False, True):
                yield against_torch(n, values, gradient, seed)


def against_torch(n: int, values: int, gradient: bool, seed: int) -> Contest:
    keys = jax.random.split(jax.random.key(seed), 3)
    widths = zip(keys, (16, 16, values), (0.5, 1.0, 1.0), strict=True)
    q, k, v = (scale * jax.random.normal(key, (n, width)) for key, width, scale in widths)
    visible = jnp.ones(n, bool)

    def tiles(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        return tiled_softmax(q, k, v, visible, Order())[0]

    def whole(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        return undivided_softmax(q, k, visible, Order())(v, visible)

    def of(attend):
        if not gradient:
            return jax.jit(attend)
        return jax.jit(jax.grad(lambda q, k, v: jnp.sum(attend(q, k, v) ** 2), argnums=(0, 1, 2)))

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
        target=1.0,
        scratch=lambda: scratch(run, q, k, v),
        size={"n": n, "values": values},
    )


def linear_context(quick: bool, seed: int) -> Iterator[Contest]:
    """8 conjugate gradient steps by linear attention, against solvers with K v = X (X^T v)."""
    for n in (1000,) if quick else (10_000, 100_000, 1_000_000):
        yield against_matrix_free(n, 8, seed)


def against_matrix_free(n: int, steps: int, seed: int) -> Contest:
    kernel, config, _ = linear(n=n)
    ridge = n / 100  # with a smaller ridge, float32 rounding of the sums dominates
    task = jax.tree.map(lambda leaf: leaf[0], draw(config, 1, seed))
    model = constructions.conjugate_gradient(
        kernel, num_features=config.num_features, ridge=ridge, steps=steps
    )

    def scipy(task: Task) -> jax.Array:
        system = factored(kernel, task)
        A = lambda v: system.K(v) + ridge * v  # noqa: E731
        return system.k(jax.scipy.sparse.linalg.cg(A, task.y, tol=0, maxiter=steps)[0])

    def plain(task: Task) -> jax.Array:
        return conjugate_gradient(factored(kernel, task), ridge, steps)

    return Contest(
        "context",
        f"linear attention, n = {n}",
        partial(jax.jit(predict), model, task),
        {
            "jax.scipy cg, K v = X (X^T v)": partial(jax.jit(scipy), task),
            "plain, K v = X (X^T v)": partial(jax.jit(plain), task),
        },
        target=2.0,
        tolerance=0.05,
        scratch=lambda: memory(model, task).scratch,
        size={"n": n, "depth": steps, "p": config.num_features},
    )
