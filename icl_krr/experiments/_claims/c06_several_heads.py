"""C6: several heads are an ensemble of smoothers, with two limits."""

import jax
import jax.numpy as jnp
import numpy as np

from ... import Exponential, Gaussian, Linear, Mixture, constructions, predict, solvers, theory
from ..._core.linalg import eigh
from ...tasks import GaussianProcess, Task, sample
from .claim import HOLDS, NONE, Checks, Claim, Config, nearly, stated
from .measuring import Plot, Rows, every, exponent, largest_gap, project, sizes, tidy

INPUTS, SPHERES = ("sphere", "normal"), np.array([True, False])


def run(config: Config, key: jax.Array) -> tuple[Rows, Checks]:
    results = measure(key, SPHERES, np.asarray(config.temperatures), config)
    limits = results.nearest, results.top, np.mean(results.y, axis=2, keepdims=True)
    to_nearest, to_top, to_mean = (abs(results.head - limit[:, :, None]) for limit in limits)
    axes = {"draw": range(config.draws), "inputs": INPUTS, "temperature": config.temperatures}
    lines = {"to the nearest": to_nearest, "to the mean": to_mean, "bound": results.mean_bound}
    rows = tidy(axes, **{name: line.mean(-1) for name, line in lines.items()})
    scale = np.ptp(results.y, axis=2)[:, :, None]
    nearest, cold = (distance[:, :, 0] / scale for distance in (to_nearest, to_top))
    wide = gap_in_dimensions(key, np.asarray(config.dimensions), config)
    fall = exponent(config.dimensions, np.median(wide, axis=(0, 2)))
    x, z = np.asarray(jax.random.normal(key, (2, 20000, config.num_features)))
    variance = np.var(np.sum(x * z, axis=-1) / np.sqrt(config.num_features))
    of_mean = nearly(to_mean, results.mean_bound)
    hot = stated(to_mean[:, :, -1] / scale)
    return rows, {
        "|several heads - mixture of their smoothers| / |mixture| <= 1e-12": stated(results.heads),
        "temperature 1e-7: |head - y of the support with the largest score| / range "
        "of y <= 0.01 (our number)": stated(cold),
        "temperature 1e4: |head - mean of y| / range of y <= 0.01 (our number)": hot,
        "temperature 1, x on the unit sphere in 256 dimensions: |head - mean "
        "of y| / range of y <= 0.02 (our number)": stated(wide[:, -1]),
        "the same in p dimensions: median "
        "of |head - mean of y| / range of y ~ p^a with a in [-0.7, -0.3]": fall,
        "temperature 1e-7, x on a sphere: "
        "|head - y of the nearest support| / range of y <= 0.01": nearest[:, 0],
        "temperature 1e-7, normal x: share of queries with |head - y of the nearest "
        "support| / range of y > 0.01 is >= 0.1": np.mean(nearest[:, 1] > 0.01),
        "change of the prediction if supports are permuted <= 1e-12": results.turned,
        "exponential kernel: -(smallest eigenvalue "
        "of K) / (largest eigenvalue of K) <= 1e-12": results.negative,
        "|head - y of the largest logit| <= (range of y) m / (1 + m), "
        "m = (n - 1) exp(second largest logit - largest logit)": nearly(to_top, results.top_bound),
        "|head - mean of y| <= (range of y) tanh((range of the logits) / 4)": of_mean,
        "variance of <x, z> / sqrt(p) within [0.95, 1.05], features of unit variance": variance,
    }


@every(1, 1)
def gap_in_dimensions(key: jax.Array, p: jax.Array, config: Config) -> jax.Array:
    """Return |head - mean of y| / range of y, for inputs on the unit sphere [draw, p, query]."""
    n, most = config.num_supports, max(config.dimensions)
    at, out = jax.random.split(key)
    # the other features are 0, so that one compiled program serves every p
    x = jax.random.normal(at, (n + config.num_queries, most))
    x = jnp.where(jnp.arange(most)[None] < p, x, 0)
    task = Task(x=x[:n], y=jax.random.normal(out, (n,)), x_query=x[n:])
    model = constructions.nadaraya_watson(Exponential(1.0), num_features=most)
    head = predict(model, project(task, jnp.asarray(True)))
    return jnp.abs(head - jnp.mean(task.y)) / jnp.ptp(task.y)


