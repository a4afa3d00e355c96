"""C5: the Neumann series wants a large ridge, not a small one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from ... import constructions, solvers, theory
from ...constructions import Softmax
from ...kernels import Exponential
from ...linalg import eigh
from ...tasks import GaussianProcess, Task, sample, system
from ...transformer import run_with_cache
from ..shared.draws import draws
from ..shared.rows import Plot, Rows, tidy
from .claim import FALSE, Claim, Verdict, at_least, compare, judge

STEPS = (1.0, 1.9, 2.1)  # in units of 1 / (sigma_1 + ridge)
SERIES = ("Neumann", *(f"step {step} / (sigma_1 + ridge)" for step in STEPS))


@dataclass(frozen=True)
class Config:
    draws: int = 20
    num_supports: int = 32
    temperature: float = 1.0
    ridges: tuple[float, ...] = (0.1, 0.5, 2.0, 4.0)  # in units of sigma_1
    steps: int = 60


def run(config: Config, key: jax.Array) -> tuple[Rows, Verdict]:
    ratios = jnp.asarray(config.ridges)
    error, factor, worst = measure(draws(key, config.draws), ratios, config)
    steps = np.arange(config.steps + 1)
    bound = np.asarray(factor)[..., None] ** steps
    rows = tidy(
        {
            "draw": range(config.draws),
            "ridge / sigma_1": config.ridges,
            "series": SERIES,
            "step": steps[::4],
        },
        error=error[..., ::4],
        bound=bound[..., ::4],
    )
    small, large = ratios < 1, ratios > 1
    neumann = error[:, :, 0]
    return rows, judge(
        compare(
            "Neumann series, ridge < sigma_1: relative error <= 0.1",
            neumann[:, small, -1],
            0.1,
            stated=True,
        ),
        compare(
            "it grows there by sigma_1 / ridge a step",
            factor[:, small, 0],
            worst[:, small, 0],
            slack=1e-6,
        ),
        compare(
            "for ridge > sigma_1: error <= (sigma_1 / ridge)^t",
            neumann[:, large, 1:],
            bound[:, large, 0, 1:] + 1e-12,
            slack=1e-6,
        ),
        compare(
            "steps 1 and 1.9 / (sigma_1 + ridge), any ridge: error <= factor^t",
            error[:, :, 1:3, 1:],
            bound[:, :, 1:3, 1:] + 1e-12,
            slack=1e-6,
        ),
        compare(
            "which is attained: worst y, |1 - tightness|",
            np.abs(1 - worst / factor)[:, :, 1:],
            1e-6,
        ),
        at_least("step 2.1 / (sigma_1 + ridge) diverges: factor >= 1.09", worst[:, :, 3], 1.09),
        compare(
            "the smaller the ridge, the deeper: error at step 8",
            error[:, 1:, 1, 8],
            error[:, :-1, 1, 8],
        ),
    )


@partial(jax.jit, static_argnames="config")
def measure(
    keys: jax.Array, ratios: jax.Array, config: Config
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Error [draw, ridge, series, step]; its factor a step by theory, and for the worst y."""
    kernel = Exponential(config.temperature)
    process = GaussianProcess(kernel, num_supports=config.num_supports, inputs="sphere")

    def once(key: jax.Array, ratio: jax.Array) -> tuple[jax.Array, ...]:
        task = sample(key, process)
        gram = system(kernel, task).gram
        sigma, vectors = eigh(gram)
        ridge = ratio * sigma[-1]
        high = ridge + sigma[-1]

        def series(eta: jax.Array) -> tuple[jax.Array, jax.Array]:
            # sum_j (I - eta A)^j eta y: at eta = 1 / ridge it is sum_j (-K / ridge)^j y / ridge
            model = constructions.gradient_descent(
                kernel,
                num_features=2,
                ridge=ridge,
                steps=config.steps,
                step_size=eta,
                attention=Softmax(log_sink=theory.log_sink(kernel, task)),
            )

            def errors(task: Task) -> jax.Array:
                exact = solvers.exact(kernel, task, ridge=ridge).alpha
                _, cache = run_with_cache(model, task, names=("alpha",))
                gaps = jnp.linalg.norm(cache["alpha"] - exact[None], axis=1)
                return gaps / jnp.linalg.norm(exact)

            first, last = (errors(task.replace(y=vectors[:, i]))[1] for i in (0, -1))
            return errors(task), jnp.maximum(first, last)

        etas = jnp.stack([1 / ridge, *(step / high for step in STEPS)])
        error, worst = jax.lax.map(series, etas)
        # the smallest eigenvalue may be 0, and is at rounding
        rest = [theory.stationary_factor(ridge + sigma[0], high, eta) for eta in etas[1:]]
        return error, jnp.stack([theory.neumann_factor(sigma[-1], ridge), *rest]), worst

    return jax.lax.map(lambda key: jax.lax.map(lambda ratio: once(key, ratio), ratios), keys)


CLAIM = Claim(
    statement="A Neumann series sum_j (-K / ridge)^j / ridge inverts A exactly for small ridge.",
    truth="It converges only for ridge > sigma_1, that is for LARGE ridge. With a step in "
    "(0, 2 / (sigma_1 + ridge)) it is gradient descent, and deeper the smaller the ridge.",
    expected=FALSE,
    run=run,
    config=Config(),
    quick=Config(draws=3),
    plot=Plot(x="step", y="error", by=("series", "ridge / sigma_1"), bound="bound"),
)
