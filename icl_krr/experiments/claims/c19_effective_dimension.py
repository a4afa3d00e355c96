"""C19: the effective dimension as the number of feature channels that a model needs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from ... import constructions, solvers, theory
from ...kernels import Linear
from ...sketches import best
from ...tasks import LinearRegression, sample
from ...transformer import predict
from ..shared.draws import draws
from ..shared.rows import Plot, Rows, tidy
from ..shared.spectra import SPECTRA
from .claim import CORRECTED, TASK, Claim, Verdict, at_least, compare, judge, within


@dataclass(frozen=True)
class Config:
    draws: int = 20
    num_supports: int = 80
    num_features: int = 40
    num_queries: int = 64
    noise: float = 0.1
    widths: tuple[int, ...] = (1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 28, 32, 36)
    dimension: float = 8.0
    spectra: tuple[str, ...] = tuple(SPECTRA)


def run(config: Config, key: jax.Array) -> tuple[Rows, Verdict]:
    widths, d = np.asarray(config.widths), config.dimension
    index = jnp.arange(1.0, config.num_features + 1)
    keys, parts = draws(key, config.draws), []
    for spectrum in config.spectra:
        parts.append(measure(keys, SPECTRA[spectrum](index), config))
    gap, risk, sigma, ridge = (jnp.stack(part) for part in zip(*parts, strict=True))
    expected = theory.expected_gap
    for axes in ((None, 0, None, None, None), (0, None, 0, None, None), (0, None, 0, None, None)):
        expected = jax.vmap(expected, axes)
    signal = 1 / config.num_features
    expected = np.asarray(expected(sigma, jnp.asarray(widths), ridge, signal, config.noise))
    rows = tidy(
        {"spectrum": config.spectra, "draw": range(config.draws), "m / d_eff": widths / d},
        gap=gap,
        excess=risk,
        expected=expected,
        width=widths,
        ridge=ridge[..., None],
    )
    curves, risks = np.median(gap, axis=1), np.median(risk, axis=1)  # over draws
    spread = np.max(curves, axis=0) / np.min(curves, axis=0)
    ratio = curves / np.median(expected, axis=1)
    at = lambda values, x: values[..., list(widths).index(round(x * d))]  # noqa: E731
    return rows, judge(
        compare(
            "m = d_eff, every spectrum: median of risk / risk of full width <= 1.1",
            at(risks, 1)[None],
            1.1,
            stated=True,
        ),
        compare(
            "m = 3 d_eff, every spectrum: median of risk / risk of full width <= 1.1",
            at(risks, 3),
            1.1,
        ),
        compare(
            "m <= d_eff: largest / smallest of the median gaps of the spectra <= 5",
            spread[widths <= d],
            5.0,
        ),
        at_least(
            "m = 2 d_eff: largest / smallest of the median gaps of the spectra >= 10",
            at(spread, 2),
            10.0,
        ),
        within(
            "m <= 2 d_eff: log_3(median gap / expected gap) in [-1, 1]",
            np.log(ratio[:, widths <= 2 * d]) / np.log(3),
            -1.0,
            1.0,
        ),
        amended=True,
    )


@partial(jax.jit, static_argnames="config")
def measure(keys: jax.Array, deviations: jax.Array, config: Config) -> tuple[jax.Array, ...]:
    """Return gaps |f^ - f*| / |f*| and quotients of risks [draw, width], eigenvalues and ridge.

    The quotient is the risk of the model f^ / the risk of f*. The eigenvalues are those of K.

    The ridge of each draw is chosen such that d_eff equals `config.dimension`.
    """
    p, widths = config.num_features, jnp.asarray(config.widths)
    process = LinearRegression(
        noise=config.noise,
        spectrum=deviations**2,
        num_features=p,
        num_supports=config.num_supports,
        num_queries=config.num_queries,
    )

    def once(key: jax.Array) -> tuple[jax.Array, ...]:
        task = sample(key, process)
        sigma = theory.eigenvalues(Linear(), task)
        ridge = ridge_of(sigma, config.dimension)
        P = best(task.x, p)
        exact = solvers.exact(Linear(), task, ridge=ridge).prediction

        def gap(width: jax.Array) -> tuple[jax.Array, jax.Array]:
            # channels >= width are 0, so that one compiled program serves every width
            sketch = jnp.where(jnp.arange(p)[None] < width, P, 0)
            model = constructions.conjugate_gradient(
                Linear(), num_features=p, ridge=ridge, steps=p, sketch=sketch
            )
            f = predict(model, task)
            risk = jnp.mean((f - task.y_query) ** 2) / jnp.mean((exact - task.y_query) ** 2)
            return jnp.linalg.norm(f - exact) / jnp.linalg.norm(exact), risk

        return *jax.vmap(gap)(widths), sigma, ridge

    return jax.lax.map(once, keys)


def ridge_of(sigma: jax.Array, dimension: float) -> jax.Array:
    """Return the ridge at which d_eff equals `dimension`, by bisection on a logarithmic scale."""

    def halve(_: int, ends: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = ends
        middle = jnp.sqrt(low * high)
        above = jnp.sum(sigma / (sigma + middle)) > dimension
        return jnp.where(above, middle, low), jnp.where(above, high, middle)

    low, high = jax.lax.fori_loop(0, 60, halve, (1e-12 * sigma[-1], 1e3 * sigma[-1]))
    return jnp.sqrt(low * high)


CLAIM = Claim(
    title="d_eff channels are nearly as good as full width",
    statement="A model with d_eff = tr(K inv(K + ridge I)) feature channels is nearly as good "
    "as a model of full width, for every decay of the spectrum.",
    truth="If the spectrum decays slowly, d_eff channels are not enough. With 3 d_eff "
    "channels the risk (mean squared error to the noiseless function) is within 10 % of that of "
    "full width for every tested spectrum. Let m be the number of channels. We compare the gaps "
    "to f* (exact kernel ridge regression) of the tested spectra at the same m / d_eff. They "
    "agree up to a factor of 5 if m <= d_eff. They do not agree if m is larger.",
    corrected="ours",
    source="Cawley 2025, TODO",
    quote="TODO",
    expected=CORRECTED,
    told=TASK,
    run=run,
    config=Config(),
    quick=Config(draws=10, widths=(4, 8, 16, 24)),
    plot=Plot(x="m / d_eff", y="gap", by=("spectrum",), bound="expected"),
)
