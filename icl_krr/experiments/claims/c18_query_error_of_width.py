"""C18: the error of a model with m feature channels at a query."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ... import constructions, solvers, theory
from ...kernels import Linear
from ...linalg import eigh, solve
from ...numerics import matmul
from ...sketches import best, sketched
from ...transformer import predict
from ..shared.spectra import spectral_norm, spectral_task
from .claim import CORRECTED, TASK, Claim, Verdict, at_least, at_most, judge, named
from .measuring import Plot, Rows, every, fields, tidy

TASKS = ("drawn", "worst")


class Config(NamedTuple):
    draws: int = 50
    num_supports: int = 30
    num_features: int = 16
    num_queries: int = 16
    width: int = 6
    ridges: tuple[float, ...] = (0.1, 1.0, 10.0)
    spectrum: str = "1/i"


def run(config: Config, key: jax.Array) -> tuple[Rows, Verdict]:
    ridges = jnp.asarray(config.ridges)
    found = fields(measure(jax.random.split(key, config.draws), ridges, config))
    error, printed, y = found.error, found.printed, found.y
    of_tasks, of_ridges = (0, 0, None), (None, None, 0)
    over = lambda bound, draws: jax.vmap(jax.vmap(jax.vmap(bound, of_tasks), of_ridges), draws)  # noqa: E731
    dual = over(theory.query_error_dual, (0, 0, 0))(found.cross, y, found.inverse)
    features = over(theory.query_error_features, (0, 0, None))
    dual, second = map(np.asarray, (dual, features(found.cross_gap, y, ridges)))
    axes = {"draw": range(config.draws), "ridge": config.ridges, "task": TASKS}
    axes["query"] = range(config.num_queries)
    rows = tidy(axes, error=error, printed=printed, dual=dual, bound=dual + second)
    checks = {
        "inequality as printed: |k^T (inv(A) - inv(A^)) y| <= |k| |y| |inv(A) - inv(A^)|": at_most(
            printed, dual, slack=1e-6, reading="the inequality alone"
        ),
        "as a bound on a model of width m: |f^ - f*| <= |k| |y| |inv(A) - inv(A^)|": at_most(
            error, dual, stated=True
        ),
        "worst task: 1 - |k^T (inv(A) - inv(A^)) y| / (|k| |y| |inv(A) - inv(A^)|) "
        "<= 1e-6": at_most(1 - (printed / dual)[:, :, TASKS.index("worst")], 1e-6),
        "|f^ - f*| <= |k| |y| |inv(A) - inv(A^)| + |k - k^| |y| / ridge": at_most(
            error, dual + second, slack=1e-6
        ),
        "worst task: |f^ - f*| / (bound with both terms) >= 0.5": at_least(
            np.max((error / (dual + second))[:, :, TASKS.index("worst")], axis=(1, 2)), 0.5
        ),
        "gap between the model and ridge regression with K^ <= 1e-7": at_most(
            found.model_gap, 1e-7
        ),
    }
    return rows, judge(*named(checks))


@every()
def measure(key: jax.Array, ridges: jax.Array, config: Config) -> dict[str, jax.Array]:
    """Return |f^ - f*| [draw, ridge, task, q] and the quantities in the bounds.

    `printed` is |k^T (inv(A) - inv(A^)) y|, `model_gap` the gap between the model and ridge
    regression with K^, `cross` is k, `cross_gap` is k - k^, and `inverse` |inv(A) - inv(A^)|.

    In the worst task y is the first eigenvector u of K that the sketch loses, and all queries lie
    along X^T u.
    """
    m = config.width
    task = spectral_task(
        key, config.spectrum, config.num_features, config.num_supports, config.num_queries
    )
    sigma, vectors = eigh(Linear()(task.x, task.x))
    lost = vectors[:, -m - 1]
    along = matmul(lost[None], task.x) / jnp.sqrt(sigma[-m - 1])
    worst = task.replace(y=lost, x_query=jnp.tile(along, (config.num_queries, 1)))
    tasks = jax.tree.map(lambda *fields: jnp.stack(fields), task, worst)
    P = best(task.x, m)
    small = sketched(Linear(), P)
    eye = jnp.eye(config.num_supports)

    def errors(ridge: jax.Array) -> dict[str, jax.Array]:
        inverses = [
            solve(kernel(task.x, task.x) + ridge * eye, eye) for kernel in (Linear(), small)
        ]
        change = inverses[0] - inverses[1]

        def error(task):
            model = constructions.conjugate_gradient(
                Linear(), num_features=config.num_features, ridge=ridge, steps=m + 6, sketch=P
            )
            exact = solvers.exact(Linear(), task, ridge=ridge).prediction
            f, on_sketch = predict(model, task), solvers.exact(small, task, ridge=ridge)
            size = jnp.max(jnp.abs(on_sketch.prediction)) + jnp.max(jnp.abs(exact))
            model_gap = jnp.max(jnp.abs(f - on_sketch.prediction)) / size
            printed = matmul(Linear()(task.x_query, task.x), matmul(change, task.y[:, None]))
            return {
                "error": jnp.abs(f - exact),
                "printed": jnp.abs(printed[:, 0]),
                "model_gap": model_gap,
            }

        return {**jax.vmap(error)(tasks), "inverse": spectral_norm(change)}

    cross = jax.vmap(lambda t: Linear()(t.x_query, t.x))(tasks)
    lost = cross - jax.vmap(lambda t: small(t.x_query, t.x))(tasks)
    return {**jax.lax.map(errors, ridges), "cross": cross, "cross_gap": lost, "y": tasks.y}


CLAIM = Claim(
    title="a bound on the prediction error of a model with m channels",
    statement="At a query x, |k^T (inv(A) - inv(A^)) y| <= |k| |y| |inv(A) - inv(A^)|, and this "
    "bounds the prediction error |f^ - f*| of a model with m feature channels. Here f* is exact "
    "kernel ridge regression, f^ is the prediction of the model, and k = k(x) contains the kernel "
    "values between x and the supports. Further, A = K + ridge I and A^ = K^ + ridge I, where K^ "
    "is the kernel matrix of the m features.",
    truth="The inequality is true (Cauchy-Schwarz), and it cannot be improved. It does not bound "
    "the error of the model, because the model also computes k from its m features, as k^. This "
    "adds (k - k^)^T inv(A^) y, which is at most |k - k^| |y| / ridge. The sum of both terms "
    "bounds the error. The second term dominates if y lies along an eigenvector of K that the "
    "sketch loses.",
    corrected="ours",
    source="Cawley 2025, docs/theory/width_rank.md, theorem",
    quote="[...] which yields a query prediction error bound for any x with feature vector phi(x): "
    "|k(x)^T [(K + lambda I)^-1 - (K^ + lambda I)^-1] y| <= ||k(x)||_2 ||y||_2 "
    "||(K + lambda I)^-1 - (K^ + lambda I)^-1||_2.",
    expected=CORRECTED,
    told=TASK,
    run=run,
    quick=Config(draws=5, num_queries=4, ridges=(0.1, 10.0)),
    plot=Plot(x="ridge", y="error", by=("task",), bound="bound", logx=True),
)
