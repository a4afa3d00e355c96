"""C18: a bound on the prediction error of a model with m channels."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ... import Exponential, Linear, Task, constructions, run_with_cache, sketched, theory
from ..._core.linalg import eigenvalues, eigh, solve
from ..._core.numerics import matmul
from .._shared.spectra import METRIC, metric, sketch, spectral_norm, spectral_task
from .claim import CORRECTED, THIS_TASK, Checks, Claim, Config, at_most, nearly
from .measuring import Plot, Rows, every, sizes, tidy

TASKS = ("drawn", "worst")
SKETCHES = ("best", METRIC)


def run(config: Config, key: jax.Array) -> tuple[Rows, Checks]:
    results = measure(key, jnp.asarray(config.ridges), config)
    error, printed, dual = results.error, results.printed, results.dual
    both = dual + results.second
    axes = {"draw": range(config.draws), "ridge": config.ridges, "sketch": SKETCHES, "task": TASKS}
    axes |= {"query": range(config.num_queries)}
    rows = tidy(axes, error=error, printed=printed, dual=dual, bound=both)
    sharp, full = ((part / of)[:, :, 0, 1] for part, of in ((printed, dual), (error, both)))
    alone = nearly(printed, dual, reading="the inequality alone")
    as_bound = at_most(error, dual, stated=True)
    largest = np.max(full, axis=(1, 2))
    return rows, {
        "inequality as printed: |k^T (inv(A) - inv(A^)) y| <= |k| |y| |inv(A) - inv(A^)|": alone,
        "as a bound on a model of width m: |f^ - f*| <= |k| |y| |inv(A) - inv(A^)|": as_bound,
        "best sketch, worst task: 1 - |k^T (inv(A) - inv(A^)) y| / (|k| |y| |inv(A) - inv(A^)|) "
        "<= 1e-6": 1 - sharp,
        "|f^ - f*| <= |k| |y| |inv(A) - inv(A^)| + |k - k^| |y| / ridge": nearly(error, both),
        "best sketch, worst task: |f^ - f*| / (bound with both terms) >= 0.5": largest,
        "gap between the model and ridge regression with K^ <= 1e-7": results.model_gap[..., -1],
    }


@every(1, 1)
def measure(key: jax.Array, ridge: jax.Array, config: Config) -> dict[str, jax.Array]:
    """`width_errors` after the last step [draw, ridge, sketch, task, ...].

    In the worst task y is the first eigenvector u of K - K^, for the best sketch that of K which it
    loses, and all queries lie along X^T u.
    """
    at, sketch_key = jax.random.split(key)
    drawn, m = spectral_task(at, config.spectrum, **sizes(config)), config.width
    x, gram = drawn.x, Linear()(drawn.x, drawn.x)

    def of_sketch(P: jax.Array) -> dict[str, jax.Array]:
        R = metric(P, x)
        u = eigh(gram - sketched(Linear(R), P)(x, x))[1][:, -1:]
        along = matmul(u.T, x) / jnp.sqrt(matmul(u.T, matmul(gram, u)))
        worst = drawn.replace(y=u[:, 0], x_query=jnp.tile(along, (config.num_queries, 1)))
        tasks = jax.tree.map(lambda *fields: jnp.stack(fields), drawn, worst)
        return jax.vmap(lambda task: width_errors(Linear(), task, P, R, ridge, m + 6))(tasks)

    sketches = [sketch(name, sketch_key, x, m) for name in ("best", "orthonormal")]
    return jax.lax.map(of_sketch, jnp.stack(sketches))


def width_errors(
    kernel: Linear | Exponential, task: Task, P: jax.Array, R: jax.Array, ridge: Any, steps: int
) -> dict[str, jax.Array]:
    """Errors of a model that stores P^T x and reads queries and keys R P^T x.

    `path` is |f_t - f*| [step, q], `error` its last step, `printed` |k^T (inv(A) - inv(A^)) y|,
    `dual` a bound on it, and `second` a bound on the error of k^. `model_gap` [step] is |f_t - f^|
    / |f^|, and `alpha` |alpha_t - alpha^|_A^ / |alpha^|_A^, where f^ and alpha^ solve ridge
    regression with K^. `rate` is that of CG for the `condition` of A^, and |f - f^| <= `factor`
    `alpha`.
    """
    projected_kernel, eye = dataclasses.replace(kernel, projection=R), jnp.eye(task.num_supports)
    options = {"num_features": len(P), "ridge": ridge, "steps": steps, "sketch": P}
    cache = run_with_cache(constructions.conjugate_gradient(projected_kernel, **options), task)[1]
    kernels = kernel, sketched(projected_kernel, P)
    k, k_ = (kernel(task.x_query, task.x) for kernel in kernels)
    A, A_ = (kernel(task.x, task.x) + ridge * eye for kernel in kernels)
    inverse, inverse_ = solve(A, eye), solve(A_, eye)
    alpha, alpha_ = (matmul(M, task.y) for M in (inverse, inverse_))
    f, f_ = matmul(k, alpha), matmul(k_, alpha_)
    sigma, size = eigenvalues(A_), theory.energy_norm(A_, alpha_)
    path = jnp.abs(cache["prediction"] - f[None])
    return {
        "path": path,
        "error": path[-1],
        "printed": jnp.abs(matmul(k, alpha - alpha_)),
        "dual": theory.query_error_dual(k, task.y, spectral_norm(inverse - inverse_)),
        "second": theory.query_error_features(k - k_, task.y, ridge),
        "model_gap": jnp.linalg.norm(cache["prediction"] - f_[None], axis=1)
        / (jnp.linalg.norm(f) + jnp.linalg.norm(f_)),
        "alpha": theory.energy_norm(A_, cache["alpha"] - alpha_[None]) / size,
        "factor": jnp.sqrt(jnp.sum(k_ * matmul(k_, inverse_), axis=1)) * size,
        "rate": theory.conjugate_gradient_rate(sigma[0], sigma[-1], jnp.arange(steps + 1.0)),
        "condition": sigma[-1] / sigma[0],
    }


CLAIM = Claim(
    statement="At a query x, |k^T (inv(A) - inv(A^)) y| <= |k| |y| |inv(A) - inv(A^)|, and this "
    "bounds the prediction error |f^ - f*| of a model with m feature channels. Here f* is exact "
    "kernel ridge regression, f^ is the prediction of the model, and k = k(x) contains the kernel "
    "values between x and the supports. Further, A = K + ridge I and A^ = K^ + ridge I, where K^ "
    "is the kernel matrix of the m features.",
    truth="The inequality is true (Cauchy-Schwarz), and it cannot be improved. It does not bound "
    "the error of the model, because the model also computes k from its m features, as k^. This "
    "adds (k - k^)^T inv(A^) y, which is at most |k - k^| |y| / ridge. The sum of both terms "
    "bounds the error, for the best sketch and for a random one with the best metric. The second "
    "term dominates if y lies along an eigenvector of K that the sketch loses.",
    source="Cawley 2025, docs/theory/width_rank.md, theorem",
    quote="[...] which yields a query prediction error bound for any x with feature vector phi(x): "
    "|k(x)^T [(K + lambda I)^-1 - (K^ + lambda I)^-1] y| <= ||k(x)||_2 ||y||_2 "
    "||(K + lambda I)^-1 - (K^ + lambda I)^-1||_2.",
    expected=CORRECTED,
    required_inputs=THIS_TASK,
    run=run,
    config=Config(
        draws=50, num_supports=30, num_features=16, num_queries=16, width=6, spectrum="1/i"
    ),
    axes=Config(ridges=(0.1, 1.0, 10.0)),
    quick=Config(draws=5, num_queries=4, ridges=(0.1, 10.0)),
    plot=Plot(x="ridge", y="error", by=("sketch", "task"), bound="bound", logx=True),
)
