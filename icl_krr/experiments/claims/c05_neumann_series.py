"""C5: the Neumann series needs a large ridge, not a small one."""

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
from .claim import FALSE, TASK, Claim, Verdict, at_least, compare, judge

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
            "Neumann series, ridge < sigma_1, worst y: sigma_1 / ridge <= growth of the "
            "error in one step",
            factor[:, small, 0],
            worst[:, small, 0],
            slack=1e-6,
        ),
        compare(
            "Neumann series, ridge > sigma_1: error <= (sigma_1 / ridge)^t",
            neumann[:, large, 1:],
            bound[:, large, 0, 1:] + 1e-12,
            slack=1e-6,
        ),
        compare(
            "step sizes 1 / (sigma_1 + ridge) and 1.9 / (sigma_1 + ridge): error <= (factor "
            "by theory)^t",
            error[:, :, 1:3, 1:],
            bound[:, :, 1:3, 1:] + 1e-12,
            slack=1e-6,
        ),
        compare(
            "every step size, worst y: |1 - growth of the error in one step / factor by "
            "theory| <= 1e-6",
            np.abs(1 - worst / factor)[:, :, 1:],
            1e-6,
        ),
        at_least(
            "step size 2.1 / (sigma_1 + ridge), worst y: growth of the error in one step >= 1.09",
            worst[:, :, 3],
            1.09,
        ),
        compare(
            "error after 8 steps <= error after 8 steps with the next smaller ridge",
            error[:, 1:, 1, 8],
            error[:, :-1, 1, 8],
        ),
    )


@partial(jax.jit, static_argnames="config")
def measure(
    keys: jax.Array, ratios: jax.Array, config: Config
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return errors [draw, ridge, series, step] and the growth of the error in one step.

    The growth is returned twice: as theory gives it, and as measured for the worst y.
    """
    kernel = Exponential(config.temperature)
    process = GaussianProcess(kernel, num_supports=config.num_supports, inputs="sphere")

    def once(key: jax.Array, ratio: jax.Array) -> tuple[jax.Array, ...]:
        task = sample(key, process)
        gram = system(kernel, task).gram
        sigma, vectors = eigh(gram)
        ridge = ratio * sigma[-1]
        high = ridge + sigma[-1]

        def series(eta: jax.Array) -> tuple[jax.Array, jax.Array]:
            # sum_j (I - eta A)^j eta y, which is sum_j (-K / ridge)^j y / ridge for eta = 1 / ridge
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
        # the smallest eigenvalue of K may be 0 up to rounding
        rest = [theory.stationary_factor(ridge + sigma[0], high, eta) for eta in etas[1:]]
        return error, jnp.stack([theory.neumann_factor(sigma[-1], ridge), *rest]), worst

    return jax.lax.map(lambda key: jax.lax.map(lambda ratio: once(key, ratio), ratios), keys)


CLAIM = Claim(
    title="a Neumann series inverts K + ridge I for small ridge",
    statement="The Neumann series sum_j (-K / ridge)^j / ridge equals the inverse of A = K + ridge "
    "I if the ridge is small.",
    truth="The series converges only if ridge > sigma_1, the largest eigenvalue of K. So "
    "the ridge must be large. The series sum_j eta (I - eta A)^j converges for every step size "
    "eta in (0, 2 / (sigma_1 + ridge)). Its partial sums applied to y are the iterates of "
    "gradient descent. This series needs more terms if the ridge is smaller.",
    corrected="ours",
    source="Cawley 2025, TODO",
    quote="TODO",
    expected=FALSE,
    told=TASK,
    run=run,
    config=Config(),
    quick=Config(draws=3),
    plot=Plot(x="step", y="error", by=("series", "ridge / sigma_1"), bound="bound"),
)
