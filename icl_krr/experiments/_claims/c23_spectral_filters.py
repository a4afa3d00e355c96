"""C23: spectral filters of the kernel matrix are solvers."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from ... import Exponential, Kernel, Linear, constructions, predict, theory
from ..._core.linalg import eigh
from ...probes import hat_matrix, layerwise
from ...tasks import LinearRegression, Task, system
from .claim import HOLDS, THIS_TASK, Checks, Claim, Config, stated
from .measuring import Plot, Rows, draw_tasks, every, sizes, tidy

LINEAR = ("gradient descent", "chebyshev")


def run(config: Config, key: jax.Array) -> tuple[Rows, Checks]:
    tasks = draw_tasks(key, config.draws, LinearRegression(**sizes(config), condition=10.0))
    top = jnp.max(jax.lax.map(lambda task: theory.eigenvalues(Linear(), task)[-1], tasks))
    results = measure(tasks, top, config)
    sigma, q, expected = results.sigma, results.q, results.expected
    size = np.max(np.abs(expected), axis=-1, keepdims=True)
    axes = {"draw": range(config.draws), "solver": LINEAR, "eigenvalue": range(sigma.shape[-1])}
    last = {"q": q[..., -1, :], "expected": expected[..., -1, :]}
    rows = tidy(axes, sigma=sigma[:, None], **last)
    gap = np.abs(q - expected) / size
    exact = np.asarray(theory.exact_filter(jnp.asarray(sigma), config.ridge))
    return rows, {
        "gradient descent, every step: |q - q_t| / max |q_t| <= 1e-9": stated(gap[:, 0]),
        "Chebyshev iteration, every step: |q - q_t| / max |q_t| <= 1e-9": gap[:, 1],
        "gradient descent and Chebyshev iteration: "
        "share of the norm of the hat rows that no q explains <= 1e-9": results.rest,
        "CG after convergence is exact ridge regression: |q(sigma) (sigma + ridge) - 1| "
        "<= 1e-6": stated(np.abs(results.converged / exact - 1)),
        "Richardson's iteration with D: median share of the norm "
        "of the hat rows that no q explains >= 0.01": np.median(results.richardson),
        "CG, J = df / dy: |J y - f| / |f| <= 1e-9": results.homogeneity,
    }


def filters(kernel: Kernel, task: Task, hat_rows: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The filter [L, n] nearest to the hat rows [L, q, n], and the share [L] that it leaves out."""
    gram, cross, _ = system(kernel, task)
    vectors = eigh(gram)[1]
    c, h = cross @ vectors, hat_rows @ vectors
    size = jnp.maximum(jnp.sum(c * c, axis=0), jnp.finfo(c.dtype).tiny)
    q = jnp.sum(h * c[None], axis=1) / size[None]
    rest = jnp.linalg.norm(h - q[:, None] * c[None], axis=(1, 2)) / jnp.linalg.norm(h, axis=(1, 2))
    return q, rest


@every()
def measure(task: Task, top: jax.Array, config: Config) -> dict[str, jax.Array]:
    p, ridge = config.num_features, config.ridge
    options = {"num_features": p, "ridge": ridge, "steps": config.steps}
    bounds, eta, times = (ridge, top + ridge), 1 / top, range(1, config.steps + 1)
    linear, kernel = Linear(), Exponential(float(p))
    cg = constructions.conjugate_gradient(linear, num_features=p, ridge=ridge, steps=p + 2)
    models = (
        constructions.gradient_descent(linear, step_size=eta, **options),
        constructions.chebyshev(linear, spectrum=bounds, **options),
        cg,
        constructions.richardson(kernel, **options),
    )
    hats = (hat_matrix(partial(layerwise, model), task) for model in models)
    descent, chebyshev, of_cg, richardson = hats
    sigma = theory.eigenvalues(linear, task)[-p:]
    q, rest = zip(*(filters(linear, task, rows[1:]) for rows in (descent, chebyshev)), strict=True)
    of_descent = [theory.gradient_filter(sigma, ridge, eta, t) for t in times]
    of_chebyshev = [theory.chebyshev_filter(sigma, ridge, bounds, t) for t in times]
    halfway = of_cg[2] @ task.y - layerwise(cg, task)[2]
    return {
        "sigma": sigma,
        "q": jnp.stack(q)[..., -p:],
        "expected": jnp.array([of_descent, of_chebyshev]),
        "converged": filters(linear, task, of_cg[-1:])[0][0, -p:],
        "rest": jnp.stack(rest),
        "homogeneity": jnp.linalg.norm(halfway) / jnp.linalg.norm(predict(cg, task)),
        "richardson": filters(kernel, task, richardson[-1:])[1],
    }


CLAIM = Claim(
    statement="Spectral regularisation, a class of methods for ill-posed problems, gives learning "
    "algorithms that are consistent kernel methods and easy to implement. Each predicts k(x)^T "
    "q(K) y with a filter q of the kernel matrix K. Kernel ridge regression and gradient descent "
    "are two of them.",
    untested=("consistent for more and more data",),
    truth="In addition: the filter of a constructed transformer can be read from its hat rows h(x) "
    "= d prediction / dy. It is the filter of its solver at every step, also for Chebyshev "
    "iteration. Some solvers have no filter of K. Richardson's iteration preconditioned by the "
    "softmax normaliser D is a polynomial in another matrix, (D + c I)^-1 (K + ridge I) with a "
    "constant c > 0. Conjugate gradient (CG) is not linear in y. But its prediction f is "
    "homogeneous of degree 1 in y, so its Jacobian J = df / dy satisfies J y = f.",
    source="Lo Gerfo et al. 2008, abstract",
    quote="We discuss how a large class of regularization methods, collectively known as spectral "
    "regularization and originally designed for solving ill-posed inverse problems, gives rise to "
    "regularized learning algorithms. All of these algorithms are consistent kernel methods that "
    "can be easily implemented.",
    expected=HOLDS,
    required_inputs=THIS_TASK,
    run=run,
    config=Config(draws=20, num_features=5, num_supports=12, num_queries=8, ridge=0.5, steps=6),
    quick=Config(draws=5),
    plot=Plot(x="sigma", y="q", by=("solver",), bound="expected", logx=True),
)
