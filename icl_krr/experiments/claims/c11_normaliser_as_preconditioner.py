"""C11: the softmax normaliser acts as a preconditioner, and a sink shifts the normaliser."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from ... import Gaussian, constructions, predict, run_with_cache
from ...numerics import matmul
from ...tasks import GaussianProcess, sample
from .claim import HOLDS, TASK, Claim, Verdict, at_most, judge, named
from .measuring import Plot, Rows, every, largest_gap, sizes, softmax, tidy


class Config(NamedTuple):
    draws: int = 50
    num_supports: int = 48
    num_features: int = 3
    lengthscales: tuple[float, ...] = (0.3, 1.0, 3.0)
    sinks: tuple[float, ...] = (1e-3, 1.0, 1e3)


def run(config: Config, key: jax.Array) -> tuple[Rows, Verdict]:
    grid = jnp.asarray(config.lengthscales), jnp.asarray(config.sinks)
    head, sink, shifted = measure(jax.random.split(key, config.draws), *grid, config)
    rows = tidy(
        {"draw": range(config.draws), "lengthscale": config.lengthscales, "sink": config.sinks},
        head=head[..., None],
        weight=sink,
        shifted=shifted,
    )
    checks = {
        "one head: |head - D^-1 G y| / |y|_max <= 1e-12": at_most(head, 1e-12, stated=True),
        "sink of the first block: |alpha - eta (D + c I)^-1 y| / |alpha| <= 1e-10": at_most(
            sink, 1e-10
        ),
        "head of the second block: gap to (D + c I)^-1 G alpha <= 1e-10": at_most(shifted, 1e-10),
    }
    return rows, judge(*named(checks))


@every(1, 1)
def measure(
    key: jax.Array, lengthscale: jax.Array, sinks: jax.Array, config: Config
) -> tuple[jax.Array, ...]:
    p, ridge, eta = config.num_features, 1e-3, 1.3
    process = GaussianProcess(Gaussian(), **sizes(config), num_queries=8)
    task, kernel = sample(key, process), Gaussian(lengthscale)
    options = {"ridge": ridge, "steps": 2, "step_size": eta, "attention": softmax(kernel, task)}
    G, g = kernel(task.x, task.x), kernel(task.x_query, task.x)
    smooth = matmul(g, task.y) / jnp.sum(g, axis=1)
    found = predict(constructions.nadaraya_watson(kernel, num_features=p), task)
    head = jnp.max(jnp.abs(found - smooth)) / jnp.max(jnp.abs(task.y))

    def with_sink(c: jax.Array) -> tuple[jax.Array, jax.Array]:
        model = constructions.richardson(kernel, num_features=p, sink=c, **options)
        alpha = run_with_cache(model, task, names=("alpha",))[1]["alpha"]
        sums = jnp.sum(G, axis=1) + c
        first = eta * task.y / sums
        # the contribution of the head to the second step
        rest = first + eta * (task.y - ridge * first) / sums - alpha[2]
        return largest_gap(alpha[1], first), largest_gap(rest / eta, matmul(G, first) / sums)

    return head, *jax.lax.map(with_sink, sinks)


CLAIM = Claim(
    title="a sink preconditions a head by the softmax normaliser",
    statement="A softmax head with keys (x, -|x|^2 / 2) multiplies its values by D^-1 G. Here G "
    "is the Gaussian kernel matrix with lengthscale l, and D is the diagonal matrix of the row "
    "sums of G.",
    truth="In addition, a sink token with the logit log c + |x|^2 / (2 l^2) changes D^-1 G to (D "
    "+ c I)^-1 G.",
    source="Yan et al. 2026, abstract",
    quote="softmax attention produces a row-normalized Gaussian-kernel operator needed for "
    "cross-token interactions",
    expected=HOLDS,
    told=TASK,
    run=run,
    quick=Config(draws=5),
    plot=Plot(x="sink", y="shifted", by=("lengthscale",), logx=True),
)
