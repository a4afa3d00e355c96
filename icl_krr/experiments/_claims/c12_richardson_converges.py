"""C12: preconditioned Richardson converges for step sizes below 2."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from ... import Gaussian, Softmax, constructions, run_with_cache, solvers, theory
from ...tasks import GaussianProcess, sample
from .claim import HOLDS, THIS_TASK, Checks, Claim, Config, at_least, at_most, nearly, stated
from .measuring import Plot, Rows, every, largest_gap, softmax, stacked, tidy

KERNEL, QUERIES = Gaussian(0.7), 8
# ridge, c, step
CASES = ((0.1, 0.1, 1.0), (0.1, 0.1, 1.9), (0.01, 1.0, 1.9), (0.1, 0.1, 2.1), (3.0, 0.5, 1.0))
GOOD, BEYOND, UNLIKE = slice(0, 3), 3, 4


def run(config: Config, key: jax.Array) -> tuple[Rows, Checks]:
    results = stacked((measure(key, jnp.asarray(CASES), n, config) for n in config.sizes), axis=1)
    low, high, factor = results.low, results.high, results.factor  # [draw, n, case]
    missed = results.missed[..., GOOD, 1:]
    steps = np.arange(config.steps + 1)
    bound = factor[..., None] ** steps + 1e-12
    axes = {"draw": range(config.draws), "n": config.sizes, "ridge, c, step": list(map(str, CASES))}
    columns = {"error": results.error, "bound": bound, "error of f": results.missed}
    columns = {name: column[..., ::5] for name, column in columns.items()}
    rows = tidy(axes | {"step": steps[::5]}, **columns)
    within_rate = partial(nearly, bound=bound[..., GOOD, 1:], stated=True)
    factors = at_most(factor[..., GOOD], 1 - 1e-9)
    upper = at_least(high[..., 0], 1 - 1e-9)
    beyond = at_least(high[..., UNLIKE], 1 + 1e-6)
    return rows, {
        "ridge <= c: largest eigenvalue of (D + c I)^-1 A <= 1": high[..., GOOD],
        "ridge <= c: smallest eigenvalue of (D + c I)^-1 A >= 1e-9": low[..., GOOD],
        "ridge <= c: |slots - iterates| / |iterates| <= 1e-10": stated(results.slots[..., GOOD]),
        "ridge <= c, eta = 1 and 1.9: factor < 1, factor = largest |1 - eta eigenvalue|": factors,
        "ridge <= c, eta = 1 and 1.9: error <= factor^t": within_rate(results.error[..., GOOD, 1:]),
        "ridge <= c, eta = 1 and 1.9: |f_t - f*| at the queries <= "
        "|(D + c I)^-1/2 k(x)| |(D + c I)^1/2 alpha*| factor^t": within_rate(missed),
        "one sink for the queries of all tasks, of weight n: |f_t - f_t with a sink for each "
        "task| / |f_t| <= 1e-10": results.moved,
        "ridge = c: largest eigenvalue of (D + c I)^-1 A >= 1 - 1e-9": upper,
        "ridge = c, eta = 2.1: factor >= 1.09 (diverges)": factor[..., BEYOND],
        "ridge > c: largest eigenvalue of (D + c I)^-1 A >= 1 + 1e-6": beyond,
    }


@every(1, 1, static=("num_supports", "config"))
def measure(key: jax.Array, case: jax.Array, num_supports: int, config: Config) -> dict:
    """Extreme eigenvalues, the factor of every step, errors and gaps of every case.

    Errors are |sqrt(D + c I) (alpha_t - alpha*)|, relative to step 0, and the largest |f_t - f*|,
    relative to |(D + c I)^-1/2 k(x)| |sqrt(D + c I) alpha*|. Gaps are from slots to iterates, and
    to f_t if the sink of the queries has the weight n.
    """
    process = GaussianProcess(KERNEL, num_supports=num_supports, num_queries=QUERIES)
    (ridge, c, eta), task = case, sample(key, process)
    sigma = theory.preconditioned_eigenvalues(KERNEL, task, ridge=ridge, sink=c)
    root = jnp.sqrt(jnp.sum(KERNEL(task.x, task.x), axis=1) + c)
    exact = solvers.exact(KERNEL, task, ridge=ridge)
    options = {"ridge": ridge, "steps": config.steps, "step_size": eta, "sink": c}

    def iterates(attention: Softmax) -> tuple[jax.Array, jax.Array]:
        model = constructions.richardson(KERNEL, num_features=2, attention=attention, **options)
        cache = run_with_cache(model, task, names=("alpha", "prediction"))[1]
        return cache["alpha"], cache["prediction"]

    alpha, f = iterates(softmax(KERNEL, task))
    oracle = jnp.asarray(solvers.richardson(KERNEL, task, **options).alpha)
    # (D + c I)^-1 A is symmetric in this norm
    error = jnp.linalg.norm(root[None] * (alpha - exact.alpha[None]), axis=1)
    reach = jnp.linalg.norm(KERNEL(task.x_query, task.x) / root[None], axis=1) * error[0]
    return {
        "low": sigma[0],
        "high": sigma[-1],
        "factor": theory.stationary_factor(sigma[0], sigma[-1], eta),
        "error": error / error[0],
        "slots": largest_gap(alpha, oracle),
        "missed": jnp.max(jnp.abs(f - exact.prediction[None]) / reach[None], axis=1),
        "moved": largest_gap(iterates(Softmax(log_sink=float(np.log(num_supports))))[1], f),
    }


CLAIM = Claim(
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
    required_inputs=THIS_TASK,
    run=run,
    config=Config(draws=5, steps=100),
    axes=Config(sizes=(16, 64, 256)),
    quick=Config(draws=2, sizes=(16, 64), steps=40),
    plot=Plot(x="step", y="error", by=("ridge, c, step",), bound="bound"),
)
