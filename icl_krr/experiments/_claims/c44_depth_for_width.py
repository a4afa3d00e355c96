"""C44: a narrow model cannot represent the kernel in one pass."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ... import Exponential, Linear, Read, constructions, sketches, solvers, theory
from ..._core.numerics import matmul
from ...constructions._assembly.choice import linear_machine
from ...constructions._assembly.linear_attention import LinearAttention
from ...constructions._assembly.slots import SUPPORTS_AND_QUERIES
from ...constructions._compiler.compile import run_on
from ...solvers._conjugate_gradient import textbook
from ...tasks import GaussianProcess, LinearRegression, sample
from ...transformer import Architecture, Transformer, init, predict, run_with_cache
from .claim import CORRECTED, TASK_FAMILY, Checks, Claim, Config, at_most, check, stated
from .measuring import Plot, Rows, every, gap, reading, sizes, slot_gaps, stacked, tidy

RIDGE, FIRST, DEPTHS, STATES = 1.0, 6, (2, 12), ("alpha", "r", "prediction")


class Passes(LinearAttention):
    """Computes K v in p / channels blocks with one head, which reads other features in each."""

    def __init__(self, *options: Any, channels: int):
        super().__init__(*options)
        self.channels, at, p = channels, SUPPORTS_AND_QUERIES, self.x.width
        self.turning = self.state("turning", at, "x, turned by some channels", self.x, p)

    def kernel_times(self, v: Read) -> Read:
        product = self.scratch("K_" + "_".join(v.blocks), SUPPORTS_AND_QUERIES, "K v")
        eye = np.eye(self.x.width, dtype=self.dtype)
        window = self.turning @ eye[:, : self.channels]
        for _ in range(self.x.width // self.channels):
            self.head(window, window, v, to=product)
            self.add(self.turning @ (np.roll(eye, -self.channels, axis=1) - eye), to=self.turning)
        return product


def in_passes(channels: int, config: Config) -> Transformer:
    kind: Any = partial(Passes, channels=channels)
    m = linear_machine(Linear(), config.num_features, kind)
    return run_on(m, textbook, config.steps, ridge=RIDGE)


def run(config: Config, key: jax.Array) -> tuple[Rows, Checks]:
    m, (wide, share) = np.array(config.channels), one_pass(jax.random.split(key, config.draws))
    results = stacked((measure(key, channels, config) for channels in config.channels), axis=1)
    blocks = np.array([in_passes(each, config).blocks_per_step for each in config.channels])
    square, signs = jnp.array([[1.0, 1.0], [1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]), [1, -1, -1, 1]
    mixed = Exponential(1.0)(square, square[:1])[:, 0] @ jnp.array(signs, float)
    axes = {"draw": range(config.draws), "channels": config.channels}
    values = {"passes": results.slots.max(axis=2), "one pass": results.lost, "blocks": blocks[None]}
    rows, same = tidy(axes, **values), results.same
    lost = check(results.lost, reading="features of rank p > m")
    return rows, {
        "exponential kernel, m channels in all, p < m < d_eff, one pass: "
        "|K v of the model - K v| / |K v| >= 1e-3": stated(wide),
        "that model: d_eff / m >= 1.5": share,
        "linear kernel, m < p, one pass: smallest |K - K^|_2 / |K|_2 >= 1e-3": lost,
        "linear kernel, head with m < p channels, p / m passes: "
        "|slots - iterates of CG| / |iterates| <= 1e-10, first steps": results.slots,
        "that head: |f - f*| / |f*| <= 1e-8 after the last step": results.error,
        "that head: blocks in one step <= p / m + 4": at_most(blocks, config.num_features / m + 4),
        "exponential kernel: mixed difference over two slices of x, which is 0 for all sums of "
        "kernels of the slices >= 2.9": float(mixed),
        "stream with P^T x: relative difference of the predictions for two tasks <= 1e-10": same,
        "the two tasks: relative difference of f* >= 0.1": results.apart,
    }


@every(static=("m", "config"))
def measure(key: jax.Array, m: int, config: Config) -> dict[str, jax.Array]:
    task, p = sample(key, LinearRegression(**sizes(config), num_queries=8)), config.num_features
    path = solvers.conjugate_gradient(Linear(), task, ridge=RIDGE, steps=FIRST)
    prediction, cache = run_with_cache(in_passes(m, config), task, names=STATES)
    # another task with the same P^T x and y
    P = sketches.orthonormal(key, p, m)
    points = jnp.concatenate([task.x_query, task.x])
    noise = jax.random.normal(jax.random.fold_in(key, 1), points.shape)
    points += matmul(noise - points, jnp.eye(p) - matmul(P, P.T))
    twin = task.replace(x=points[8:], x_query=points[:8])
    options = {"num_features": p, "ridge": RIDGE, "steps": m, "sketch": P}
    sketched = constructions.conjugate_gradient(Linear(), **options)
    models = [sketched, *(random_blocks(key, P, depth) for depth in DEPTHS)]
    both = jax.tree.map(lambda *fields: jnp.stack(fields), task, twin)
    f, f_twin = jnp.stack([jax.vmap(partial(predict, model))(both) for model in models], axis=1)
    exact, other = jax.vmap(partial(solvers.exact, Linear(), ridge=RIDGE))(both).prediction
    sigma = theory.eigenvalues(Linear(), task)
    return {
        "slots": slot_gaps(cache, path, *STATES),
        "error": gap(prediction, exact),
        "lost": sigma[-m - 1] / sigma[-1],
        "same": gap(f_twin, f),
        "apart": gap(other, exact),
    }


def random_blocks(key: jax.Array, P: jax.Array, depth: int) -> Transformer:
    """Random blocks whose embedding reads P^T x."""
    model = init(key, Architecture(num_features=len(P), width=32, depth=depth))
    x = model.weights.embedding["stream"].blocks["x"]
    return reading(model, x=matmul(P, x[: P.shape[1]]))


@every(static=())
def one_pass(key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the error of K v, and d_eff / m for the m channels of the model."""
    kernel, options = Exponential(0.25), {"num_features": 3, "ridge": RIDGE, "steps": 1}
    task = sample(key, GaussianProcess(kernel, num_features=3, num_supports=64, inputs="sphere"))
    model = constructions.gradient_descent(kernel, step_size=1.0, **options)
    exact = matmul(kernel(task.x_query, task.x), task.y[:, None])[:, 0]
    dimension = theory.effective_dimension(theory.eigenvalues(kernel, task), RIDGE)
    return gap(predict(model, task), exact), dimension / model.layout.width


