"""C13: how many blocks preconditioned Richardson needs."""

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
from .claim import CORRECTED, Claim, Verdict, compare, judge, within

BASE = {"n": 64.0, "ridge": 0.1, "lengthscale": 1.0, "p": 2.0}
LINES = ("richardson", "gradient descent", "conjugate gradient")


@dataclass(frozen=True)
class Config:
    """Each of n, ridge, lengthscale and p is varied about n = 64, 0.1, 1 and p = 2."""

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
            "blocks for an error of 1e-2, largest n / smallest <= 1.5",
            depths[:, -1, 0, 1] / depths[:, 0, 0, 1],
            1.5,
            stated=True,
        ),
        compare(
            "at fixed conditioning O(log 1/e): error <= factor^t",
            error[:, -1, 1:],
            bound[:, 1:],
            slack=1e-6,
        ),
        within("condition number of (D + c)^-1 A ~ n, slope", slopes, 0.5, 1.3),
        compare("and no better than half that of A", conds[..., 1] / 2, conds[..., 0]),
        compare("steps tuned alike: blocks of CG <= Richardson's", base[:, 2], base[:, 0]),
        amended=True,
    )


def first_step_below(error: np.ndarray, config: Config) -> np.ndarray:
    """The first step at each of the errors, one more than all if none is."""
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
    """Condition numbers of (D + c)^-1 A and A; errors by solver and step in the A-norm,
    Richardson's also in that of D + c, and its factor there; blocks a step."""
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
        # in this norm (D + c)^-1 A is symmetric
        errors.append(jnp.linalg.norm(jnp.sqrt(sums)[None] * off[0], axis=1))
        found = [size / size[0] for size in errors]
        conds = jnp.stack([sigma[-1] / sigma[0], high / low])
        factor = theory.stationary_factor(sigma[0], sigma[-1], 2 / (sigma[0] + sigma[-1]))
        blocks = jnp.array([model.blocks_per_step for model in models])
        return conds, jnp.stack(found), factor, blocks

    return jax.lax.map(once, keys)


CLAIM = Claim(
    statement="Preconditioned Richardson needs O(log 1/e) blocks, at every n.",
    truth="O(log 1/e) at fixed conditioning; but D^-1 does not cure the condition number, which "
    "grows with n as that of A does, and the blocks with it.",
    expected=CORRECTED,
    run=run,
    config=Config(),
    quick=Config(draws=2, n=(16, 64), ridge=(), lengthscale=(), p=(), steps=1500),
    plot=Plot(x="value", y="blocks", by=("varied", "solver"), logx=True),
)
