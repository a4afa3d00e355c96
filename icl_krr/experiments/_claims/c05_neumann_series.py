"""C5: a Neumann series inverts K + ridge I for small ridge."""

import jax
import jax.numpy as jnp
import numpy as np

from ... import Exponential, constructions, run_with_cache, solvers, theory
from ..._core.linalg import eigh, solve
from ...tasks import GaussianProcess, Task, sample, system
from .claim import CORRECTED, THIS_TASK, Checks, Claim, Config, at_most, nearly, stated
from .measuring import Plot, Rows, every, gap, sizes, softmax, tidy

STEPS = (1.0, 1.9, 2.1)  # in units of 1 / (sigma_1 + ridge)
SERIES = ("Neumann", *(f"step {step} / (sigma_1 + ridge)" for step in STEPS))


def run(config: Config, key: jax.Array) -> tuple[Rows, Checks]:
    ratios, of_inverse = np.asarray(config.ridges), np.asarray(config.ridges_of_inverse)
    results = measure(key, ratios, config)
    error, factor, worst = results.error, results.factor, results.worst
    inverse, growth = inverse_series(key, of_inverse, config)
    steps = np.arange(config.steps + 1)
    bound = factor[..., None] ** steps
    axes = {"draw": range(config.draws), "ridge / sigma_1": config.ridges, "series": SERIES}
    rows = tidy(axes | {"step": steps[::4]}, error=error[..., ::4], bound=bound[..., ::4])
    series, room, low = error[:, :, 0], bound + 1e-12, of_inverse < 1
    small, large = ratios < 1, ratios > 1
    by_ridge = at_most(error[:, 1:, 1, 8], error[:, :-1, 1, 8])
    return rows, {
        "Neumann series in K, ridge < sigma_1: relative error <= 0.1": stated(series[:, small, -1]),
        "Neumann series in K, ridge < sigma_1, worst y: sigma_1 / ridge <= growth "
        "of the error in one step": nearly(factor[:, small, 0], worst[:, small, 0]),
        "Neumann series in K, ridge > sigma_1: error <= (sigma_1 / ridge)^t": nearly(
            series[:, large, 1:],
            room[:, large, 0, 1:],
            reading="large ridge in place of small ridge",
        ),
        "step sizes 1 / (sigma_1 + ridge) and 1.9 / (sigma_1 + ridge): error <= (factor "
        "by theory)^t": nearly(
            error[:, :, 1:3, 1:],
            room[:, :, 1:3, 1:],
            reading="a scaled series in K, which is gradient descent",
        ),
        "every step size, worst y: |1 - growth of the error in one step / factor by theory| "
        "<= 1e-6": np.abs(1 - worst / factor)[:, :, 1:],
        "step size 2.1 / (sigma_1 + ridge), "
        "worst y: growth of the error in one step >= 1.09": worst[:, :, 3],
        "error after 8 steps <= error after 8 steps with the next smaller ridge": by_ridge,
        "series in K^-1, ridge < sigma_n: error <= (ridge / sigma_n)^t": nearly(
            inverse[:, low, 1:],
            of_inverse[low, None] ** steps[1:] + 1e-12,
            reading="a series in K^-1, ridge < sigma_n",
        ),
        "series in K^-1, every ridge, y = eigenvector of sigma_n: |1 - growth of the error "
        "in one step / (ridge / sigma_n)| <= 1e-6": np.abs(1 - growth / of_inverse),
        "K of the Neumann series in K: median of the largest ridge / sigma_1 for which the series "
        "in K^-1 converges (sigma_n / sigma_1) <= 1e-9": np.median(results.least),
    }


