"""C13: Richardson needs O(log(1/e)) blocks for e-accurate predictions."""

import jax
import jax.numpy as jnp
import numpy as np

from ... import Gaussian, constructions, run_with_cache, solvers, theory
from ..._core.linalg import eigh
from ..._core.numerics import matmul
from ...tasks import GaussianProcess, system
from .claim import CORRECTED, THIS_TASK, Checks, Claim, Config, at_most, check, nearly, stated
from .measuring import Plot, Rows, every, exponent, first_below, softmax, tidy

BASE = {"n": 64, "ridge": 0.1, "lengthscale": 1.0, "p": 2}
QUERIES = 64
LINES = "|f - f*| / largest |y|", "the same for the worst y", "A-norm of alpha"
DRAWN, WORST = 0, 1
GRID = np.unique(np.geomspace(1, 6000, 300).astype(int))  # steps at which the worst y is known
FIXED, MEAN = "ridge fixed", "ridge proportional to n"


def run(config: Config, key: jax.Array) -> tuple[Rows, Checks]:
    rows, results, shares = [], {}, []
    limits, columns = np.array(config.errors)[:, None], GRID[config.steps >= GRID]
    series = {FIXED: "n", MEAN: "n"} | {varied: varied for varied in BASE if varied != "n"}
    for name, varied in series.items():
        for value in getattr(config, varied):
            n, ridge, *others = (BASE | {varied: value}).values()
            ridge *= value / BASE["n"] if name == MEAN else 1
            conds, lines, worst, error, rates = measure(key, ridge, *others, n, config)
            slow = np.append(GRID, GRID[-1] + 1)[first_below(worst[:, None], limits)]
            drawn, energy = np.moveaxis(first_below(lines[:, :, None], limits), 1, 0)
            depths = np.stack([drawn, slow, energy], axis=1)
            shares.append(np.max(lines[:, DRAWN, columns] / (worst[:, : len(columns)] + 1e-12)))
            results[name, value] = conds, depths, error[:, 1:], rates
            axes = {"series": [name], "value": [value], "error of": LINES}
            axes |= {"draw": range(config.draws), "error": config.errors}
            blocks, cond = np.moveaxis(depths, 1, 0)[None, None], conds[:, 0][None, :, None]
            rows += tidy(axes, blocks=blocks, cond=cond)
    # condition numbers [draw, n, matrix], blocks [draw, n, line, error], ...
    fixed, mean = (
        [np.stack(part, axis=1) for part in zip(*(results[name, n] for n in config.n), strict=True)]
        for name in (FIXED, MEAN)
    )
    conds, limit = fixed[0], 1 + BASE["n"] / BASE["ridge"]
    slopes = [exponent(config.n, line) for line in conds[:, :, 0]]
    growth, mean_growth = (  # [draw, line]
        np.max(ends, axis=1) / np.min(ends, axis=1)
        for ends in (blocks[:, [0, -1]][..., 1] for _, blocks, *_ in (fixed, mean))
    )
    errors, rates = (np.stack([part[k] for part in (fixed, mean)], axis=1) for k in (2, 3))
    bounds = rates[..., None] ** np.arange(1, config.steps + 1) + 1e-12
    proportional = check(mean_growth[:, WORST], reading="ridge proportional to n")
    drawn_y = nearly(shares, 1.0)
    bounded = at_most(mean[0][:, :, 0], limit)
    halved = at_most(conds[..., 1] / 2, conds[..., 0])
    return rows, {
        "ridge fixed: blocks to |f - f*| <= 1e-2 largest |y| for the worst y, at the largest n / "
        "at the smallest n, <= 1.5 (our number)": stated(growth[:, WORST]),
        "ridge proportional to n: the same ratio for the worst y <= 1.5": proportional,
        "every series: |f - f*| / largest |y| for the drawn y <= that for the worst y": drawn_y,
        "ridge fixed: the same ratio for the drawn y and for alpha in the A-norm, geometric mean, "
        ">= 1.2": np.exp(np.mean(np.log(growth), axis=0)),
        "ridge = n / 640: cond((D + c I)^-1 A) <= 1 + n / ridge = 641 for every n": bounded,
        "ridge fixed: cond((D + c I)^-1 A) ~ n^a with a in [0.5, 1.3]": slopes,
        "every n, both ridges: error after t blocks <= factor^t, factor = (cond - 1) / (cond + "
        "1)": nearly(errors, bounds, reading="another constant for each n"),
        "ridge fixed: cond(A) / 2 <= cond((D + c I)^-1 A)": halved,
    }


