"""C1: one softmax head computes the Nadaraya-Watson estimator."""

import jax
import jax.numpy as jnp

from ... import Exponential, constructions, predict, solvers
from ...tasks import GaussianProcess, sample
from .claim import HOLDS, NONE, Checks, Claim, Config, stated
from .measuring import Plot, Rows, every, sizes, tidy


def run(config: Config, key: jax.Array) -> tuple[Rows, Checks]:
    gap = measure(key, jnp.asarray(config.temperatures), config)
    rows = tidy({"draw": range(config.draws), "temperature": config.temperatures}, gap=gap)
    return rows, {"|head - Nadaraya-Watson| / |y|_max <= 1e-12": stated(gap)}


@every(1, 1)
def measure(key: jax.Array, temperature: jax.Array, config: Config) -> jax.Array:
    process = GaussianProcess(Exponential(), **sizes(config), num_queries=8)
    at, model_key = jax.random.split(key)
    U = jax.random.normal(model_key, (2, config.num_features))
    task, kernel = sample(at, process), Exponential(temperature, U)
    head = constructions.nadaraya_watson(kernel, num_features=config.num_features)
    smooth = solvers.nadaraya_watson(kernel, task).prediction
    return jnp.max(jnp.abs(predict(head, task) - smooth)) / jnp.max(jnp.abs(task.y))


CLAIM = Claim(
    statement="One softmax head with queries U x, keys U x and values y, where U is a matrix, "
    "computes the Nadaraya-Watson estimator.",
    source="Cawley 2025, paper/workshop_paper.md, section 4",
    quote="Softmax attention computes f(x_q) = sum_i w_i y_i where w_i = exp(x_q^T x_i / tau) / Z. "
    "This is a Nadaraya-Watson estimator with an exponential kernel.",
    expected=HOLDS,
    required_inputs=NONE,
    run=run,
    config=Config(draws=200, num_supports=64, num_features=3),
    axes=Config(temperatures=(0.1, 0.3, 1.0, 3.0, 10.0)),
    quick=Config(draws=20),
    plot=Plot(x="temperature", y="gap", logx=True),
)
