"""C31: a softmax head is a principled estimator; its scale 1 / sqrt(d) keeps gradients."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ... import Exponential, Gaussian, Task, Transformer, constructions, predict, theory
from ...probes import hat_matrix
from .claim import HOLDS, NONE, Checks, Claim, Config, stated, within
from .measuring import Plot, Rows, every, exponent, tidy

NOISE = 0.5
QUERIES = 16


class Inputs(NamedTuple):
    """Where the inputs lie: p features, a set of this dimension, and their density on it."""

    name: str
    p: int
    dimension: int
    density: float
    kernel: type


SPHERE = Inputs("sphere, exponential kernel", 3, 2, 1 / (4 * np.pi), Exponential)
LINE = Inputs("line, Gaussian kernel", 1, 1, 1 / 4, Gaussian)
PLACES = (SPHERE, LINE)


def run(config: Config, key: jax.Array) -> tuple[Rows, Checks]:
    parts = [*(estimator(place, config, key) for place in PLACES), gradients(config, key)]
    checks = {name: check for _, part in parts for name, check in part.items()}
    return [row for rows, _ in parts for row in rows], checks


def estimator(place: Inputs, config: Config, key: jax.Array) -> tuple[Rows, dict]:
    d, h = place.dimension, np.array(config.bandwidths)
    fixed = place.p**-0.25  # the temperature 1 / sqrt(p), which is that of logits <x, z> / sqrt(p)
    keys = jax.random.split(key, config.draws)
    both = [smoother(keys, np.array([*h, fixed]), place, size) for size in config.sizes]
    error, squares = (np.array(part) for part in zip(*both, strict=True))
    mse = np.mean(error**2 + NOISE * squares, axis=(1, 3))
    bias = np.sqrt(np.mean(np.mean(error[-1, :, :-1], axis=0) ** 2, axis=-1))
    variance = NOISE * np.mean(squares[-1, :, :-1], axis=(0, 2))
    # both by theory, of many supports at every bandwidth, and at bandwidth 1
    curvature = np.sqrt(np.mean(laplacian(np.asarray(queries(place)), place) ** 2))
    *expected, unit = [float(theory.smoothing_bias(curvature, scale)) for scale in (*h, 1.0)]
    noise = partial(theory.smoothing_variance, dimension=d, density=place.density, noise=NOISE)
    expected_variance = np.array([noise(scale, num_supports=config.sizes[-1]) for scale in h])
    units = [noise(1.0, num_supports=n) for n in config.sizes]
    best = np.array([best_of(h, each[:-1]) for each in mse])
    axes = {"inputs": [place.name], "n": config.sizes}
    rows = tidy(axes | {"bandwidth": [*h, fixed]}, **{"mean squared error": mse[None]})
    by_theory = np.array([theory.best_bandwidth(unit, v, d) for v in units])
    columns = {"best bandwidth": best[:, 0], "bandwidth by theory": by_theory}
    rows += tidy(axes, **columns, **{"error at the best bandwidth": best[:, 1]})
    by_theory = {"bias by theory": expected, "variance by theory": expected_variance}
    last = axes | {"n": config.sizes[-1:], "bandwidth": h}
    rows += tidy(last, bias=bias, variance=variance, **by_theory)
    slope, share = partial(exponent, config.sizes), variance / expected_variance
    name, n, small = place.name, f"n = {config.sizes[-1]}", slice(2, 5)
    errors = within(slope(best[:, 1]), -4 / (d + 4) - 0.1, -4 / (d + 4) + 0.1)
    of_bandwidth = within(slope(best[:, 0]), -1 / (d + 4) - 0.07, -1 / (d + 4) + 0.07)
    of_bias = within(bias[small] / np.array(expected[small]), 0.7, 1.3)
    return rows, {
        f"{name}: error at the best bandwidth ~ n^a with a in -4 / (d + 4) +- 0.1, d = {d}": errors,
        f"{name}: best bandwidth ~ n^a with a in -1 / (d + 4) +- 0.07, d = {d}": of_bandwidth,
        f"{name}: bias / (h^2 |Laplacian of f| / 2) in [0.7, 1.3], {n}, 0.19 <= h <= 0.3": of_bias,
        f"{name}: variance / (noise / (n density (2 sqrt(pi) h)^d)) in [0.85, 1.15], {n}": share,
        f"{name}, temperature fixed at 1 / sqrt(p): error at {n} / error at n = "
        f"{config.sizes[0]} is >= 0.7": mse[-1, -1] / mse[0, -1],
    }


def best_of(h: np.ndarray, mse: np.ndarray) -> tuple[float, float]:
    """Return the bandwidth of least error and the error, by a parabola through three points."""
    i = np.clip(np.argmin(mse), 1, len(h) - 2)
    a, b, c = np.polyfit(np.log(h[i - 1 : i + 2]), np.log(mse[i - 1 : i + 2]), 2)
    return float(np.exp(-b / (2 * a))), float(np.exp(c - b * b / (4 * a)))


def gradients(config: Config, key: jax.Array) -> tuple[Rows, dict]:
    grid = jax.random.split(key, config.tasks), np.array(config.dimensions, float)
    norms, squares = logit_gradients(*grid, config.num_supports, max(config.dimensions))
    size, variance = np.median(norms, axis=(0, 3)), np.mean(squares, axis=0)
    columns = {"norm of the gradient": size, "variance of the logits": variance}
    rows = tidy({"d": config.dimensions, "scale": ("1 / sqrt(d)", "1")}, **columns)
    first, last = config.dimensions[0], config.dimensions[-1]
    unit = stated(np.mean(variance[:, 0]))
    return rows, {
        "logits <x, z> / sqrt(d): variance, mean over d, in [0.85, 1.15] (our numbers)": unit,
        f"logits <x, z> / sqrt(d): |d output / d logits| at d = {last} / at d = {first} in "
        "[0.8, 1.25]": stated(size[-1, 0] / size[0, 0]),
        f"logits <x, z>: |d output / d logits|, median, at d = {last} / at d = {first} "
        "<= 0.1": stated(size[-1, 1] / size[0, 1]),
    }


def queries(place: Inputs) -> jax.Array:
    if place is LINE:
        return jnp.linspace(-1, 1, QUERIES)[:, None]
    return points(jax.random.key(0), QUERIES, place)


def points(key: jax.Array, count: int, place: Inputs) -> jax.Array:
    if place is LINE:
        return jax.random.uniform(key, (count, 1), minval=-2.0, maxval=2.0)
    x = jax.random.normal(key, (count, place.p))
    return x / jnp.linalg.norm(x, axis=1, keepdims=True)


def regression(x: jax.Array) -> jax.Array:
    return jnp.cos(2 * x[:, 0])


def laplacian(x: np.ndarray, place: Inputs) -> np.ndarray:
    """The Laplacian of `regression` on the line or on the sphere."""
    u = x[:, 0]
    if place is LINE:
        return -4 * np.cos(2 * u)
    return -4 * (1 - u * u) * np.cos(2 * u) + 2 * place.dimension * u * np.sin(2 * u)


def weights(model: Transformer, task: Task) -> jax.Array:
    """The weights [q, n] with which a head averages y."""
    return hat_matrix(lambda task: predict(model, task)[None], task)[0]


@every(1, 1, static=("place", "size"))
def smoother(key: jax.Array, bandwidth: jax.Array, place: Inputs, size: int) -> tuple:
    """Return errors without noise, and the sums of squared weights [draw, bandwidth, query]."""
    x, x_query = points(key, size, place), queries(place)
    task = Task(x=x, y=regression(x), x_query=x_query)
    kernel = place.kernel.of_temperature(bandwidth**2)
    model = constructions.nadaraya_watson(kernel, num_features=place.p)
    return predict(model, task) - regression(x_query), jnp.sum(weights(model, task) ** 2, axis=1)


@every(1, 1, static=("size", "most"))
def logit_gradients(key: jax.Array, d: jax.Array, size: int, most: int) -> tuple:
    """Norms [draw, d, scale, query] of the gradients w_j (y_j - f), and variances of the logits."""
    x = jax.random.normal(key, (size + QUERIES, most))
    # features after the d-th are zero, so that all d share one program
    x = jnp.where((jnp.arange(most, dtype=x.dtype) < d)[None], x, 0)
    y = jax.random.normal(jax.random.fold_in(key, 1), (size,))
    task = Task(x=x[:size], y=y, x_query=x[size:])

    def head(temperature: jax.Array) -> tuple[jax.Array, jax.Array]:
        kernel = Exponential(temperature)
        model = constructions.nadaraya_watson(kernel, num_features=most)
        slopes = weights(model, task) * (y[None] - predict(model, task)[:, None])
        return jnp.linalg.norm(slopes, axis=1), jnp.mean(kernel.log(task.x_query, task.x) ** 2)

    return jax.lax.map(head, jnp.stack([jnp.sqrt(d), jnp.ones(())]))


CLAIM = Claim(
    statement="A softmax head is a kernel smoother, a principled estimator. For queries and keys "
    "with d independent entries of variance 1, the dot products have the variance d. If d is "
    "large, they push the softmax into regions where it has extremely small gradients. The scale 1 "
    "/ sqrt(d) counteracts this.",
    untested=("random features make attention linear in time (C21 and C46 test this)",),
    truth="In addition: the head is a consistent estimator only if its temperature falls with the "
    "number n of supports. Its bandwidth h is the square root of the temperature. For a smooth "
    "regression function f on a set of dimension d, noisy supports and uniform density, the bias "
    "is h^2 (Laplacian of f) / 2, and the variance falls as 1 / (n h^d). The best bandwidth falls "
    "as n^(-1 / (d + 4)), and the mean squared error at it as n^(-4 / (d + 4)). At a fixed "
    "temperature, such as that of the scale 1 / sqrt(d), the bias stays.",
    source="TheoremPath 2026, why this matters; Vaswani et al. 2017, section 3.2.1",
    quote="Recognizing this connection provides three benefits: it explains why attention works "
    "(kernel smoothing is a well-studied and principled estimator), it clarifies the role of the "
    "sqrt(d) scaling factor, and it motivates linear-time attention approximations via random "
    "features. | We suspect that for large values of d_k, the dot products grow large in "
    "magnitude, pushing the softmax function into regions where it has extremely small gradients. "
    "To counteract this effect, we scale the dot products by 1 / sqrt(d_k).",
    expected=HOLDS,
    required_inputs=NONE,
    run=run,
    # `sizes` are numbers of supports, `dimensions` those of queries and keys.
    config=Config(draws=16, num_supports=64, tasks=20),
    axes=Config(
        sizes=(64, 128, 256, 512, 1024),
        bandwidths=(0.12, 0.15, 0.19, 0.24, 0.3, 0.38, 0.47),
        dimensions=(4, 16, 64, 256, 1024),
    ),
    quick=Config(draws=8, sizes=(64, 256), dimensions=(4, 256), tasks=10),
    plot=Plot(x="n", y="error at the best bandwidth", by=("inputs",), logx=True),
)
