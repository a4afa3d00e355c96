"""C31: a softmax head as a consistent estimator, and the scale 1 / sqrt(d) of its logits."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ... import theory
from .claim import HOLDS, NOTHING, Claim, Verdict, at_least, at_most, judge, named, within
from .measuring import Plot, Rows, exponent, tidy
from .smoothers import PLACES, Inputs, laplacian, logit_gradients, queries, smoother

NOISE = 0.5


class Config(NamedTuple):
    """Settings; `sizes` are numbers of supports, `dimensions` those of queries and keys."""

    draws: int = 16
    sizes: tuple[int, ...] = (64, 128, 256, 512, 1024)
    bandwidths: tuple[float, ...] = (0.12, 0.15, 0.19, 0.24, 0.3, 0.38, 0.47)
    dimensions: tuple[int, ...] = (4, 16, 64, 256, 1024)
    num_supports: int = 64
    tasks: int = 20


def run(config: Config, key: jax.Array) -> tuple[Rows, Verdict]:
    parts = [*(estimator(place, config, key) for place in PLACES), gradients(config, key)]
    checks = {name: check for _, own in parts for name, check in own.items()}
    return [row for rows, _ in parts for row in rows], judge(*named(checks))


def estimator(place: Inputs, config: Config, key: jax.Array) -> tuple[Rows, dict]:
    d, h = place.dimension, np.array(config.bandwidths)
    fixed = place.p**-0.25  # the temperature 1 / sqrt(p), which is that of logits <x, z> / sqrt(p)
    keys = jax.random.split(key, config.draws)
    both = [smoother(keys, jnp.array([*h, fixed]), place, size) for size in config.sizes]
    error, squares = (np.array(part) for part in zip(*both, strict=True))
    mse = np.mean(error**2 + NOISE * squares, axis=(1, 3))
    bias = np.sqrt(np.mean(np.mean(error[-1, :, :-1], axis=0) ** 2, axis=-1))
    variance = NOISE * np.mean(squares[-1, :, :-1], axis=(0, 2))
    # both by theory, of many supports at every bandwidth, and at bandwidth 1
    curvature = jnp.sqrt(jnp.mean(laplacian(queries(place), place) ** 2))
    *expected, unit = [float(theory.smoothing_bias(curvature, scale)) for scale in (*h, 1.0)]
    noise = partial(theory.smoothing_variance, dimension=d, density=place.density, noise=NOISE)
    spread = np.array([noise(scale, num_supports=config.sizes[-1]) for scale in h])
    units = [noise(1.0, num_supports=n) for n in config.sizes]
    best = np.array([best_of(h, each[:-1]) for each in mse])
    axes = {"inputs": [place.name], "n": config.sizes}
    rows = tidy(axes | {"bandwidth": [*h, fixed]}, **{"mean squared error": mse[None]})
    at_best = {
        "best bandwidth": best[:, 0],
        "bandwidth by theory": [theory.best_bandwidth(unit, v, d) for v in units],
        "error at the best bandwidth": best[:, 1],
    }
    rows += tidy(axes, **at_best)
    by_theory = {"bias by theory": expected, "variance by theory": spread}
    last = axes | {"n": config.sizes[-1:], "bandwidth": h}
    rows += tidy(last, bias=bias, variance=variance, **by_theory)
    slope = partial(exponent, config.sizes)
    name, n, small = place.name, f"n = {config.sizes[-1]}", slice(2, 5)
    return rows, {
        f"{name}: error at the best bandwidth ~ n^a with a in -4 / (d + 4) +- 0.1, d = {d}": within(
            slope(best[:, 1]), -4 / (d + 4) - 0.1, -4 / (d + 4) + 0.1
        ),
        f"{name}: best bandwidth ~ n^a with a in -1 / (d + 4) +- 0.07, d = {d}": within(
            slope(best[:, 0]), -1 / (d + 4) - 0.07, -1 / (d + 4) + 0.07
        ),
        f"{name}: bias / (h^2 |Laplacian of f| / 2) in [0.7, 1.3], {n}, 0.19 <= h <= 0.3": within(
            bias[small] / np.array(expected[small]), 0.7, 1.3
        ),
        f"{name}: variance / (noise / (n density (2 sqrt(pi) h)^d)) in [0.85, 1.15], {n}": within(
            variance / spread, 0.85, 1.15
        ),
        f"{name}, temperature fixed at 1 / sqrt(p): error at {n} / error at n = "
        f"{config.sizes[0]} is >= 0.7": at_least(mse[-1, -1] / mse[0, -1], 0.7),
    }


def best_of(h: np.ndarray, mse: np.ndarray) -> tuple[float, float]:
    """Return the bandwidth of least error and the error, by a parabola through three points."""
    i = np.clip(np.argmin(mse), 1, len(h) - 2)
    a, b, c = np.polyfit(np.log(h[i - 1 : i + 2]), np.log(mse[i - 1 : i + 2]), 2)
    return float(np.exp(-b / (2 * a))), float(np.exp(c - b * b / (4 * a)))


def gradients(config: Config, key: jax.Array) -> tuple[Rows, dict]:
    grid = jax.random.split(key, config.tasks), jnp.array(config.dimensions, float)
    norms, squares = logit_gradients(*grid, config.num_supports, max(config.dimensions))
    size, variance = np.median(norms, axis=(0, 3)), np.mean(squares, axis=0)
    columns = {"norm of the gradient": size, "variance of the logits": variance}
    rows = tidy({"d": config.dimensions, "scale": ("1 / sqrt(d)", "1")}, **columns)
    first, last = config.dimensions[0], config.dimensions[-1]
    return rows, {
        "logits <x, z> / sqrt(d): variance, mean over d, in [0.85, 1.15] (our numbers)": within(
            np.mean(variance[:, 0]), 0.85, 1.15, stated=True
        ),
        f"logits <x, z> / sqrt(d): |d output / d logits| at d = {last} / at d = {first} in "
        "[0.8, 1.25]": within(size[-1, 0] / size[0, 0], 0.8, 1.25, stated=True),
        f"logits <x, z>: |d output / d logits|, median, at d = {last} / at d = {first} "
        "<= 0.1": at_most(size[-1, 1] / size[0, 1], 0.1, stated=True),
    }


CLAIM = Claim(
    title="a softmax head is a principled estimator; its scale 1 / sqrt(d) keeps gradients",
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
    told=NOTHING,
    run=run,
    quick=Config(draws=16, sizes=(64, 256), dimensions=(4, 1024), tasks=10),
    plot=Plot(x="n", y="error at the best bandwidth", by=("inputs",), logx=True),
)
