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
from ...sketches import sketched
from ...tasks import Task
from ...transformer import predict
from ..shared.spectra import METRIC, metric, sketch, spectral_norm, spectral_task
from .claim import CORRECTED, TASK, Claim, Verdict, at_least, at_most, judge, named
from .measuring import Plot, Rows, every, fields, tidy

TASKS = ("drawn", "worst")
SKETCHES = ("best", METRIC)


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
    error, printed, dual = found.error, found.printed, found.dual
    axes = {"draw": range(config.draws), "sketch": SKETCHES, "ridge": config.ridges, "task": TASKS}
    axes["query"] = range(config.num_queries)
    rows = tidy(axes, error=error, printed=printed, dual=dual, bound=dual + found.second)
    worst = lambda values: values[:, SKETCHES.index("best"), :, TASKS.index("worst")]  # noqa: E731
    checks = {
        "inequality as printed: |k^T (inv(A) - inv(A^)) y| <= |k| |y| |inv(A) - inv(A^)|": at_most(
            printed, dual, slack=1e-6, reading="the inequality alone"
        ),
        "as a bound on a model of width m: |f^ - f*| <= |k| |y| |inv(A) - inv(A^)|": at_most(
            error, dual, stated=True
        ),
        "best sketch, worst task: 1 - |k^T (inv(A) - inv(A^)) y| / (|k| |y| |inv(A) - inv(A^)|) "
        "<= 1e-6": at_most(1 - worst(printed / dual), 1e-6),
        "|f^ - f*| <= |k| |y| |inv(A) - inv(A^)| + |k - k^| |y| / ridge": at_most(
            error, dual + found.second, slack=1e-6
        ),
        "best sketch, worst task: |f^ - f*| / (bound with both terms) >= 0.5": at_least(
            np.max(worst(error / (dual + found.second)), axis=(1, 2)), 0.5
        ),
        "gap between the model and ridge regression with K^ <= 1e-7": at_most(
            found.model_gap, 1e-7
        ),
    }
    return rows, judge(*named(checks))


@every()
def measure(key: jax.Array, ridges: jax.Array, config: Config) -> dict[str, jax.Array]:
    """Return |f^ - f*| [draw, sketch, ridge, task, q] and the quantities in the bounds.

    `printed` is |k^T (inv(A) - inv(A^)) y|, `dual` its bound, `second` that on the error of k^, and
    `model_gap` the gap between the model and ridge regression with K^. The model stores P^T x, and
    its queries and keys are R P^T x, with the R of `metric`.

    In the worst task y is the first eigenvector u of K - K^, for the best sketch the first
    eigenvector of K that it loses, and all queries lie along X^T u.
    """
    m, p = config.width, config.num_features
    at, turn = jax.random.split(key)
    drawn = spectral_task(at, config.spectrum, p, config.num_supports, config.num_queries)
    x, eye = drawn.x, jnp.eye(config.num_supports)
    gram = Linear()(x, x)

    def of_sketch(P: jax.Array) -> dict[str, jax.Array]:
        kernel = Linear(metric(P, x))
        small = sketched(kernel, P)
        u = eigh(gram - small(x, x))[1][:, -1:]
        along = matmul(u.T, x) / jnp.sqrt(matmul(u.T, matmul(gram, u)))
        worst = drawn.replace(y=u[:, 0], x_query=jnp.tile(along, (config.num_queries, 1)))
        tasks = jax.tree.map(lambda *fields: jnp.stack(fields), drawn, worst)

        def at_ridge(ridge: jax.Array) -> dict[str, jax.Array]:
            exact, other = (solve(K + ridge * eye, eye) for K in (gram, small(x, x)))
            model = constructions.conjugate_gradient(
                kernel, num_features=p, ridge=ridge, steps=m + 6, sketch=P
            )

            def errors(task: Task) -> dict[str, jax.Array]:
                k, k_ = (own(task.x_query, x) for own in (Linear(), small))
                f = solvers.exact(Linear(), task, ridge=ridge).prediction
                answers, on_sketch = (
                    predict(model, task),
                    matmul(k_, matmul(other, task.y[:, None])),
                )
                size = jnp.max(jnp.abs(on_sketch)) + jnp.max(jnp.abs(f))
                printed = matmul(k, matmul(exact - other, task.y[:, None]))[:, 0]
                return {
                    "error": jnp.abs(answers - f),
                    "printed": jnp.abs(printed),
                    "dual": theory.query_error_dual(k, task.y, spectral_norm(exact - other)),
                    "second": theory.query_error_features(k - k_, task.y, ridge),
                    "model_gap": jnp.max(jnp.abs(answers - on_sketch[:, 0])) / size,
                }

            return jax.vmap(errors)(tasks)

        return jax.lax.map(at_ridge, ridges)

    sketches = [sketch(name, turn, x, m) for name in ("best", "orthonormal")]
    return jax.lax.map(of_sketch, jnp.stack(sketches))


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
    "bounds the error, for the best sketch and for a random one whose queries and keys have the "
    "best metric. The second term dominates if y lies along an eigenvector of K that the sketch "
    "loses.",
    corrected="ours",
    source="Cawley 2025, docs/theory/width_rank.md, theorem",
    quote="[...] which yields a query prediction error bound for any x with feature vector phi(x): "
    "|k(x)^T [(K + lambda I)^-1 - (K^ + lambda I)^-1] y| <= ||k(x)||_2 ||y||_2 "
    "||(K + lambda I)^-1 - (K^ + lambda I)^-1||_2.",
    expected=CORRECTED,
    told=TASK,
    run=run,
    quick=Config(draws=5, num_queries=4, ridges=(0.1, 10.0)),
    plot=Plot(x="ridge", y="error", by=("sketch", "task"), bound="bound", logx=True),
)
