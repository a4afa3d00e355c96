"""C13: the number of blocks that preconditioned Richardson iteration needs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from ... import constructions, solvers, theory
from ...constructions import Softmax
from ...kernels import Gaussian
from ...tasks import GaussianProcess, sample, system
from ...transformer import run_with_cache
from ..shared.draws import draws
from ..shared.rows import Plot, Rows, tidy
from .claim import CORRECTED, TASK, Claim, Verdict, compare, judge, within

BASE = {"n": 64.0, "ridge": 0.1, "lengthscale": 1.0, "p": 2.0}
LINES = ("richardson", "gradient descent", "conjugate gradient")


@dataclass(frozen=True)
class Config:
    """Settings; one of n, ridge, lengthscale and p varies, the others have the values of `BASE`."""

    draws: int = 3
    n: tuple[int, ...] = (32, 64, 128, 256)
    ridge: tuple[float, ...] = (0.01, 0.1, 1.0)
    lengthscale: tuple[float, ...] = (0.5, 1.0, 2.0)
    p: tuple[int, ...] = (1, 2, 4, 8)
    steps: int = 3000
    errors: tuple[float, ...] = (1e-1, 1e-2, 1e-3)


def run(config: Config, key: jax.Array) -> tuple[Rows, Verdict]:
    keys, rows, found = draws(key, config.draws), [], {}
    for varied in BASE:
        for value in getattr(config, varied):
            setting = BASE | {varied: float(value)}
            measured = measure(
                keys,
                jnp.asarray(setting["ridge"]),
                jnp.asarray(setting["lengthscale"]),
                (int(setting["n"]), int(setting["p"])),
                config,
            )
            conds, error, rates, blocks = (np.asarray(v) for v in measured)
            depths = first_step_below(error[:, : len(LINES)], config) * blocks[..., None]
            found[varied, value] = conds, depths, error, rates
            rows += tidy(
                {
                    "varied": [varied],
                    "value": [value],
                    "solver": LINES,
                    "draw": range(config.draws),
                    "error": config.errors,
                },
                blocks=np.moveaxis(depths, 1, 0)[None, None],
                cond=conds.T[[0, 1, 1], :, None],
            )
    conds, depths = (np.stack([found["n", n][k] for n in config.n], axis=1) for k in range(2))
    sizes = np.log(config.n)
    slopes = [np.polyfit(sizes, np.log(line), 1)[0] for line in conds[:, :, 0]]
    _, base, error, rates = found["n", 64]
    steps = np.arange(config.steps + 1)
    bound = rates[:, None] ** steps + 1e-12
    return rows, judge(
        compare(
            "blocks to error 1e-2 at the largest n / blocks at the smallest n <= 1.5",
            depths[:, -1, 0, 1] / depths[:, 0, 0, 1],
            1.5,
            stated=True,
        ),
        compare(
            "n = 64: error <= factor^t, factor = (cond - 1) / (cond + 1)",
            error[:, -1, 1:],
            bound[:, 1:],
            slack=1e-6,
        ),
        within("cond((D + c I)^-1 A) ~ n^a with a in [0.5, 1.3]", slopes, 0.5, 1.3),
        compare("cond(A) / 2 <= cond((D + c I)^-1 A)", conds[..., 1] / 2, conds[..., 0]),
        compare(
            "n = 64: blocks of conjugate gradient <= blocks of Richardson's iteration",
            base[:, 2],
            base[:, 0],
        ),
        amended=True,
    )


def first_step_below(error: np.ndarray, config: Config) -> np.ndarray:
    """Return the first step with an error of at most each limit; steps + 1 if there is none."""
    below = error[..., None, :] <= np.array(config.errors)[:, None]
    return np.where(below.any(-1), np.argmax(below, axis=-1), config.steps + 1)


@partial(jax.jit, static_argnames=("sizes", "config"))
def measure(
    keys: jax.Array,
    ridge: jax.Array,
    lengthscale: jax.Array,
    sizes: tuple[int, int],
    config: Config,
) -> tuple[jax.Array, ...]:
    """Return condition numbers, errors, the factor of Richardson's iteration, blocks in a step.

    The condition numbers are those of (D + c I)^-1 A and A. The errors [solver, step] are in the
    A-norm, except in the last row: it has the error of Richardson's iteration in the norm of
    D + c I. In this norm, each step multiplies the error by at most the factor.
    """
    (n, p), kernel = sizes, Gaussian(lengthscale)
    process = GaussianProcess(kernel, num_features=p, num_supports=n, num_queries=1)

    def once(key: jax.Array) -> tuple[jax.Array, ...]:
        task = sample(key, process)
        sigma = theory.preconditioned_eigenvalues(kernel, task, ridge=ridge, sink=ridge)
        low, high = theory.spectral_bounds(kernel, task, ridge=ridge)
        gram = system(kernel, task).gram
        sums, A = jnp.sum(gram, axis=1) + ridge, gram + ridge * jnp.eye(n)
        exact = solvers.exact(kernel, task, ridge=ridge).alpha
        common = {
            "num_features": p,
            "ridge": ridge,
            "attention": Softmax(log_sink=theory.log_sink(kernel, task)),
        }
        models = (
            constructions.richardson(
                kernel, steps=config.steps, step_size=2 / (sigma[0] + sigma[-1]), **common
            ),
            constructions.gradient_descent(
                kernel, steps=config.steps, spectrum=(low, high), **common
            ),
            constructions.conjugate_gradient(kernel, steps=config.steps, form="fused", **common),
        )
        off = [
            run_with_cache(model, task, names=("alpha",))[1]["alpha"] - exact[None]
            for model in models
        ]
        errors = [theory.energy_norm(A, gap) for gap in off]
        # (D + c I)^-1 A is symmetric in this norm
        errors.append(jnp.linalg.norm(jnp.sqrt(sums)[None] * off[0], axis=1))
        found = [size / size[0] for size in errors]
        conds = jnp.stack([sigma[-1] / sigma[0], high / low])
        factor = theory.stationary_factor(sigma[0], sigma[-1], 2 / (sigma[0] + sigma[-1]))
        blocks = jnp.array([model.blocks_per_step for model in models])
        return conds, jnp.stack(found), factor, blocks

    return jax.lax.map(once, keys)


CLAIM = Claim(
    title="Richardson needs O(log(1/e)) blocks for every n",
    statement="Richardson's iteration, preconditioned by the softmax normaliser D (the row "
    "sums of K), needs O(log(1/e)) blocks for an error e, for every number n of supports.",
    truth="O(log(1/e)) blocks are enough at a fixed condition number. But the "
    "preconditioner does not keep the condition number small. The condition number of (D + c "
    "I)^-1 A with c = ridge grows with n like that of A = K + ridge I. The number of blocks grows "
    "with it.",
    corrected="ours",
    source="Cawley 2025, TODO",
    quote="TODO",
    expected=CORRECTED,
    told=TASK,
    run=run,
    config=Config(),
    quick=Config(draws=2, n=(16, 64), ridge=(), lengthscale=(), p=(), steps=1500),
    plot=Plot(x="value", y="blocks", by=("varied", "solver"), logx=True),
)
