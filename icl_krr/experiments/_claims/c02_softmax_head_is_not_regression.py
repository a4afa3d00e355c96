"""C2: one block with one softmax head computes exact KRR."""

from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np

from ... import Exponential, Transformer, constructions, predict, run_with_cache, solvers, theory
from ...constructions._assembly.choice import softmax_machine
from ...constructions._assembly.machine import Machine
from ...residual import ROLES, Read, join
from ...tasks import GaussianProcess, Task, sample
from .claim import CORRECTED, TASK_FAMILY, Checks, Claim, Config, at_least, check, stated
from .measuring import Plot, Rows, every, gap, tidy

NOISE = 0.1
HEADS = tuple(10.0 ** (k / 4) for k in range(-6, 5))  # their temperatures


def run(config: Config, key: jax.Array) -> tuple[Rows, Checks]:
    drawn = twins(jax.random.split(key, config.blocks), config)
    best, stacked, streams, predictions = map(np.asarray, drawn)
    # the best constant to add leaves errors of half their range
    errors, difference = predictions - best[None], abs(best[0] - best[1])
    axes = {"n": config.num_supports, "p": config.num_features}
    temperatures = jnp.asarray(config.temperatures)
    parts = [vars(measure(key, temperatures, pair, config)) for pair in product(*axes.values())]
    axes |= {"draw": range(config.draws), "temperature": config.temperatures}
    shape = [len(axis) for axis in axes.values()]
    results = {name: np.reshape([part[name] for part in parts], shape) for name in parts[0]}
    rows, tuned = tidy(axes, **results), np.moveaxis(results["gap, tuned"], 2, 0)
    share = np.median(results["exact rmse"] / results["rmse, tuned"])
    contrast = stated(difference)
    of_stack = check(abs(stacked - best), reading="a stack of such blocks")
    return rows, {
        "two contexts that one block cannot tell apart: difference of their f* <= 1e-12": contrast,
        "these two contexts, a stack of 4 steps of conjugate gradient: |f - f*| <= 1e-9": of_stack,
        "these two contexts, blocks with random values: difference of the query's residual "
        "stream after the block <= 1e-12": abs(streams[:, 0] - streams[:, 1]),
        "these two contexts, blocks with random MLPs and the best constant added: larger error >= "
        "half of the difference of f*": at_least(np.ptp(errors, axis=1) / 2, difference / 2),
        "head without MLP: median of |head - f*| / |f*| >= 0.1": np.median(results["gap"]),
        "head without MLP, best temperature for it: |head - f*| / |f*| >= 0.003": tuned,
        "smallest rank correlation between head and f* <= 0.9": np.min(results["rank correlation"]),
        "median of (RMSE of f*) / (RMSE of the head at its best temperature) <= 0.95": share,
    }


@partial(jax.jit, static_argnames="config")
def twins(keys: jax.Array, config: Config) -> tuple[jax.Array, ...]:
    """f* and the prediction of a stack, and what random blocks give the two contexts."""
    kernel, both = Exponential(), contexts()

    def once(key: jax.Array, task: Task) -> tuple[jax.Array, jax.Array]:
        model = block(key, kernel, config.width)
        prediction, cache = run_with_cache(model, task, names=(), points=("resid_post",))
        slots = cache[f"blocks.{model.depth - 1}.resid_post"].values()
        return jnp.concatenate([slot[-1] for slot in slots]), prediction[0]

    each = jax.vmap(jax.vmap(once, in_axes=(None, 0)), in_axes=(0, None))
    exact = jax.vmap(lambda task: solvers.exact(kernel, task, ridge=NOISE).prediction[0])
    stack = constructions.conjugate_gradient(kernel, num_features=3, ridge=NOISE, steps=4)
    return exact(both), jax.vmap(lambda task: predict(stack, task)[0])(both), *each(keys, both)


@every(1, 0, static=("sizes", "config"))
def measure(key: jax.Array, temperature: jax.Array, sizes: tuple[int, int], config: Config) -> dict:
    (n, p), kernel = sizes, Exponential(temperature)
    options = {"num_features": p, "num_supports": n, "num_queries": 64}
    process = GaussianProcess(kernel, **options, inputs="sphere")
    task, ridge = sample(key, process), NOISE * jnp.exp(1 / temperature)
    best = solvers.exact(kernel, task, ridge=ridge).prediction

    def head(temperature: jax.Array) -> jax.Array:
        model = constructions.nadaraya_watson(Exponential(temperature), num_features=p)
        return predict(model, task)

    rmse = lambda f: jnp.sqrt(jnp.mean((f - task.y_query) ** 2))  # noqa: E731
    prediction = head(temperature)
    heads = jax.lax.map(head, jnp.asarray(config.heads))
    sigma = theory.eigenvalues(kernel, task)
    return {
        "condition number": (sigma[-1] + ridge) / (sigma[0] + ridge),
        "gap": gap(prediction, best),
        "gap, tuned": jnp.min(jax.vmap(lambda f: gap(f, best))(heads)),
        "rank correlation": theory.rank_correlation(prediction, best),
        "rmse, tuned": jnp.min(jax.vmap(rmse)(heads)),
        "exact rmse": rmse(best),
    }


