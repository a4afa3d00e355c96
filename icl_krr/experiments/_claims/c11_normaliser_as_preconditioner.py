"""C11: a sink preconditions a head by the softmax normaliser."""

import jax
import jax.numpy as jnp

from ... import Gaussian, constructions, predict, run_with_cache
from ..._core.numerics import matmul
from ...tasks import GaussianProcess, sample
from .claim import HOLDS, THIS_TASK, Checks, Claim, Config, stated
from .measuring import Plot, Rows, every, largest_gap, sizes, softmax, tidy


def run(config: Config, key: jax.Array) -> tuple[Rows, Checks]:
    grid = jnp.asarray(config.lengthscales), jnp.asarray(config.sinks)
    head, sink, shifted = measure(key, *grid, config)
    axes = {"draw": range(config.draws), "lengthscale": config.lengthscales, "sink": config.sinks}
    rows = tidy(axes, head=head[..., None], weight=sink, shifted=shifted)
    return rows, {
        "one head: |head - D^-1 G y| / |y|_max <= 1e-12": stated(head),
        "sink of the first block: |alpha - eta (D + c I)^-1 y| / |alpha| <= 1e-10": sink,
        "head of the second block: gap to (D + c I)^-1 G alpha <= 1e-10": shifted,
    }


@every(1, 1)
def measure(key: jax.Array, lengthscale: jax.Array, sinks: jax.Array, config: Config) -> tuple:
    p, ridge, eta = config.num_features, 1e-3, 1.3
    process = GaussianProcess(Gaussian(), **sizes(config), num_queries=8)
    task, kernel = sample(key, process), Gaussian(lengthscale)
    options = {"ridge": ridge, "steps": 2, "step_size": eta, "attention": softmax(kernel, task)}
    G, g = kernel(task.x, task.x), kernel(task.x_query, task.x)
    smooth = matmul(g, task.y) / jnp.sum(g, axis=1)
    prediction = predict(constructions.nadaraya_watson(kernel, num_features=p), task)
    head = jnp.max(jnp.abs(prediction - smooth)) / jnp.max(jnp.abs(task.y))

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
    statement="A softmax head with keys (x, -|x|^2 / 2) multiplies its values by D^-1 G. Here G "
    "is the Gaussian kernel matrix with lengthscale l, and D is the diagonal matrix of the row "
    "sums of G.",
    truth="In addition, a sink token with the logit log c + |x|^2 / (2 l^2) changes D^-1 G to (D "
    "+ c I)^-1 G.",
    source="Yan et al. 2026, abstract",
    quote="softmax attention produces a row-normalized Gaussian-kernel operator needed for "
    "cross-token interactions",
    expected=HOLDS,
    required_inputs=THIS_TASK,
    run=run,
    config=Config(draws=50, num_supports=48, num_features=3),
    axes=Config(lengthscales=(0.3, 1.0, 3.0), sinks=(1e-3, 1.0, 1e3)),
    quick=Config(draws=5),
    plot=Plot(x="sink", y="shifted", by=("lengthscale",), logx=True),
)
