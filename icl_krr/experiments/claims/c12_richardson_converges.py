"""C12: Richardson's iteration, preconditioned by the softmax normaliser, converges for every n."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ... import constructions, solvers, theory
from ...constructions import Softmax
from ...kernels import Gaussian
from ...tasks import GaussianProcess, sample
from ...transformer import run_with_cache
from .claim import HOLDS, TASK, Claim, Verdict, at_least, at_most, judge, named
from .measuring import Plot, Rows, every, largest_gap, tidy

KERNEL, QUERIES = Gaussian(0.7), 8
CASES = (  # ridge, c, step
    (0.1, 0.1, 1.0),
    (0.1, 0.1, 1.9),
    (0.01, 1.0, 1.9),
    (0.1, 0.1, 2.1),
    (3.0, 0.5, 1.0),
)


class Config(NamedTuple):
    draws: int = 5
    sizes: tuple[int, ...] = (16, 64, 256)
    steps: int = 100


def run(config: Config, key: jax.Array) -> tuple[Rows, Verdict]:
    keys = jax.random.split(key, config.draws)
    parts = [measure(keys, jnp.asarray(CASES), n, config) for n in config.sizes]
    low, high, error, slots, missed, reach, moved = (
        np.stack(v, axis=1) for v in zip(*parts, strict=True)
    )
    etas, steps = np.array([eta for *_, eta in CASES]), np.arange(config.steps + 1)
    # [draw, n, case]: each step multiplies the error by at most this factor
    factor = np.maximum(np.abs(1 - etas * low), np.abs(1 - etas * high))
    bound = factor[..., None] ** steps + 1e-12
    # [draw, n, case, step]: the largest over the queries, for each of which the bound holds
    missed = np.max(missed / reach[..., None, :], axis=-1)
    rows = tidy(
        {
            "draw": range(config.draws),
            "n": config.sizes,
            "ridge, c, step": [str(case) for case in CASES],
            "step": steps[::5],
        },
        error=error[..., ::5],
        bound=bound[..., ::5],
        **{"error of f": missed[..., ::5]},
    )
    good, beyond, unlike = slice(0, 3), 3, 4
    checks = {
        "ridge <= c: largest eigenvalue of (D + c I)^-1 A <= 1": at_most(high[..., good], 1.0),
        "ridge <= c: smallest eigenvalue of (D + c I)^-1 A >= 1e-9": at_least(low[..., good], 1e-9),
        "ridge <= c: |slots - iterates| / |iterates| <= 1e-10": at_most(
            slots[..., good], 1e-10, stated=True
        ),
        "ridge <= c, eta = 1 and 1.9: factor < 1, factor = largest |1 - eta eigenvalue|": at_most(
            factor[..., good], 1 - 1e-9
        ),
        "ridge <= c, eta = 1 and 1.9: error <= factor^t": at_most(
            error[..., good, 1:], bound[..., good, 1:], stated=True, slack=1e-6
        ),
        "ridge <= c, eta = 1 and 1.9: |f_t - f*| at the queries <= "
        "|(D + c I)^-1/2 k(x)| |(D + c I)^1/2 alpha*| factor^t": at_most(
            missed[..., good, 1:], bound[..., good, 1:], stated=True, slack=1e-6
        ),
        "one sink for the queries of all tasks, of weight n: |f_t - f_t with a sink for each "
        "task| / |f_t| <= 1e-10": at_most(moved, 1e-10),
        "ridge = c: largest eigenvalue of (D + c I)^-1 A >= 1 - 1e-9": at_least(
            high[..., 0], 1 - 1e-9
        ),
        "ridge = c, eta = 2.1: factor >= 1.09 (diverges)": at_least(factor[..., beyond], 1.09),
        "ridge > c: largest eigenvalue of (D + c I)^-1 A >= 1 + 1e-6": at_least(
            high[..., unlike], 1 + 1e-6
        ),
    }
    return rows, judge(*named(checks))


@every(1, 1, static=("num_supports", "config"))
def measure(
    key: jax.Array, case: jax.Array, num_supports: int, config: Config
) -> tuple[jax.Array, ...]:
    """Return extreme eigenvalues, errors and the gap between slots and iterates of every case.

    The first error is |sqrt(D + c I) (alpha_t - alpha*)| at every step, relative to step 0. The
    others are |f_t - f*| at the queries, the factors |(D + c I)^-1/2 k(x)| |sqrt(D + c I) alpha*|
    of their bounds, and the change of f_t if the sink of the queries has the weight n.
    """
    process = GaussianProcess(KERNEL, num_supports=num_supports, num_queries=QUERIES)
    (ridge, c, eta), task = case, sample(key, process)
    sigma = theory.preconditioned_eigenvalues(KERNEL, task, ridge=ridge, sink=c)
    root = jnp.sqrt(jnp.sum(KERNEL(task.x, task.x), axis=1) + c)
    exact = solvers.exact(KERNEL, task, ridge=ridge)
    options = {"ridge": ridge, "steps": config.steps, "step_size": eta, "sink": c}

    def iterates(log_sink: Any) -> tuple[jax.Array, jax.Array]:
        model = constructions.richardson(
            KERNEL, num_features=2, attention=Softmax(log_sink=log_sink), **options
        )
        cache = run_with_cache(model, task, names=("alpha", "prediction"))[1]
        return cache["alpha"], cache["prediction"]

    alpha, f = iterates(theory.log_sink(KERNEL, task))
    oracle = jnp.asarray(solvers.richardson(KERNEL, task, **options).alpha)
    # (D + c I)^-1 A is symmetric in this norm
    error = jnp.linalg.norm(root[None] * (alpha - exact.alpha[None]), axis=1)
    reach = jnp.linalg.norm(KERNEL(task.x_query, task.x) / root[None], axis=1) * error[0]
    missed = jnp.abs(f - exact.prediction[None])
    moved = largest_gap(iterates(float(np.log(num_supports)))[1], f)
    slots = largest_gap(alpha, oracle)
    return sigma[0], sigma[-1], error / error[0], slots, missed, reach, moved


CLAIM = Claim(
    title="preconditioned Richardson converges for step sizes below 2",
    statement="Let A = K + ridge I, and let D be the diagonal matrix of the row sums of K "
    "(the softmax normaliser). A stack of softmax attention runs Richardson's iteration alpha += "
    "eta (D + c I)^-1 (y - A alpha), with a constant c and a step size eta, and approaches exact "
    "kernel ridge regression.",
    truth="In addition: if ridge <= c, all eigenvalues of (D + c I)^-1 A lie in (0, 1]. So the "
    "iteration converges for every step size eta in (0, 2) and every number of supports, in its "
    "predictions too: |f_t - f*| is at most |(D + c I)^-1/2 k(x)| |(D + c I)^1/2 alpha*| times the "
    "factor of the rate to the power t. The MLPs here multiply and divide exactly. C14 has plain "
    "ReLU MLPs instead, and states their width. The queries read their normaliser from a sink. "
    "Its weight need not depend on the task: the number n of supports works for all tasks.",
    source="Yan et al. 2026, abstract",
    quote="a standard softmax-attention transformer can approximate the KRR predictor during its "
    "forward pass by implementing preconditioned Richardson iteration on the associated kernel "
    "linear system",
    expected=HOLDS,
    told=TASK,
    run=run,
    quick=Config(draws=2, sizes=(16, 64), steps=40),
    plot=Plot(x="step", y="error", by=("ridge, c, step",), bound="bound"),
)
