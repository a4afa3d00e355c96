"""C43: CG on a normalised softmax head, the normaliser in the sums."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ... import Exponential, Gaussian, constructions, run_with_cache, solvers, theory
from ...tasks import GaussianProcess, sample, system
from .claim import HOLDS, TASK_FAMILY, Checks, Claim, Config, at_most, stated
from .measuring import Plot, Rows, every, first_below, gap, sizes, slot_gaps, tidy

FIRST, LIMIT, STATES = 6, 1e-6, ("alpha", "p", "prediction")
PCG = "preconditioned_conjugate_gradient"
KNOWN: dict[str, Any] = {"preconditioner": "normaliser"}
KINDS = {  # with the interval of steps / steps of plain conjugate gradient
    "exponential kernel, normal x": (Exponential(1.0), "normal", (0.5, 0.85)),
    "exponential kernel, sphere": (Exponential(1.0), "sphere", (0.95, 1.7)),
    "Gaussian kernel, normal x": (Gaussian(1.0), "normal", (0.95, 1.7)),
}


def run(config: Config, key: jax.Array) -> tuple[Rows, Checks]:
    rows, checks = [], {}
    for kind, (_, _, interval) in KINDS.items():
        results = measure(key, kind, config)
        steps = first_below(results.path, LIMIT)
        axes = {"kind": [kind], "draw": range(config.draws), "solver": ("normaliser", "plain")}
        rows += tidy(axes, steps=steps[None], condition=results.condition[None])
        ratio = np.median(steps[:, 0] / steps[:, 1])
        slots = stated(results.slots)
        checks |= {
            f"{kind}: |slots - iterates of PCG| / |iterates| <= 1e-9, first steps": slots,
            f"{kind}: |f - f*| / |f*| <= 1e-8 after the last step": stated(results.error),
            f"{kind}: median of steps / steps of plain CG in {list(interval)}": ratio,
        }
    model = getattr(constructions, PCG)(Exponential(), num_features=3, ridge=1.0, steps=1, **KNOWN)
    units = [unit for block in model.weights.steps for unit in block.mlp if unit.gate is not None]
    written = {unit.to for unit in units if "normaliser_support" in unit.gate.slots}  # pyright: ignore[reportOptionalMemberAccess]
    others = len(written - {"weighted_p", "weighted_z"})
    checks["slots other than summands with the normaliser as a factor <= 0"] = at_most(others, 0)
    checks["blocks in one step <= 8"] = at_most(model.blocks_per_step, 8)
    return rows, checks


@every(static=("kind", "config"))
def measure(key: jax.Array, kind: str, config: Config) -> dict[str, jax.Array]:
    """Return gaps to PCG, the error of f, and A-norm errors and conditions of both solvers."""
    (kernel, inputs, _), ridge = KINDS[kind], config.ridge
    process = GaussianProcess(kernel, **sizes(config), num_features=3, num_queries=8, inputs=inputs)
    task = sample(key, process)
    options = {"num_features": 3, "ridge": ridge, "steps": config.steps}
    preconditioned, plain = getattr(constructions, PCG), constructions.conjugate_gradient
    models = preconditioned(kernel, **options, **KNOWN), plain(kernel, **options)
    cache, other = (run_with_cache(model, task, names=STATES)[1] for model in models)
    path = getattr(solvers, PCG)(kernel, task, ridge=ridge, steps=FIRST, **KNOWN)
    exact = solvers.exact(kernel, task, ridge=ridge)
    A = system(kernel, task).gram + ridge * jnp.eye(task.num_supports)
    errors = [theory.energy_norm(A, each["alpha"] - exact.alpha[None]) for each in (cache, other)]
    sigma = theory.preconditioned_eigenvalues(kernel, task, ridge=ridge, sink=ridge)
    low, high = theory.spectral_bounds(kernel, task, ridge=ridge)
    return {
        "slots": slot_gaps(cache, path, *STATES),
        "error": gap(cache["prediction"][-1], exact.prediction),
        "path": jnp.stack(errors) / errors[0][0],
        "condition": jnp.stack([sigma[-1] / sigma[0], high / low]),
    }


CLAIM = Claim(
    statement="Conjugate gradient on A = K + ridge I runs on the output of a softmax head as it "
    "is, (D + ridge)^-1 K p, where D has the row sums of K. In a step, the normaliser D + ridge is "
    "a factor of the values that are summed over the supports, and of nothing else. The model "
    "converges to f*, exact kernel ridge regression.",
    truth="This is conjugate gradient with the preconditioner D + ridge. A step takes 8 blocks, "
    "and 7 if the normaliser is undone (C3). It takes fewer steps where the row sums differ much: "
    "for the exponential kernel of temperature 1 and normal x, about 0.6 to 0.7 times those of "
    "plain conjugate gradient to the error 1e-6. On the sphere it takes as many, and for the "
    "Gaussian kernel 1.5 times as many.",
    source="Cawley 2025, docs/theory/route_a.md",
    quote="Work in the exponential-kernel space directly, interpreting softmax weights as "
    "normalized kernel smoother and folding normalization into value channels and aggregator "
    "reductions",
    expected=HOLDS,
    required_inputs=TASK_FAMILY,
    run=run,
    config=Config(draws=20, num_supports=48, ridge=1.0, steps=100),
    quick=Config(draws=5, steps=80),
    plot=Plot(x="condition", y="steps", by=("kind", "solver"), logx=True),
)
