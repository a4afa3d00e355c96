"""C45: a solver on the features of lower layers."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from ... import Exponential, Gaussian, Kernel, Linear, Task, constructions, solvers
from ...transformer import Architecture, Transformer, init, predict, run_with_cache, stack
from .._shared.runs import load
from .claim import HOLDS, TASK_FAMILY, Checks, Claim, Config, stated
from .measuring import Plot, Rows, draw_tasks, every, gap, reading, slot_gaps, tidy

DEPTH, STEPS, FIRST, RIDGES = 3, 40, 3, 10.0 ** np.arange(-5, 1)
KERNELS: dict[str, tuple[Kernel, float]] = {  # with the ridge
    "trained blocks, exponential kernel": (Exponential(400.0), 1.0),
    "random blocks, linear kernel": (Linear(), 100.0),
}
FEATURES = ("x", "trained", "random", "trained, with y")


def run(config: Config, key: jax.Array) -> tuple[Rows, Checks]:
    trained = load("gp-encoder")
    model = jax.tree.map(lambda leaf: leaf.astype(float), trained.model)
    models = [blind(each) for each in (model, init(key, model.spec))]  # pyright: ignore[reportArgumentType]
    plain = init(key, Architecture(num_features=1, width=16, depth=DEPTH, attention="linear"))
    tasks = draw_tasks(key, config.draws, trained.family)
    checks: dict[str, Any] = {}
    for name, below in zip(KERNELS, (models[0], blind(plain)), strict=True):
        results = measure(tasks, below, name)
        gradient = results.gradient
        slots = stated(results.slots)
        checks |= {
            f"{name}: |slots - iterates of CG on Phi| / |iterates| <= 1e-9, first steps": slots,
            f"{name}: |f - f*| / |f*| <= 1e-8 after the last step": stated(results.error),
            f"{name}: gradient in the weights of the blocks, gap to that of f* <= 1e-8": gradient,
        }
    pair = (jax.random.fold_in(key, i) for i in range(2))
    halves = [draw_tasks(half_key, config.tasks, trained.family) for half_key in pair]
    both = [[vars(risks(one, below)) for one in halves] for below in (None, *models, first(model))]
    risk = {key: np.array([tuned(*(r[key] for r in pair)) for pair in both]) for key in both[0][0]}
    y, mean = halves[1].y_query, jnp.mean(halves[1].y, axis=1, keepdims=True)
    others = [risk["smoother"][0], *(float(jnp.mean((y - guess) ** 2)) for guess in (mean, 0))]
    kinds = ("Gaussian", "linear")
    depths = [0 if name == "x" else DEPTH for name in FEATURES]
    axes = {"kernel": kinds, "features": FEATURES}
    rows = tidy(axes, risk=[risk[kind] for kind in kinds], blocks=[depths])
    axes = {"kernel": ("baseline",), "features": ("Nadaraya-Watson", "mean", "zero")}
    rows += tidy(axes, risk=[others], blocks=0)
    beside = risk["Gaussian"][1:3, None] / np.array(others)
    smooth, linear = (risk[kind] / risk[kind][0] for kind in kinds)
    blind_to_y = smooth[1:3]
    checks |= {
        "Gaussian kernel, trained and random blocks: risk on Phi / risk on x in "
        "[0.8, 1.35]": blind_to_y,
        "those risks / risk of NW, of the mean and of zero, tuned alike <= 0.98": beside,
        "linear kernel: risk on Phi / risk on x <= 0.1": linear[1:3],
        "Gaussian kernel, trained blocks that see y: risk on Phi / risk on x >= 4": smooth[3],
    }
    return rows, checks


def first(model: Transformer) -> Transformer:
    """The first blocks of the model."""
    steps = jax.tree.map(lambda leaf: leaf[:DEPTH], model.weights.steps)
    return model.replace(weights=replace(model.weights, steps=steps), steps=DEPTH)


def blind(model: Transformer) -> Transformer:
    """The first blocks, which see no y, and a support as a query: phi(x) is one function of x."""
    blocks = model.weights.embedding["stream"].blocks
    return first(reading(model, y=0 * blocks["y"], support=blocks["query"]))


def on_features(below: Transformer | None, task: Task) -> Task:
    """The task with phi(x) for x."""
    if below is None:
        return task
    stream, n = run_with_cache(below, task, names=("stream",))[1]["stream"][-1], task.num_supports
    return task.replace(x=stream[1 : n + 1], x_query=stream[n + 1 :])


@every(static="name")
def measure(task: Task, below: Transformer, name: str) -> dict[str, jax.Array]:
    kernel, ridge = KERNELS[name]
    p = below.layout["stream"].width
    above = constructions.conjugate_gradient(kernel, num_features=p, ridge=ridge, steps=STEPS)
    prediction, cache = run_with_cache(stack(below, above), task)
    path = solvers.conjugate_gradient(kernel, on_features(below, task), ridge=ridge, steps=FIRST)
    slots = slot_gaps(cache, path, "alpha", "r", "prediction")

    def exactly(below: Transformer) -> jax.Array:
        return solvers.exact(kernel, on_features(below, task), ridge=ridge).prediction

    def slope(f: Callable[[Transformer], jax.Array]) -> jax.Array:
        loss = lambda below: jnp.mean((f(below) - task.y_query) ** 2)  # noqa: E731
        return ravel_pytree(jax.grad(loss)(below).weights.steps)[0]

    slopes = slope(lambda below: predict(stack(below, above), task)), slope(exactly)
    return {"slots": slots, "error": gap(prediction, exactly(below)), "gradient": gap(*slopes)}


@every(static=())
def risks(task: Task, below: Transformer | None) -> dict[str, jax.Array]:
    """The errors [task, bandwidth, ridge] of regression, and those of a smoother."""
    task = on_features(below, task)
    size = jnp.mean(jnp.sum(task.x**2, axis=1))
    error = lambda result: jnp.mean((result.prediction - task.y_query) ** 2)  # noqa: E731

    def of_ridges(kernel: Kernel, unit: Any = 1.0) -> jax.Array:
        regress = lambda ridge: error(solvers.exact(kernel, task, ridge=ridge))  # noqa: E731
        return jax.vmap(regress)(unit * jnp.asarray(RIDGES))

    widths = Gaussian.bandwidths(task.x)
    smooth = lambda width: error(solvers.nadaraya_watson(Gaussian(width), task))  # noqa: E731
    return {
        "Gaussian": jax.vmap(lambda width: of_ridges(Gaussian(width)))(widths),
        "linear": of_ridges(Linear(), size),
        "smoother": jax.vmap(smooth)(widths),
    }


def tuned(tasks: Any, others: Any) -> float:
    """The risk on the other tasks, with the bandwidth and ridge of least risk on the first."""
    return float(np.mean(others, axis=0).ravel()[np.argmin(np.mean(tasks, axis=0))])


CLAIM = Claim(
    statement="Let Phi be the features that lower layers compute of the supports. Layers above run "
    "conjugate gradient on A = K + ridge I, where K is the kernel matrix of Phi, and converge to "
    "f*, exact kernel ridge regression on Phi.",
    truth="icl_krr.stack builds such a model on random or trained blocks, and gradients reach the "
    "blocks. phi(x) is one function of x only if the blocks see no y, and see supports as queries: "
    "on Phi of the first blocks of a trained encoder as they are, regression with the Gaussian "
    "kernel has more than 10 times the risk that it has on x. On tasks from a Gaussian process, "
    "blocks that see no y gain nothing over x for the Gaussian kernel (0.95 to 1.2 times the risk, "
    "each with its best bandwidth and ridge). For the linear kernel the risk is less than a tenth.",
    source="Cawley 2025, docs/theory/route_a.md",
    quote="Let Phi in R^{k x p} be support features and phi(x) in R^p the query features from "
    "lower layers. [...] Then a Deep Transformer [...] can implement Conjugate Gradient steps on "
    "the kernel ridge regression objective",
    expected=HOLDS,
    required_inputs=TASK_FAMILY,
    run=run,
    config=Config(draws=5, tasks=96),
    quick=Config(draws=1, tasks=24),
    plot=Plot(x="blocks", y="risk", by=("kernel", "features")),
)
