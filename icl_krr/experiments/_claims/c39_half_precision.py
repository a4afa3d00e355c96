"""C39: solvers at each token in half precision."""

import jax
import jax.numpy as jnp
import numpy as np

from ... import Linear, Task, constructions, run_with_hooks, solvers, theory
from ..._core.numerics import matmul
from ...probes import round_slots
from .._shared.spectra import of_rank
from .claim import CORRECTED, THIS_TASK, Checks, Claim, Config, check, stated
from .measuring import Plot, Rows, every, gap, tidy

FEATURES, RANK, STEPS = 8, 4, 200
CONJUGATE, CHEBYSHEV = "conjugate gradient", "Chebyshev"
SUMS, VECTORS, STATE = ("rr", "rr_next", "pAp"), ("w", "r", "d"), ("C",)
CASES = (  # solver, rounded slots, their dtype, length of x
    (CONJUGATE, SUMS, "float16", 16.0),
    (CONJUGATE, SUMS, "float16", 0.25),
    (CONJUGATE, SUMS, "bfloat16", 16.0),
    (CHEBYSHEV, VECTORS, "float16", 16.0),
    (CONJUGATE, STATE, "bfloat16", 1.0),
    (CHEBYSHEV, STATE, "bfloat16", 1.0),
)
LONG, SHORT, WIDE, NO_SUMS, STATE_OF_CG, STATE_OF_CHEBYSHEV = range(len(CASES))


def run(config: Config, key: jax.Array) -> tuple[Rows, Checks]:
    conditions = jnp.asarray(config.conditions)
    gaps = np.stack([measure(key, conditions, case, config) for case in CASES], axis=1)
    names = [f"{s}: {', '.join(slots)} in {d}, |x| = {f:g}" for s, slots, d, f in CASES]
    axes = {"draw": range(config.draws), "case": names, "condition": config.conditions}
    rows = tidy(axes, gap=gaps)
    of_cg, of_chebyshev = gaps[:, STATE_OF_CG], gaps[:, STATE_OF_CHEBYSHEV]
    lowest = smallest_eigenvalues(key, conditions[-1], config)
    share = check(np.mean(np.isfinite(gaps[:, LONG])), reading="inner products in float16")
    largest = np.max(of_chebyshev[:, -1])
    return rows, {
        "C in bfloat16: median gap of Chebyshev / median gap of conjugate gradient <= 2 (our "
        "number)": stated(np.median(of_chebyshev, axis=0) / np.median(of_cg, axis=0)),
        "|x| = 16, r.r and d.Ad of conjugate gradient in float16: share of finite gaps <= 0": share,
        "the same, |x| = 1/4: |f - f*| / |f*| <= 0.05": gaps[:, SHORT],
        "the same, |x| = 16, bfloat16: <= 0.05": gaps[:, WIDE],
        "|x| = 16, w, r, d of Chebyshev in float16: <= 0.05": gaps[:, NO_SUMS, 0],
        "C in bfloat16, condition 10000: "
        "median lowest eigenvalue of C + ridge I / ridge <= 0": np.median(lowest),
        "C in bfloat16, conjugate gradient, every condition: <= 0.2": of_cg,
        "C in bfloat16, Chebyshev, condition 10: <= 0.05": of_chebyshev[:, 0],
        "C in bfloat16, Chebyshev, condition 10000: largest of the draws >= 0.2": largest,
    }


@every(1, 1, static=("case", "config"))
def measure(key: jax.Array, condition: jax.Array, case: tuple, config: Config) -> jax.Array:
    """Return |f - f*| / |f*| at the queries [draw, condition]; f* is exact ridge regression."""
    solver, slots, dtype, length = case
    task = regression(key, length, config.num_supports)
    top = theory.eigenvalues(Linear(), task)[-1]
    ridge = top / (condition - 1)
    # a solver at each token, with its state C in a slot
    common = {"num_features": FEATURES, "ridge": ridge, "stores_sums": True}
    if solver == CONJUGATE:
        model = constructions.prefix_conjugate_gradient(Linear(), steps=2 * FEATURES, **common)
    else:
        bounds = (ridge, top + ridge)
        model = constructions.prefix_chebyshev(Linear(), steps=STEPS, spectrum=bounds, **common)
    exact = solvers.exact(Linear(), task, ridge=ridge).prediction
    return gap(run_with_hooks(model, task, round_slots(model, dict.fromkeys(slots, dtype))), exact)


def regression(key: jax.Array, length: float, num_supports: int) -> Task:
    """Linear regression on x of this length in a subspace, so that C has eigenvalues 0."""
    at, true, noise = jax.random.split(key, 3)
    x = of_rank(RANK, at, "1/sqrt i", FEATURES, num_supports + 16)
    x = x / jnp.linalg.norm(x, axis=1, keepdims=True)
    y = jnp.sum(x * jax.random.normal(true, (1, FEATURES)), axis=1)[:num_supports]
    y = y + 0.1 * jax.random.normal(noise, y.shape)
    return Task(x=length * x[:num_supports], y=y, x_query=length * x[num_supports:])


@every()
def smallest_eigenvalues(key: jax.Array, condition: jax.Array, config: Config) -> jax.Array:
    """The smallest eigenvalue of C + ridge I over the ridge, with C in bfloat16, for each draw."""
    info = jnp.finfo("bfloat16")
    x = regression(key, 1.0, config.num_supports).x
    C = matmul(x.T, x)
    ridge = jnp.linalg.eigvalsh(C)[-1] / (condition - 1)
    C = jax.lax.reduce_precision(C, info.nexp, info.nmant)
    return jnp.linalg.eigvalsh(C)[0] / ridge + 1


CLAIM = Claim(
    statement="At each token, a layer solves (C + ridge I) w = b, where C and b sum phi phi^T and "
    "phi y over the supports before it. In half precision, the Chebyshev iteration is more stable "
    "than conjugate gradient.",
    truth="It depends on what is rounded. Inner products of conjugate gradient overflow in float16 "
    "(values above 65504) and give NaN; bfloat16, or x of length 1/4, is enough for them. The "
    "Chebyshev iteration has no inner products and keeps its vectors in float16. But if the state "
    "C is rounded to bfloat16 and the ridge is small, C + ridge I is not positive definite. "
    "Conjugate gradient with the right-hand side b, in twice as many steps as features, still "
    "predicts well. The Chebyshev iteration was told an interval that the eigenvalues have left, "
    "and its error grows with every step. With a ridge in proportion to |C|, as in that work, the "
    "condition number stays low and both are accurate.",
    source="Peng et al. 2025, abstract",
    quote="(2) the use of Chebyshev Iteration instead of other conventional iterative solvers, "
    "which we demonstrate to be more stable in low-precision settings.",
    expected=CORRECTED,
    required_inputs=THIS_TASK,
    run=run,
    # the ridge follows from the condition number of C + ridge I.
    config=Config(draws=8, num_supports=64),
    axes=Config(conditions=(10.0, 100.0, 10000.0)),
    quick=Config(draws=4, conditions=(10.0, 10000.0)),
    plot=Plot(x="condition", y="gap", by=("case",), logx=True),
)