ANGLES = ((0.0, 90.0, 180.0, 270.0), (0.0, 20.0, 180.0, 200.0))  # in degrees
HEIGHT = 0.6


def contexts() -> Task:
    """Two contexts that one block with one softmax head cannot tell apart, as a batch.

    The query is e1, the four supports are (h, c cos t, c sin t) with h = 0.6 and c = 0.8, and y is
    1. All logits are equal, and the sums of cos t and of sin t are 0. So the weights, their
    normaliser and the mean of all values linear in (x, y, 1) agree. f* depends on the angles
    between supports.
    """
    angles = jnp.deg2rad(jnp.asarray(ANGLES))
    radius = jnp.sqrt(1 - HEIGHT**2)
    parts = jnp.full_like(angles, HEIGHT), radius * jnp.cos(angles), radius * jnp.sin(angles)
    x = jnp.stack(parts, axis=-1)
    query = jnp.broadcast_to(jnp.eye(3)[:1], (len(x), 1, 3))
    return Task(x=x, y=jnp.ones(x.shape[:2]), x_query=query)


def block(key: jax.Array, kernel: Exponential, width: int) -> Transformer:
    """Build a block with one softmax head, whose sink is the aggregator, and a random MLP."""
    m = softmax_machine(kernel, 3)
    shapes = (6, width), (width, width), (6, width), (width, 1)
    keys = jax.random.split(key, 4)
    of_values, of_mean, of_data, of_hidden = map(jax.random.normal, keys, shapes)
    mean = m.state("mean", ROLES, "weighted mean of the values", width=width)
    prediction = m.state("prediction", ROLES, "output of the MLP")

    def step() -> None:
        for term in m.terms:
            m.head(term.query, term.key, values(m, of_values), to=mean)
        hidden = mean @ of_mean + join(m.x, m.y, m.one, m.aggregator) @ of_data
        m.activate("gelu", hidden, m.one @ jnp.ones((1, width)), to=prediction, out=of_hidden)

    return m.transformer(step, steps=1, readout=prediction)


def values(m: Machine, matrix: jax.Array) -> Read:
    return join(m.x, m.y, m.one, m.aggregator) @ matrix


CLAIM = Claim(
    statement="One transformer block with one softmax head, whose queries and keys are U x, and "
    "an aggregator token computes f*, the prediction of exact kernel ridge regression with the "
    "exponential kernel of U x.",
    truth="Two contexts of four supports give the query the same residual stream after such a "
    "block, whatever its values (linear in x, y, 1 and the flag of the aggregator), but their f* "
    "are 1.132 and 1.045. So with every MLP, the block is wrong by at least 0.043 in one of the "
    "two contexts. The head computes the Nadaraya-Watson estimator, and a stack of such blocks "
    "converges to f* (C4): the proof of the theorem uses subsequent layers, and "
    "docs/theory/route_a.md of the same author states it of a stack. The counterexample is ours. "
    "The mean of values that are arbitrary functions of (x, y) can determine the whole context.",
    untested=("one block whose values are arbitrary nonlinear functions of (x, y)",),
    corrected="both",
    source="Cawley 2025, paper/sections/theory.md, theorem 1",
    quote="A Transformer block with a single softmax attention head (queries Q = U Phi, keys K = "
    "U Phi) and an aggregator token can implement the prediction function: f(x) = k~(x)^T (K~ + "
    "lambda I)^-1 y",
    expected=CORRECTED,
    required_inputs=TASK_FAMILY,
    run=run,
    config=Config(draws=4, blocks=50, width=16),
    axes=Config(
        num_supports=(16, 32, 64), num_features=(2, 8), temperatures=(0.3, 1.0, 3.0), heads=HEADS
    ),
    quick=Config(num_supports=(64,), num_features=(2,), heads=HEADS[:-2], blocks=5),
    plot=Plot(x="n", y="gap", by=("temperature",), logx=True),
)