@every(static=("n", "config"))
def measure(
    key: jax.Array, ridge: jax.Array, lengthscale: jax.Array, p: jax.Array, n: int, config: Config
) -> tuple:
    """Condition numbers of (D + c I)^-1 A and A, errors, those for the worst y, one more.

    Errors are the largest |f - f*| / largest |y|, and that of alpha in the A-norm. The last is in
    the norm of D + c I, which a step multiplies by at most the factor.
    """
    most, kernel = max((BASE["p"], *config.p)), Gaussian(lengthscale)
    process = GaussianProcess(kernel, num_features=most, num_supports=n, num_queries=QUERIES)
    # the other features are 0, so that one compiled program serves every p
    task = process.sample(key, active=p)
    sigma = theory.preconditioned_eigenvalues(kernel, task, ridge=ridge, sink=ridge)
    low, high = theory.spectral_bounds(kernel, task, ridge=ridge)
    gram = system(kernel, task).gram
    sums, A = jnp.sum(gram, axis=1) + ridge, gram + ridge * jnp.eye(n)
    exact = solvers.exact(kernel, task, ridge=ridge)
    eta = 2 / (sigma[0] + sigma[-1])
    options = {"num_features": most, "ridge": ridge, "attention": softmax(kernel, task)}
    model = constructions.richardson(kernel, steps=config.steps, step_size=eta, **options)
    cache = run_with_cache(model, task, names=("alpha", "prediction"))[1]
    missed = jnp.max(jnp.abs(cache["prediction"] - exact.prediction[None]), axis=1)
    off = cache["alpha"] - exact.alpha[None]
    energy = theory.energy_norm(A, off)
    # (D + c I)^-1 A is symmetric in this norm
    energy_gap = jnp.linalg.norm(jnp.sqrt(sums)[None] * off, axis=1)
    conds = jnp.stack([sigma[-1] / sigma[0], high / low])
    factor = theory.stationary_factor(sigma[0], sigma[-1], eta)
    lines = jnp.stack([missed / jnp.max(jnp.abs(task.y)), energy / energy[0]])
    worst = worst_errors(A, sums, kernel(task.x_query, task.x), eta)
    return conds, lines, worst, energy_gap / energy_gap[0], factor


def worst_errors(A: jax.Array, sums: jax.Array, cross: jax.Array, eta: jax.Array) -> jax.Array:
    """The largest |f_t - f*| / largest |y| over all y, t in `GRID`: row sums of the matrix of y."""
    root = jnp.sqrt(sums)
    sigma, vectors = eigh(A / jnp.outer(root, root))
    left, right = matmul(cross / root[None], vectors), matmul(vectors.T, jnp.diag(1 / root))

    def at(t: jax.Array) -> jax.Array:
        errors = matmul(left * ((1 - eta * sigma) ** t / sigma)[None], right)
        return jnp.max(jnp.sum(jnp.abs(errors), axis=1))

    return jax.lax.map(at, jnp.asarray(GRID, sigma.dtype))


CLAIM = Claim(
    statement="A transformer with one softmax head runs preconditioned Richardson iteration. It "
    "needs O(log(1/e)) blocks for predictions f with |f - f*| <= e largest |y| at all queries, for "
    "all y of n supports. We read the constant in O as one constant for every n.",
    truth="O(log(1/e)) blocks are enough for every n if the ridge is proportional to n, as for a "
    "mean of losses: the condition number of the preconditioned matrix is then at most "
    "1 + n / ridge, a constant. If the ridge is fixed, as for a sum of losses, the condition "
    "number and the number of blocks grow with n, for the worst y, for drawn y and for alpha in "
    "the A-norm, and O(log(1/e)) holds for each n with another constant. The abstract does not say "
    "which ridge is meant, or whether the constant may depend on n. Cawley 2025 "
    "(paper/sections/background.md) fixes the ridge.",
    source="Yan et al. 2026, abstract",
    quote="Under bounded-data assumptions, we construct a single-head transformer with "
    "O(log(1/e)) blocks and MLP width O(sqrt(N/e)) that achieves e-accurate prediction for prompts "
    "of length N.",
    expected=CORRECTED,
    required_inputs=THIS_TASK,
    run=run,
    # one of n, ridge, lengthscale and p varies, the others have the values of `BASE`.
    config=Config(draws=2, steps=2400),
    axes=Config(
        n=(32, 64, 128, 256),
        ridge=(0.01, 1.0),
        lengthscale=(0.5, 2.0),
        p=(1, 4, 8),
        errors=(1e-1, 1e-2, 1e-3),
    ),
    quick=Config(draws=2, n=(16, 64), ridge=(), lengthscale=(), p=(), steps=1500),
    plot=Plot(x="value", y="blocks", by=("series", "error of"), logx=True),
)
