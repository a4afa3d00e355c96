"""C44: passes through one narrow head give the whole linear kernel; a narrow stream cannot."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ... import constructions, sketches, solvers, theory
from ...constructions.assembly.choice import linear_machine
from ...constructions.assembly.linear_attention import LinearAttention
from ...constructions.assembly.slots import SUPPORTS_AND_QUERIES
from ...constructions.conjugate_gradient import textbook
from ...kernels import Exponential, Linear
from ...numerics import matmul
from ...residual import Read
from ...tasks import GaussianProcess, LinearRegression, Task, sample
from ...transformer import Architecture, Transformer, init, predict, run_with_cache
from .claim import CORRECTED, FAMILY, Claim, Verdict, at_least, at_most, judge, named
from .measuring import Plot, Rows, every, fields, gap, largest_gap, sizes, tidy

RIDGE, FIRST, DEPTHS = 1.0, 6, (2, 12)


class Config(NamedTuple):
    draws: int = 10
    num_features: int = 6
    num_supports: int = 24
    steps: int = 16
    channels: tuple[int, ...] = (1, 2, 3)


class Passes(LinearAttention):
    """A machine with linear attention that computes products with K by one head of few channels.

    The slot `turning` holds x. In each block the head reads its first channels, and the MLP turns
    it by so many channels. After p / channels blocks, x is as before.
    """

    def __init__(self, *options: Any, channels: int):
        super().__init__(*options)
        self.channels, p = channels, self.x.width
        about = "x, turned by some channels"
        self.turning = self.state("turning", SUPPORTS_AND_QUERIES, about, self.x, p)

    def kernel_times(self, v: Read) -> Read:
        product = self.scratch("K_" + "_".join(v.blocks), SUPPORTS_AND_QUERIES, "K v")
        p, eye = self.x.width, np.eye(self.x.width, dtype=self.dtype)
        window = self.turning @ eye[:, : self.channels]
        turn = np.roll(eye, -self.channels, axis=1) - eye
        for _ in range(p // self.channels):
            self.head(window, window, v, to=product)
            self.add(self.turning @ turn, to=self.turning)
        return product


def in_passes(channels: int, config: Config) -> Transformer:
    kind: Callable[..., Any] = partial(Passes, channels=channels)
    m = linear_machine(Linear(), config.num_features, kind).solves(RIDGE)
    return textbook(m, RIDGE, config.steps)


def run(config: Config, key: jax.Array) -> tuple[Rows, Verdict]:
    keys, p = jax.random.split(key, config.draws), config.num_features
    widths = np.array(config.channels)
    each = [fields(measure(keys, m, config)) for m in config.channels]
    slots, error, lost, slices, same, apart, missed = (
        np.stack([getattr(of, name) for of in each], axis=1)
        for name in ("slots", "error", "lost", "slices", "same", "apart", "missed")
    )
    blocks = [in_passes(m, config).blocks_per_step for m in config.channels]
    rows = tidy(
        {"draw": range(config.draws), "channels": config.channels},
        passes=slots.max(axis=2),
        **{"one pass": lost, "slices, exponential kernel": slices},
        blocks=np.array(blocks)[None],
    )
    wide = fields(one_pass(keys))
    checks = {
        "exponential kernel, p <= m < d_eff: |K v of one pass - K v| / |K v| >= 1e-3": at_least(
            wide.error, 1e-3, stated=True
        ),
        "in that check: d_eff / m >= 1.5": at_least(wide.share, 1.5),
        "linear kernel, m < p, one pass: smallest |K - K^|_2 / |K|_2 >= 1e-3": at_least(
            lost, 1e-3, reading="the number p of features exceeds m"
        ),
        "linear kernel, head with m < p channels, p / m passes: "
        "|slots - iterates of CG| / |iterates| <= 1e-10, first steps": at_most(slots, 1e-10),
        "the same head: |f - f*| / |f*| <= 1e-8 after the last step": at_most(error, 1e-8),
        "the same head: blocks in one step <= p / m + 4": at_most(blocks, p / widths + 4),
        "exponential kernel: |K - best sum of the kernels of p / m slices|_F / |K|_F >= 0.02": (
            at_least(slices, 0.02)
        ),
        "stream with P^T x only: two tasks have the same predictions, relative difference "
        "<= 1e-10": at_most(same, 1e-10),
        "the two tasks: |difference of f*| / |f*| >= 0.1": at_least(apart, 0.1),
        "the two tasks: larger error of f / half of the difference of f* >= 1": at_least(
            missed, 1 - 1e-9
        ),
    }
    return rows, judge(*named(checks))


@every(static=("m", "config"))
def measure(key: jax.Array, m: int, config: Config) -> dict[str, jax.Array]:
    task = sample(key, LinearRegression(**sizes(config), num_queries=8))
    path = solvers.conjugate_gradient(Linear(), task, ridge=RIDGE, steps=FIRST)
    found, cache = run_with_cache(in_passes(m, config), task)
    exact = solvers.exact(Linear(), task, ridge=RIDGE).prediction
    pairs = [
        (cache[name][: FIRST + 1], getattr(path, name)) for name in ("alpha", "r", "prediction")
    ]
    ours = [largest_gap(own[:, -theirs.shape[1] :], theirs) for own, theirs in pairs]
    sigma = theory.eigenvalues(Linear(), task)
    return {
        "slots": jnp.stack(ours),
        "error": gap(found, exact),
        "lost": sigma[-m - 1] / sigma[-1],
        "slices": distance_of_slices(task.x, m),
        **narrow_stream(key, task, exact, m),
    }


def distance_of_slices(x: jax.Array, m: int) -> jax.Array:
    """The distance of K from the span of the kernels of the slices and 1, over |K|."""
    n, p = x.shape
    products = jax.vmap(lambda z: matmul(z, z.T))(x.reshape(n, p // m, m).swapaxes(0, 1))
    K = jnp.exp(2 / p * jnp.sum(products, axis=0))
    parts = jnp.exp(2 / p * products).reshape(p // m, -1)
    span = jnp.linalg.qr(jnp.concatenate([parts, jnp.ones((1, n * n))]).T)[0]
    rest = K.ravel() - matmul(span, matmul(span.T, K.reshape(-1, 1)))[:, 0]
    return jnp.linalg.norm(rest) / jnp.linalg.norm(K)


def narrow_stream(key: jax.Array, task: Task, exact: jax.Array, m: int) -> dict[str, jax.Array]:
    """Compare two tasks with the same P^T x and y, in models whose embedding reads P^T x."""
    p = task.num_features
    P = sketches.orthonormal(key, p, m)
    rest = jnp.eye(p) - matmul(P, P.T)

    def moved(x: jax.Array, turn: int) -> jax.Array:
        noise = jax.random.normal(jax.random.fold_in(key, turn), x.shape)
        return x + matmul(noise - x, rest)

    twin = task.replace(x=moved(task.x, 1), x_query=moved(task.x_query, 2))
    other = solvers.exact(Linear(), twin, ridge=RIDGE).prediction
    given = {"num_features": p, "ridge": RIDGE, "steps": m + 2, "sketch": P}
    models = [constructions.conjugate_gradient(Linear(), **given)]
    models += [random_blocks(key, P, depth) for depth in DEPTHS]
    f, f_twin = (jnp.stack([predict(model, t) for model in models]) for t in (task, twin))
    errors = jnp.linalg.norm(f - exact[None], axis=1), jnp.linalg.norm(f_twin - other[None], axis=1)
    return {
        "same": gap(f_twin, f),
        "apart": gap(other, exact),
        "missed": jnp.maximum(*errors) / (jnp.linalg.norm(other - exact) / 2),
    }


def random_blocks(key: jax.Array, P: jax.Array, depth: int) -> Transformer:
    """Random blocks whose stream has 32 channels, with x in a subspace of m of them."""
    model = init(key, Architecture(num_features=len(P), width=32, depth=depth))
    read = model.weights.embedding["stream"]
    blocks = {**read.blocks, "x": matmul(P, read.blocks["x"][: P.shape[1]])}
    embedding = {**model.weights.embedding, "stream": Read(blocks, read.width)}
    return model.replace(weights=model.weights.replace(embedding=embedding))


@every(static=())
def one_pass(key: jax.Array) -> dict[str, jax.Array]:
    """The error of K v, by one softmax head, and d_eff / m, where m is the width of the stream."""
    kernel = Exponential(0.25)
    family = GaussianProcess(
        kernel, num_features=3, num_supports=64, num_queries=8, inputs="sphere"
    )
    task = sample(key, family)
    model = constructions.gradient_descent(
        kernel, num_features=3, ridge=RIDGE, steps=1, step_size=1.0
    )
    exact = matmul(kernel(task.x_query, task.x), task.y)
    dimension = theory.effective_dimension(theory.eigenvalues(kernel, task), RIDGE)
    return {"error": gap(predict(model, task), exact), "share": dimension / model.layout.width}


CLAIM = Claim(
    title="a narrow model cannot represent the kernel in one pass",
    statement="If the number p of features or the effective dimension d_eff of the kernel matrix "
    "exceeds the width m of a model, one pass does not give products with the kernel matrix K "
    "exactly.",
    truth="It holds for p > m, but not for d_eff > m: a softmax head that reads p features "
    "computes K v of the exponential kernel exactly, whatever d_eff is. Depth can replace the "
    "width of the head. If the stream holds all p features, a head with m channels that reads "
    "other features in each block computes K v of the linear kernel in p / m blocks, and "
    "conjugate gradient with this head is exact. This is not so for the exponential kernel: its "
    "matrix is the entrywise product of the matrices of the slices of x, and no weighted sum of "
    "these is equal to it. Depth cannot replace the width of the stream. If the stream holds P^T x "
    "only, two tasks with the same P^T x and y have the same predictions in every model of any "
    "depth, but different f* (exact kernel ridge regression).",
    untested=("sums of many more heads than p / m, which can approximate the exponential kernel",),
    corrected="ours",
    source="Cawley 2025, paper/sections/theory.md, section 2",
    quote="When the feature dimension p or the effective dimension of the data exceeds m, the "
    "model cannot represent the full kernel exactly in a single pass.",
    expected=CORRECTED,
    told=FAMILY,
    run=run,
    quick=Config(draws=2, channels=(2,)),
    plot=Plot(x="channels", y="one pass"),
)
