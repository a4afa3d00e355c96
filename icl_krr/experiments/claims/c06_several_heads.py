"""C6: several heads, and one head at very low and very high temperature."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from ... import constructions, solvers, theory
from ...kernels import Exponential, Gaussian, Linear, Mixture
from ...linalg import eigh
from ...tasks import GaussianProcess, Task, sample
from ...transformer import predict
from ..shared.draws import draws, project
from ..shared.rows import Plot, Rows, tidy
from .claim import CORRECTED, NOTHING, Claim, Verdict, compare, judge, within

INPUTS = ("sphere", "normal")


@dataclass(frozen=True)
class Config:
    draws: int = 50
    num_supports: int = 32
    num_features: int = 4
    num_queries: int = 8
    temperatures: tuple[float, ...] = (1e-4, 1e-2, 0.1, 1.0, 10.0, 100.0, 1e4)


def run(config: Config, key: jax.Array) -> tuple[Rows, Verdict]:
    keys, temperatures = draws(key, config.draws), jnp.asarray(config.temperatures)
    spheres = jnp.array([name == "sphere" for name in INPUTS])
    found = measure(keys, temperatures, spheres, config)
    heads, permuted, psd, head, nearest, top, spread, gap, y = found
    ends, tops = (
        np.asarray(jax.vmap(jax.vmap(bound))(logits, y))
        for bound, logits in ((theory.mean_limit_bound, spread), (theory.nearest_limit_bound, gap))
    )
    mean = np.mean(y, axis=2)[:, :, None]
    to_nearest, to_top, to_mean = (abs(head - f[:, :, None]) for f in (nearest, top, mean))
    rows = tidy(
        {"draw": range(config.draws), "inputs": INPUTS, "temperature": config.temperatures},
        **{
            "to the nearest": to_nearest.mean(-1),
            "to the mean": to_mean.mean(-1),
            "bound": ends.mean(-1),
        },
    )
    p = config.num_features
    variance = np.asarray(logit_variance(key, p))
    cold = to_nearest[:, :, 0] / np.ptp(y, axis=2)[:, :, None]
    return rows, judge(
        compare(
            "temperature 1e-4, normal x: |head - y of the nearest support| / range of y <= 0.01",
            cold[:, INPUTS.index("normal")],
            0.01,
            stated=True,
        ),
        compare("|several heads - mixture of their smoothers| <= 1e-12", heads, 1e-12),
        compare("change of the prediction if supports are permuted <= 1e-12", permuted, 1e-12),
        compare(
            "exponential kernel: -(smallest eigenvalue of K) / (largest eigenvalue of K) <= 1e-12",
            psd,
            1e-12,
        ),
        compare(
            "|head - y of the largest logit| <= (range of y) m / (1 + m), m = (n - 1) "
            "exp(second largest logit - largest logit)",
            to_top,
            tops,
            slack=1e-6,
        ),
        compare(
            "|head - mean of y| <= (range of y) tanh((range of the logits) / 4)",
            to_mean,
            ends,
            slack=1e-6,
        ),
        within(
            "variance of <x, z> / sqrt(p) within [0.95, 1.05], features of unit variance",
            variance,
            0.95,
            1.05,
        ),
        amended=True,
    )


def logit_variance(key: jax.Array, p: int) -> jax.Array:
    x, z = jax.random.normal(key, (2, 20000, p))
    return jnp.var(jnp.sum(x * z, axis=-1) / jnp.sqrt(p))


@partial(jax.jit, static_argnames="config")
def measure(keys: jax.Array, temperatures: jax.Array, spheres: jax.Array, config: Config) -> tuple:
    """Return the outputs of heads and their theoretical values [draw, inputs, ...]."""
    p = config.num_features
    process = GaussianProcess(
        Linear(),
        num_features=p,
        num_supports=config.num_supports,
        num_queries=config.num_queries,
    )

    def gap(a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.max(jnp.abs(a - b)) / jnp.max(jnp.abs(b))

    def once(key: jax.Array, sphere: jax.Array) -> tuple:
        at, order, weigh = jax.random.split(key, 3)
        task = project(sample(at, process), sphere)
        weights = jax.random.uniform(weigh, (3,), minval=0.1)
        kernels = (Exponential(0.5), Gaussian(1.0), Exponential(2.0, jnp.eye(2, p)))
        mixture = Mixture(kernels, weights)
        heads = predict(constructions.nadaraya_watson(mixture, num_features=p), task)
        smoothers = [solvers.nadaraya_watson(kernel, task).prediction for kernel in kernels]
        mixed = sum(w * f for w, f in zip(weights, smoothers, strict=True)) / jnp.sum(weights)
        turned = jax.random.permutation(order, config.num_supports)
        moved = Task(x=task.x[turned], y=task.y[turned], x_query=task.x_query)
        sigma = eigh(Exponential(0.5)(task.x, task.x))[0]

        def head(temperature: jax.Array) -> jax.Array:
            model = constructions.nadaraya_watson(Exponential(temperature), num_features=p)
            return predict(model, task)

        products = Linear()(task.x_query, task.x)
        distances = jnp.sum((task.x_query[:, None] - task.x[None]) ** 2, axis=-1)
        highest = jnp.sort(products, axis=1)
        return (
            gap(heads, mixed),
            gap(predict(constructions.nadaraya_watson(mixture, num_features=p), moved), heads),
            -sigma[0] / sigma[-1],
            jax.lax.map(head, temperatures),
            task.y[jnp.argmin(distances, axis=1)],
            task.y[jnp.argmax(products, axis=1)],
            (highest[:, -1] - highest[:, 0])[None] / temperatures[:, None],
            (highest[:, -1] - highest[:, -2])[None] / temperatures[:, None],
            task.y,
        )

    return jax.lax.map(lambda key: jax.lax.map(lambda sphere: once(key, sphere), spheres), keys)


CLAIM = Claim(
    title="several heads are a mixture of smoothers, with two limits",
    statement="Multi-head softmax attention is a mixture of Nadaraya-Watson smoothers. For "
    "temperature -> 0 a head returns the output of the nearest support. For temperature -> "
    "infinity it returns the mean of the outputs.",
    truth="For temperature -> 0 a head returns the output of the support with the largest "
    "inner product. This is always the nearest support only if the inputs lie on a sphere. The "
    "mixture and the limit for temperature -> infinity hold as stated. At every temperature there "
    "is a proven bound on the distance of the head to each of the two limits.",
    corrected="ours",
    source="Cawley 2025, TODO",
    quote="TODO",
    expected=CORRECTED,
    told=NOTHING,
    run=run,
    config=Config(),
    quick=Config(draws=5, temperatures=(1e-4, 1.0, 1e4)),
    plot=Plot(x="temperature", y="to the mean", by=("inputs",), bound="bound", logx=True),
)
