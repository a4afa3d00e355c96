"""C28: Chebyshev on the normaliser's head: O(sqrt(n / ridge)) blocks."""

import jax
import jax.numpy as jnp
import numpy as np

from ... import Gaussian, ReLU, constructions, solvers, theory
from ...tasks import GaussianProcess, sample, system
from ...transformer import operand_bounds, predict, run_with_cache
from .claim import HOLDS, TASK_FAMILY, Checks, Claim, Config, Exactly, at_least, at_most
from .measuring import Plot, Rows, every, exponent, first_below, tidy

KERNEL, LIMIT = Gaussian(1.0), 1e-2
OF_BUDGETS = 0.5  # ridge
SOLVERS = ("Richardson", "Chebyshev")


def run(config: Config, key: jax.Array) -> tuple[Rows, Checks]:
    keys = jax.random.split(key, config.draws)
    low, high, slow, fast = zip(*(measure(key, n, config) for n in config.n), strict=True)
    step_counts = [[first_below(error, LIMIT) for error in solver] for solver in (slow, fast)]
    steps = np.transpose(step_counts, (2, 0, 1))  # [draw, solver, n]
    rows = tidy({"draw": range(config.draws), "solver": SOLVERS, "n": config.n}, steps=steps)
    t = jnp.arange(1.0, config.steps[1] + 1)
    floor = config.ridge / (np.array(config.n) + config.ridge)
    bound = np.stack([theory.chebyshev_rate(lowest, 1.0, t) for lowest in floor]) + 1e-12
    slopes = [exponent(config.n, chebyshev) for _, chebyshev in steps]
    over = [of_budget(keys, theory.budget(e, n, OF_BUDGETS), n) / e for e, n in config.budgets]
    smallest = at_least(np.transpose(low), floor)
    of_chebyshev = at_most(np.stack(fast, axis=1)[..., 1:], bound)
    fewer = at_least(steps[:, 0] / steps[:, 1], 0.5 * np.sqrt(config.n))
    enough = at_most(np.stack(over, axis=1), 1.0)
    return rows, {
        "largest eigenvalue of (D + ridge I)^-1 A <= 1": np.transpose(high),
        "smallest eigenvalue of (D + ridge I)^-1 A >= ridge / (n + ridge)": smallest,
        "Chebyshev: |alpha_t - alpha*|_A / |alpha*|_A <= 2 rho^t": of_chebyshev,
        "Chebyshev: steps to error 1e-2 ~ n^a with a in [0.35, 0.6]": slopes,
        "steps of Richardson (step size 1.9) / steps of Chebyshev >= 0.5 sqrt(n)": fewer,
        "steps and table width of theory.budget(e, n, ridge): |f - f*| / largest |y| <= e": enough,
    }


@every(static=("n", "config"))
def measure(key: jax.Array, n: int, config: Config) -> tuple[jax.Array, ...]:
    """Return extreme eigenvalues, and the errors of both solvers after every step."""
    ridge = config.ridge
    common = {"num_features": 2, "ridge": ridge}
    slow, fast = config.steps
    models = (
        constructions.richardson(KERNEL, steps=slow, step_size=1.9, **common),
        constructions.preconditioned_chebyshev(KERNEL, steps=fast, num_supports=n, **common),
    )
    task = sample(key, GaussianProcess(KERNEL, num_supports=n, num_queries=1))
    sigma = theory.preconditioned_eigenvalues(KERNEL, task, ridge=ridge, sink=ridge)
    A = system(KERNEL, task).gram + ridge * jnp.eye(n)
    exact = solvers.exact(KERNEL, task, ridge=ridge).alpha
    paths = (run_with_cache(model, task, names=("alpha",))[1]["alpha"] for model in models)
    errors = (theory.energy_norm(A, alpha - exact[None]) for alpha in paths)
    return sigma[0], sigma[-1], *(error / error[0] for error in errors)


@every(static=("budget", "n"))
def of_budget(key: jax.Array, budget: theory.Budget, n: int) -> jax.Array:
    """Return the largest error at the queries over the largest |y|, with tables, for each draw."""
    options = {"num_features": 2, "ridge": OF_BUDGETS, "steps": budget.steps, "num_supports": n}
    task = sample(key, GaussianProcess(KERNEL, num_supports=n, num_queries=8))
    twin = constructions.preconditioned_chebyshev(KERNEL, **options)
    tables = ReLU(budget.width, operand_bounds(twin, task))
    model = constructions.preconditioned_chebyshev(KERNEL, arithmetic=tables, **options)
    gap = predict(model, task) - solvers.exact(KERNEL, task, ridge=OF_BUDGETS).prediction
    return jnp.max(jnp.abs(gap)) / jnp.max(jnp.abs(task.y))


CLAIM = Claim(
    statement="Let 0 <= k <= 1. A transformer with one softmax head and one block a step computes "
    "z = (D + ridge I)^-1 (y - A alpha) as Richardson's iteration does, and alpha_(t+1) = alpha_t "
    "+ b_t z_t + a_t (alpha_t - alpha_(t-1)) with the Chebyshev coefficients of the interval "
    "[ridge / (n + ridge), 1]. It is told n and the ridge, and nothing of the supports. Its error "
    "in the A-norm after t steps is at most 2 rho^t with rho = (sqrt(kappa) - 1) / (sqrt(kappa) + "
    "1) and kappa = (n + ridge) / ridge. So O(sqrt(n / ridge) log(1 / e)) blocks reach the error "
    "e, and theory.budget gives the depth and the table width for e.",
    expected=HOLDS,
    required_inputs=TASK_FAMILY,
    run=run,
    # `budgets` are pairs of an error and a number of supports.
    config=Config(draws=3, ridge=0.1, steps=Exactly((4000, 200))),
    axes=Config(n=(32, 64, 128, 256), budgets=((0.1, 8), (0.05, 16))),
    quick=Config(draws=2, n=(16, 64), steps=(1500, 100), budgets=((0.1, 8),)),
    plot=Plot(x="n", y="steps", by=("solver",), logx=True),
)
