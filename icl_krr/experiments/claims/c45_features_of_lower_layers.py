"""C45: a solver on top of trained or random blocks, whose stream has the features."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ... import constructions, solvers
from ...kernels import Exponential, Kernel, Linear
from ...linalg import solve
from ...numerics import matmul
from ...residual import Read
from ...tasks import Task
from ...transformer import Architecture, Transformer, init, predict, run_with_cache, stack
from ..shared.runs import load
from .claim import FAMILY, HOLDS, Claim, Verdict, at_least, at_most, judge, named, within
from .measuring import Plot, Rows, draw_tasks, every, fields, gap, largest_gap, tidy

RUN, DEPTH, STEPS, FIRST = "gp-encoder", 3, 40, 3
BANDWIDTHS, RIDGES = 2.0 ** np.arange(-4, 1.5, 0.5), 10.0 ** np.arange(-5, 0.5)
KERNELS: dict[str, tuple[Kernel, float]] = {  # with the ridge
    "trained blocks, exponential kernel": (Exponential(400.0), 1.0),
    "random blocks, linear kernel": (Linear(), 100.0),
}
FEATURES = ("x", "trained", "random", "trained, with y")


class Config(NamedTuple):
    draws: int = 5
    tasks: int = 96


def run(config: Config, key: jax.Array) -> tuple[Rows, Verdict]:
    trained = load(RUN)
    model = jax.tree.map(lambda leaf: leaf.astype(float), trained.model)
    own, other = (lower(one) for one in (model, init(key, model.spec)))  # pyright: ignore[reportArgumentType]
    linear = init(key, Architecture(num_features=1, width=16, depth=2, attention="linear"))
    tasks = draw_tasks(key, config.draws, trained.family)
    checks: dict[str, Any] = {}
    for name, below in zip(KERNELS, (own, blind(linear)), strict=True):
        found = fields(measure(tasks, below, name))
        checks |= {
            f"{name}: |slots - iterates of CG on Phi| / |iterates| <= 1e-9, first steps": at_most(
                found.slots, 1e-9, stated=True
            ),
            f"{name}: |f - f*| / |f*| <= 1e-8 after the last step, f* is exact on Phi": at_most(
                found.error, 1e-8, stated=True
            ),
            f"{name}: gradient in the weights of the blocks, gap to that of exact KRR <= 1e-8": (
                at_most(found.gradient, 1e-8)
            ),
        }
    models = dict(zip(FEATURES, (None, own, other, first_blocks(model)), strict=True))
    halves = [
        draw_tasks(jax.random.fold_in(key, i), config.tasks, trained.family) for i in range(2)
    ]
    risk = {}
    for name, below in models.items():
        first, second = (risks(part, below) for part in halves)
        risk |= {(name, kind): tuned(first[kind], second[kind]) for kind in first}
    smoother = risk["x", "smoother"]
    y, zero = halves[1].y_query, float(jnp.mean(halves[1].y_query ** 2))
    mean = float(jnp.mean((y - jnp.mean(halves[1].y, axis=1, keepdims=True)) ** 2))
    rows = tidy(
        {"kernel": ("Gaussian", "linear"), "features": FEATURES},
        risk=[[risk[name, kind] for name in FEATURES] for kind in ("Gaussian", "linear")],
        **{"risk of NW on x": smoother, "risk of the mean": mean, "risk of zero": zero},
    )
    best = risk["x", "Gaussian"]
    for name in ("trained", "random"):
        checks |= {
            f"{name} blocks, Gaussian kernel: risk / risk on x in [0.8, 1.3]": within(
                risk[name, "Gaussian"] / best, 0.8, 1.3
            ),
            f"{name} blocks, linear kernel: risk / risk on x <= 0.1": at_most(
                risk[name, "linear"] / risk["x", "linear"], 0.1
            ),
            f"{name} blocks, Gaussian kernel: risk / risk of NW, of the mean, of zero < 1": at_most(
                risk[name, "Gaussian"] / np.array([smoother, mean, zero]), 0.98
            ),
        }
    checks["trained blocks that see y, Gaussian kernel: risk / risk on x >= 4"] = at_least(
        risk["trained, with y", "Gaussian"] / best, 4
    )
    return rows, judge(*named(checks))


def first_blocks(model: Transformer) -> Transformer:
    steps = jax.tree.map(lambda leaf: leaf[:DEPTH], model.weights.steps)
    return model.replace(weights=model.weights.replace(steps=steps), steps=DEPTH)


def blind(model: Transformer) -> Transformer:
    """The model that sees no y, and a support as a query: phi(x) is one function of x."""
    read = model.weights.embedding["stream"]
    blocks = {**read.blocks, "y": 0 * read.blocks["y"], "support": read.blocks["query"]}
    embedding = {**model.weights.embedding, "stream": Read(blocks, read.width)}
    return model.replace(weights=model.weights.replace(embedding=embedding))


def lower(model: Transformer) -> Transformer:
    return first_blocks(blind(model))


def on_features(below: Transformer | None, task: Task) -> Task:
    """The task with phi(x) for x."""
    if below is None:
        return task
    stream, n = run_with_cache(below, task, names=("stream",))[1]["stream"][-1], task.num_supports
    return task.replace(x=stream[1 : n + 1], x_query=stream[n + 1 :])


@every(static="name")
def measure(task: Task, below: Transformer, name: str) -> dict[str, jax.Array]:
    kernel, ridge = KERNELS[name]
    width = below.layout["stream"].width
    above = constructions.conjugate_gradient(kernel, num_features=width, ridge=ridge, steps=STEPS)
    known = on_features(below, task)
    path = solvers.conjugate_gradient(kernel, known, ridge=ridge, steps=FIRST)
    found, cache = run_with_cache(stack(below, above), task)
    pairs = [
        (cache[slot][: FIRST + 1], getattr(path, slot)) for slot in ("alpha", "r", "prediction")
    ]
    slots = [largest_gap(own[:, -theirs.shape[1] :], theirs) for own, theirs in pairs]

    def through(below: Transformer) -> jax.Array:
        return jnp.mean((predict(stack(below, above), task) - task.y_query) ** 2)

    def exactly(below: Transformer) -> jax.Array:
        exact = solvers.exact(kernel, on_features(below, task), ridge=ridge)
        return jnp.mean((exact.prediction - task.y_query) ** 2)

    slopes = [
        jnp.concatenate(
            [leaf.ravel() for leaf in jax.tree.leaves(jax.grad(f)(below).weights.steps)]
        )
        for f in (through, exactly)
    ]
    exact = solvers.exact(kernel, known, ridge=ridge).prediction
    return {"slots": jnp.stack(slots), "error": gap(found, exact), "gradient": gap(*slopes)}


@every(static=())
def risks(task: Task, below: Transformer | None) -> dict[str, jax.Array]:
    """The errors [task, bandwidth, ridge] of regression, and those of a smoother."""
    task = on_features(below, task)
    x, queries, y = task.x, task.x_query, task.y
    apart, asked = (squares(points, x) for points in (x, queries))
    widths = jnp.asarray(BANDWIDTHS**2)[:, None, None] * jnp.mean(apart)
    K, k = (jnp.exp(-part[None] / widths) for part in (apart, asked))
    size = jnp.mean(jnp.sum(x * x, axis=1))
    linear = [matmul(points, x.T)[None] / size for points in (x, queries)]

    def regress(K: jax.Array, k: jax.Array, ridge: jax.Array) -> jax.Array:
        return matmul(k, solve(K + ridge * jnp.eye(len(x)), y)[:, None])[:, 0]

    of_ridges = jax.vmap(regress, in_axes=(None, None, 0))
    of_kernels = jax.vmap(of_ridges, in_axes=(0, 0, None))
    found = {
        "Gaussian": of_kernels(K, k, jnp.asarray(RIDGES)),
        "linear": of_kernels(*linear, jnp.asarray(RIDGES)),
        "smoother": jnp.sum(k * y, axis=-1) / jnp.sum(k, axis=-1),
    }
    return {kind: jnp.mean((f - task.y_query) ** 2, axis=-1) for kind, f in found.items()}


def squares(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.sum(a * a, axis=1)[:, None] + jnp.sum(b * b, axis=1)[None] - 2 * matmul(a, b.T)


def tuned(first: Any, second: Any) -> float:
    """The risk on the second tasks, with the bandwidth and the ridge of least risk on the first."""
    best = np.argmin(np.mean(first, axis=0))
    return float(np.mean(second, axis=0).ravel()[best])


CLAIM = Claim(
    title="a solver on the features of lower layers",
    statement="Let Phi be the features that lower layers compute of the supports. Layers above run "
    "conjugate gradient on A = K + ridge I, where K is the kernel matrix of Phi, and converge to "
    "f*, exact kernel ridge regression on Phi.",
    truth="icl_krr.stack puts a construction on top of trained or random blocks, and gradients "
    "reach the blocks. If phi(x) shall be one function of x, the blocks must not see y, and must "
    "see supports as queries: with the blocks of a trained encoder as they are, whose supports see "
    "y, kernel ridge regression has more than 4 times the risk that it has on x. On tasks from a "
    "Gaussian process, features of three trained or random blocks gain nothing over x for the "
    "Gaussian kernel with the best bandwidth and ridge for each. With the linear kernel, their "
    "risk is less than a tenth of that on x.",
    corrected="ours",
    source="Cawley 2025, docs/theory/route_a.md",
    quote="Let Phi in R^{k x p} be support features and phi(x) in R^p the query features from "
    "lower layers. [...] Then a Deep Transformer constructed with L layers of attention heads "
    "(queries Q=U Phi, keys K=U Phi) and MLP blocks can implement Conjugate Gradient steps on the "
    "kernel ridge regression objective",
    expected=HOLDS,
    told=FAMILY,
    run=run,
    quick=Config(draws=1, tasks=24),
    plot=Plot(x="features", y="risk", by=("kernel",)),
)
