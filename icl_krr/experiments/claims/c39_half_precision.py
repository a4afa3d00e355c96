"""C39: conjugate gradient and the Chebyshev iteration at each token in half precision."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from ... import constructions, solvers, theory
from ...kernels import Linear
from ...probes import round_slots
from ...tasks import LinearRegression, sample
from ...transformer import Transformer, run_with_hooks
from ..shared.draws import draws
from ..shared.rows import Plot, Rows, tidy
from .claim import CORRECTED, TASK, Claim, Verdict, at_least, compare, judge

FEATURES, STEPS = 4, 160
CONJUGATE, CHEBYSHEV = "conjugate gradient", "Chebyshev"
SUMS, VECTORS, STATE = ("rr", "rr_next", "dAd"), ("w", "r", "d"), ("C",)
CASES = (  # solver, rounded slots, their dtype, factor of x
    (CONJUGATE, SUMS, "float16", 1.0),
    (CONJUGATE, SUMS, "float16", 2.0**-4),
    (CONJUGATE, SUMS, "bfloat16", 1.0),
    (CHEBYSHEV, VECTORS, "float16", 1.0),
    (CONJUGATE, STATE, "bfloat16", 1.0),
    (CHEBYSHEV, STATE, "bfloat16", 1.0),
)
HIGH, SCALED, WIDE, NO_SUMS, STATE_OF_CG, STATE_OF_CHEBYSHEV = range(len(CASES))


@dataclass(frozen=True)
class Config:
    """Settings; conditions are those of C + ridge I, and the ridge follows from them."""

    draws: int = 8
    num_supports: int = 64
    conditions: tuple[float, ...] = (10.0, 100.0, 1000.0)


def run(config: Config, key: jax.Array) -> tuple[Rows, Verdict]:
    keys = draws(key, config.draws)
    conditions = jnp.asarray(config.conditions)
    each = [measure(keys, conditions, jnp.asarray(case[3]), case[:3], config) for case in CASES]
    gaps = np.stack(each, axis=1)  # [draw, case, condition]
    names = [f"{s}: {', '.join(slots)} in {d}, x times {f:g}" for s, slots, d, f in CASES]
    rows = tidy(
        {"draw": range(config.draws), "case": names, "condition": config.conditions}, gap=gaps
    )
    finite = np.isfinite(gaps)
    return rows, judge(
        compare(
            "C in bfloat16: median gap of Chebyshev / median gap of conjugate gradient <= 2 (our "
            "number)",
            np.median(gaps[:, STATE_OF_CHEBYSHEV], 0) / np.median(gaps[:, STATE_OF_CG], 0),
            2.0,
            stated=True,
        ),
        compare(
            "r.r and d.Ad of conjugate gradient in float16: share of finite predictions <= 0",
            np.mean(finite[:, HIGH]),
            0.0,
        ),
        compare(
            "the same, x times 1/16: |f - f0| / |f0| <= 0.05 at every condition",
            gaps[:, SCALED],
            0.05,
        ),
        compare("the same in bfloat16 instead: <= 1e-3", gaps[:, WIDE], 1e-3),
        compare(
            "Chebyshev, w, r, d in float16: <= 0.05 at every condition", gaps[:, NO_SUMS], 0.05
        ),
        compare("conjugate gradient, C in bfloat16: <= 0.05", gaps[:, STATE_OF_CG], 0.05),
        compare(
            "Chebyshev, C in bfloat16, condition 10: <= 0.05", gaps[:, STATE_OF_CHEBYSHEV, 0], 0.05
        ),
        at_least(
            "Chebyshev, C in bfloat16, condition 1000: largest of the draws >= 0.1",
            np.max(gaps[:, STATE_OF_CHEBYSHEV, -1]),
            0.1,
        ),
        amended=True,
    )


@partial(jax.jit, static_argnames=("rounding", "config"))
def measure(
    keys: jax.Array, conditions: jax.Array, factor: jax.Array, rounding: tuple, config: Config
) -> jax.Array:
    """Return |f - f0| / |f0| at the queries, [draw, condition]; f0 is exact ridge regression."""
    solver, slots, dtype = rounding
    n = config.num_supports
    family = LinearRegression(num_features=FEATURES, num_supports=n, num_queries=16)

    def once(key: jax.Array, condition: jax.Array) -> jax.Array:
        task = sample(key, family)
        task = task.replace(x=factor * task.x, x_query=factor * task.x_query)
        top = theory.eigenvalues(Linear(), task)[-1]
        ridge = top / (condition - 1)
        model = build(solver, ridge, top)
        exact = solvers.exact(Linear(), task, ridge=ridge).prediction
        f = run_with_hooks(model, task, round_slots(model, dict.fromkeys(slots, dtype)))
        return jnp.linalg.norm(f - exact) / jnp.linalg.norm(exact)

    return jax.lax.map(lambda key: jax.lax.map(partial(once, key), conditions), keys)


def build(solver: str, ridge: jax.Array, top: jax.Array) -> Transformer:
    """A solver at each token, with its state C in a slot and enough steps for all conditions."""
    common = {"num_features": FEATURES, "ridge": ridge, "stores_sums": True}
    if solver == CONJUGATE:
        return constructions.prefix_conjugate_gradient(Linear(), steps=2 * FEATURES, **common)
    bounds = (ridge, top + ridge)
    return constructions.prefix_chebyshev(Linear(), steps=STEPS, spectrum=bounds, **common)


CLAIM = Claim(
    title="solvers at each token in half precision",
    statement="At each token, a layer solves (C + ridge I) w = b, where C sums phi phi^T over the "
    "supports before it. In half precision, the Chebyshev iteration is more stable than conjugate "
    "gradient.",
    truth="It depends on what is rounded. Inner products of conjugate gradient overflow in float16 "
    "(d.Ad above 65504) and give NaN; bfloat16, or x scaled down, is enough for them. The Chebyshev "
    "iteration has no inner products and keeps its vectors in float16. But if the state C itself is "
    "rounded to bfloat16, conjugate gradient solves the rounded system, while eigenvalues of C + "
    "ridge I leave the interval that the Chebyshev iteration was told, and its error grows with "
    "every step. With a ridge in proportion to |C|, so that the condition number stays near 10, "
    "both are accurate.",
    corrected="ours",
    source="Peng et al. 2025, abstract",
    quote="x",
    expected=CORRECTED,
    told=TASK,
    run=run,
    config=Config(),
    quick=Config(draws=4, conditions=(10.0, 1000.0)),
    plot=Plot(x="condition", y="gap", by=("case",), logx=True),
)
