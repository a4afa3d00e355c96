"""C26: a causal mask turns dual solvers into the delta rule."""

from dataclasses import replace

import jax
import jax.numpy as jnp

from ... import Gaussian, Linear, Transformer, constructions, run_with_cache, solvers
from ..._core.numerics import matmul
from ...tasks import LinearRegression, sample
from .claim import HOLDS, TASK_FAMILY, Checks, Claim, Config
from .measuring import Plot, Rows, every, gap, sizes, tidy

MODELS = ("gradient descent", "heavy ball", "Richardson")
MASKS = ("exclusive", "inclusive")
RIDGE, STEP = 4.0, 0.05


def run(config: Config, key: jax.Array) -> tuple[Rows, Checks]:
    gaps, state, distance = measure(key, config)
    axes = {"draw": range(config.draws), "model": MODELS, "mask": MASKS}
    rows, final = tidy(axes | {"step": range(config.steps + 1)}, gap=gaps), gaps[..., -1]
    return rows, {
        "exclusive mask: |alpha - a| / |a| after the last step <= 1e-9, "
        "(tril(K, -1) + ridge I) a = y": final[:, :, 0],
        "inclusive mask: |alpha - a| / |a| after the last step <= 1e-9, "
        "(tril(K) + ridge I) a = y": final[:, :, 1],
        "linear kernel: |X^T alpha - S| / |S| <= 1e-9, S is DeltaNet's state": state,
        "exclusive mask: |f - f*| / |f*| >= 0.05 over all supports, "
        "f* is KRR on the prefix": distance,
    }


@every()
def measure(key: jax.Array, config: Config) -> tuple[jax.Array, ...]:
    """Return gaps [draw, model, mask, step], gaps of the state, and distances from KRR."""
    n, p = config.num_supports, config.num_features
    common = {"num_features": p, "ridge": RIDGE, "steps": config.steps}
    descent = constructions.gradient_descent(Linear(), step_size=STEP, **common)
    ball = constructions.heavy_ball(Linear(), step_size=STEP, momentum=0.2, **common)
    models = (descent, ball, constructions.richardson(Gaussian(1.0), **common))
    task, paths, gaps = sample(key, LinearRegression(**sizes(config))), [], []
    for model, kernel in zip(models, (Linear(), Linear(), Gaussian(1.0)), strict=True):
        K = kernel(task.x, task.x)
        for mask, last in zip(MASKS, (-1, 0), strict=True):
            A = jnp.tril(K, last) + RIDGE * jnp.eye(n)
            limit = jax.scipy.linalg.solve_triangular(A, task.y, lower=True)
            paths.append(run_with_cache(causal(model, mask), task)[1]["alpha"])
            gaps.append(gap(paths[-1], limit[None]))
    alpha = paths[0][-1]  # of gradient descent with the exclusive mask
    state = gap(matmul(task.x.T, alpha), delta_net(task.x, task.y))
    # f and f* at all supports, from the supports before each one
    f = matmul(jnp.tril(Linear()(task.x, task.x), -1), alpha)
    exact = solvers.prefix_conjugate_gradient(Linear(), task, ridge=RIDGE, steps=2 * p)
    gaps = jnp.stack(gaps).reshape(len(MODELS), len(MASKS), -1)
    return gaps, state, gap(f, exact.along[-1][:n])


def causal(model: Transformer, mask: str) -> Transformer:
    """The same weights with a causal mask."""
    return model.replace(spec=replace(model.spec, causal=True, inclusive=mask == "inclusive"))


def delta_net(x: jax.Array, y: jax.Array) -> jax.Array:
    """S <- S + (y - S x) x / ridge, token by token."""

    def step(state: jax.Array, token: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        x, y = token
        return state + (y - jnp.sum(state * x)) * x / RIDGE, None

    return jax.lax.scan(step, jnp.zeros_like(x[0]), (x, y))[0]


CLAIM = Claim(
    statement="Run a solver of (K + ridge I) alpha = y with a causal mask, so that support i sees "
    "only the supports before it. If the step is alpha += M (y - K alpha - ridge alpha) with an "
    "invertible diagonal M, its limit solves (tril(K, -1) + ridge I) alpha = y. This holds for "
    "gradient descent, heavy ball, and Richardson with the softmax normaliser of each prefix. The "
    "limit is the kernel delta rule with step size 1 / ridge, alpha_i = (y_i - sum_{j < i} K_ij "
    "alpha_j) / ridge. On the linear kernel, X^T alpha is the state of DeltaNet. It is not kernel "
    "ridge regression on the prefix.",
    truth="If a support also sees itself, the limit solves (tril(K) + ridge I) alpha = y. This is "
    "the delta rule with step size 1 / (ridge + k(x_i, x_i)). Conjugate gradient has no such "
    "limit: its inner products over all supports do not exist under a causal mask.",
    expected=HOLDS,
    required_inputs=TASK_FAMILY,
    run=run,
    config=Config(draws=5, num_supports=16, num_features=4, steps=300),
    quick=Config(draws=2, num_supports=8),
    plot=Plot(x="step", y="gap", by=("model", "mask")),
)