@every(1, 1)
def measure(key: jax.Array, sphere: jax.Array, temperatures: jax.Array, config: Config) -> dict:
    """Outputs of heads and their theoretical values [draw, inputs, ...], and bounds on both."""
    p = config.num_features
    at, order, weigh, subspace = jax.random.split(key, 4)
    task = project(sample(at, GaussianProcess(Linear(), **sizes(config))), sphere)
    weights = jax.random.uniform(weigh, (3,), minval=0.1)
    U = jax.random.normal(subspace, (3, 2, p)) / jnp.sqrt(p)
    kernels = (Exponential(0.5, U[0]), Gaussian(1.0, U[1]), Exponential(2.0, U[2]))
    ensemble = constructions.nadaraya_watson(Mixture(kernels, weights), num_features=p)
    heads = predict(ensemble, task)
    smoothers = [solvers.nadaraya_watson(kernel, task).prediction for kernel in kernels]
    mixed = sum(w * f for w, f in zip(weights, smoothers, strict=True)) / jnp.sum(weights)
    turned = jax.random.permutation(order, config.num_supports)
    moved = task.replace(x=task.x[turned], y=task.y[turned])
    sigma = eigh(Exponential(0.5)(task.x, task.x))[0]

    def head(temperature: jax.Array) -> jax.Array:
        model = constructions.nadaraya_watson(Exponential(temperature), num_features=p)
        return predict(model, task)

    products = Linear()(task.x_query, task.x)
    distances = jnp.sum((task.x_query[:, None] - task.x[None]) ** 2, axis=-1)
    highest = jnp.sort(products, axis=1)
    spread, apart = (highest[None, :, -1] - highest[None, :, place] for place in (0, -2))
    return {
        "heads": largest_gap(heads, mixed),
        "turned": largest_gap(predict(ensemble, moved), heads),
        "negative": -sigma[0] / sigma[-1],
        "head": jax.lax.map(head, temperatures),
        "nearest": task.y[jnp.argmin(distances, axis=1)],
        "top": task.y[jnp.argmax(products, axis=1)],
        "mean_bound": theory.mean_limit_bound(spread / temperatures[:, None], task.y),
        "top_bound": theory.nearest_limit_bound(apart / temperatures[:, None], task.y),
        "y": task.y,
    }


CLAIM = Claim(
    statement="Multi-head softmax attention is an ensemble of Nadaraya-Watson estimators, one per "
    "head, each in its own projection of the inputs. At a low temperature a head returns the "
    "output of one support. At a high temperature, or if the inner products of the inputs "
    "concentrate around 0, as in high dimensions, it returns the mean of the outputs.",
    truth="In addition: the one support is the support with the largest score, here the largest "
    "inner product. It is the nearest support for inputs on a sphere, but often another one for "
    "normal inputs. At every temperature there is a proven bound on the distance of the head to "
    "each of the two limits. On a sphere in p dimensions, the distance to the mean falls as "
    "1 / sqrt(p).",
    source="Fokoue 2026, abstract; Cawley 2025, paper/workshop_paper.md, section 4",
    quote="we prove that MHA is a structured ensemble of H NW estimators, each operating in a "
    "distinct learned projection subspace of the key space. | Low temp (tau=0.05) ... 1-NN "
    "collapse | In high dimensions, inner products <x_i, x_j> concentrate around 0 for random "
    "features. Then exp(0/tau) = 1 for all pairs, and softmax weights become uniform: w_i ~ 1/n. "
    "The prediction collapses to y-bar",
    expected=HOLDS,
    required_inputs=NONE,
    run=run,
    # `temperatures` are ascending, and `dimensions` are numbers of features.
    config=Config(draws=50, num_supports=32, num_features=4, num_queries=8),
    axes=Config(temperatures=(1e-7, 1e-2, 0.1, 1.0, 10.0, 100.0, 1e4), dimensions=(4, 16, 64, 256)),
    quick=Config(draws=5, temperatures=(1e-7, 1.0, 1e4)),
    plot=Plot(x="temperature", y="to the mean", by=("inputs",), bound="bound", logx=True),
)