@every(1, 1)
def measure(key: jax.Array, ratio: jax.Array, config: Config) -> dict[str, jax.Array]:
    """Errors [draw, ridge, series, step]; growth in a step, by theory and for the worst y."""
    kernel = Exponential(config.temperature)
    task = sample(key, GaussianProcess(kernel, **sizes(config), inputs="sphere"))
    sigma, vectors = eigh(system(kernel, task).gram)
    ridge = ratio * sigma[-1]
    high = ridge + sigma[-1]
    sink = softmax(kernel, task)

    def series(eta: jax.Array) -> tuple[jax.Array, jax.Array]:
        # sum_j (I - eta A)^j eta y, which is sum_j (-K / ridge)^j y / ridge for eta = 1 / ridge
        options = {"ridge": ridge, "steps": config.steps, "step_size": eta}
        model = constructions.gradient_descent(kernel, num_features=2, attention=sink, **options)

        def errors(task: Task) -> jax.Array:
            exact = solvers.exact(kernel, task, ridge=ridge).alpha
            _, cache = run_with_cache(model, task, names=("alpha",))
            return gap(cache["alpha"], exact[None])

        first, last = (errors(task.replace(y=vectors[:, i]))[1] for i in (0, -1))
        return errors(task), jnp.maximum(first, last)

    etas = jnp.stack([1 / ridge, *(step / high for step in STEPS)])
    error, worst = jax.lax.map(series, etas)
    # the smallest eigenvalue of K may be 0 up to rounding
    rest = [theory.stationary_factor(ridge + sigma[0], high, eta) for eta in etas[1:]]
    factors = jnp.stack([theory.neumann_factor(sigma[-1], ridge), *rest])
    return {"error": error, "factor": factors, "worst": worst, "least": abs(sigma[0]) / sigma[-1]}


@every(1, 1)
def inverse_series(key: jax.Array, ratio: jax.Array, config: Config) -> tuple[jax.Array, jax.Array]:
    """Errors [draw, ridge, step] of the partial sums of sum_j (-ridge)^j K^-(j+1) times y.

    And their growth in one step for y = eigenvector of the smallest eigenvalue, the unit of ridges.
    """
    kernel = Exponential(0.2)
    process = GaussianProcess(kernel, **sizes(config), num_features=8, inputs="sphere")
    gram, _, y = system(kernel, sample(key, process))
    sigma, vectors = eigh(gram)
    ridge = ratio * sigma[0]

    def errors(y: jax.Array) -> jax.Array:
        exact = solve(gram + ridge * jnp.eye(len(gram)), y)

        def step(alpha: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
            alpha = solve(gram, y - ridge * alpha)
            return alpha, jnp.linalg.norm(alpha - exact)

        _, gaps = jax.lax.scan(step, jnp.zeros_like(y), length=config.steps)
        return jnp.concatenate([jnp.ones(1), gaps / jnp.linalg.norm(exact)])

    return errors(y), errors(vectors[:, :1])[1]


CLAIM = Claim(
    statement="If the ridge is small, a Neumann series that uses products with K computes the "
    "inverse of A = K + ridge I.",
    truth="The source prints no series. The series sum_j (-K / ridge)^j / ridge converges only if "
    "the ridge is larger than sigma_1, the largest eigenvalue of K. The series sum_j (-ridge)^j "
    "K^-(j+1) converges if the ridge is smaller than sigma_n, the smallest eigenvalue of K, but "
    "its terms contain K^-1, which no attention head has. The series sum_j eta (I - eta A)^j is "
    "gradient descent. It uses products with K and converges for every ridge if the step size eta "
    "is in (0, 2 / (sigma_1 + ridge)), but it needs more terms if the ridge is smaller. So for "
    "every series in K, a small ridge is the difficult case.",
    source="Cawley 2025, paper/sections/theory.md, theorem 1, step 3 of the proof",
    quote="With explicit access to the matrix-vector multiplication v -> K~ v, the model "
    "implements iterative Conjugate Gradient updates (as in Lemma 3, with K -> K~) in subsequent "
    "MLP and attention layers. For small lambda, exact inversion via Neumann series is also "
    "possible.",
    expected=CORRECTED,
    required_inputs=THIS_TASK,
    run=run,
    # ridges: in units of sigma_1, ridges_of_inverse: in units of sigma_n
    config=Config(draws=20, num_supports=32, temperature=1.0, steps=60),
    axes=Config(ridges=(0.1, 0.5, 2.0, 4.0), ridges_of_inverse=(0.5, 0.9, 1.5)),
    quick=Config(draws=5),
    plot=Plot(x="step", y="error", by=("series", "ridge / sigma_1"), bound="bound"),
)