CLAIM = Claim(
    statement="If the number p of features or the effective dimension exceeds the width m of a "
    "model, one pass does not give products with the kernel matrix K exactly. (The source says "
    "effective dimension of the data. We read d_eff of the kernel matrix, as in its theorem 2.)",
    truth="This holds for features of rank p > m, but not for d_eff > m: a softmax head that reads "
    "all features computes K v of the exponential kernel exactly. Depth can replace the width of a "
    "head. If the stream holds p features, a head with m channels computes K v of the linear "
    "kernel in p / m blocks, and conjugate gradient with it is exact. For the exponential kernel "
    "no sum of such passes is exact, because its matrix is the entrywise product of those of the "
    "slices of x. Depth cannot replace the width of the stream: if it holds P^T x, two tasks with "
    "the same P^T x and y have the same predictions at every depth, but different f*.",
    untested=("sums of more heads than p / m, which can approximate the exponential kernel",),
    source="Cawley 2025, paper/sections/theory.md, section 2",
    quote="When the feature dimension p or the effective dimension of the data exceeds m, the "
    "model cannot represent the full kernel exactly in a single pass.",
    expected=CORRECTED,
    required_inputs=TASK_FAMILY,
    run=run,
    config=Config(draws=10, num_features=6, num_supports=24, steps=16),
    axes=Config(channels=(1, 2, 3)),
    quick=Config(draws=2, channels=(2,)),
    plot=Plot(x="channels", y="one pass"),
)
