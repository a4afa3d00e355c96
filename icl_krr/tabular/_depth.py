"""The gap between a constructed transformer and exact kernel ridge regression at every depth."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .. import Kernel, run_with_cache, solvers, theory
from .._core import memory_limit
from .._core.rounding import in_float64
from .._core.status import TOLERANCE
from ..catalogue import SOLVERS
from ..kernels import name_of
from ..probes._check import check, slots_read
from ..solvers import _accuracy
from ..tasks import Task, system
from . import _model_selection
from ._build import build, build_model
from ._depth_config import Chosen, DepthConfig, bandwidth, choose
from ._model_selection import Progress, silent


class Row(NamedTuple):
    """One predictor at one depth. Norms and means are over the queries."""

    predictor: str
    step: int
    blocks: int  # number of transformer blocks up to this step
    gap: float  # |f - f*| / |f*|, where f* is the exact KRR prediction; |f - f*| if f* = 0
    # |f - g| / |f*|, where g is the oracle's iterate of the same step; |f - g| if f* = 0, and
    # NaN if the predictor has no oracle
    oracle_gap: float
    rmse: float  # root mean squared error of f against `y_query`; NaN if the task has no `y_query`
    # |alpha - alpha*|_A / |alpha*|_A with A = K + ridge I; NaN if the predictor has no alpha
    alpha_error: float = np.nan
    bound: float = np.nan  # proven bound on `alpha_error` at this step; NaN if there is none


class DepthResult(NamedTuple):
    """Rows of the transformer and of the baselines, and facts about the task and the model."""

    rows: list[Row]  # one row for every depth of the transformer
    baselines: list[Row]  # one row for every baseline
    facts: dict[str, Any]  # hyperparameters, sizes and status
    predictions: dict[str, np.ndarray]  # at the queries; the last ones of the transformer
    kernel: Kernel


def run(
    task: Task, config: DepthConfig, progress: Progress = silent, chosen: Chosen | None = None
) -> DepthResult:
    """Predict at every depth, and with every baseline; `chosen` holds earlier choices."""
    if task.mask is not None:  # masked supports must not count in means and sizes
        task = task.replace(x=task.x[task.mask], y=task.y[task.mask], mask=None)
    check_size(task)
    chosen = chosen or choose(task, config, progress)
    (kernel, smoother, errors), ridge = chosen.kernels, chosen.ridge
    progress("exact KRR and the solver itself")
    exact = solvers.exact(kernel, task, ridge=ridge)
    best = np.asarray(exact.prediction)
    smooth = np.asarray(solvers.nadaraya_watson(smoother, task).prediction)
    solved_on = smoother if not SOLVERS[config.solver].iterates else kernel
    steps, reason, most = config.steps or 1, "given", 0
    if config.steps is None and SOLVERS[config.solver].iterates:
        progress("the transformer with many steps")
        steps, reason, most = steps_needed(config.solver, kernel, task, ridge)
    model, path = build(config.solver, solved_on, task, ridge, steps)
    progress("the transformer")
    slots = slots_read(model, task)  # one program for this run and that of the check
    _, cache = run_with_cache(model, task, names=slots)
    status = None if model.problem is None else check(model, task)
    size = norm(best)
    truth = None if task.y_query is None else np.asarray(task.y_query)

    def row(predictor: str, step: int, blocks: int, f: np.ndarray, oracle: Any = None) -> Row:
        error = np.nan if truth is None else norm(f - truth) / np.sqrt(f.size)
        agreement = np.nan if oracle is None else relative(norm(f - oracle), size)
        return Row(predictor, step, blocks, relative(norm(f - best), size), agreement, error)

    progress("the eigenvalues of the kernel matrix")
    sigma = np.asarray(theory.eigenvalues(kernel, task))
    low, high = sigma[0] + ridge, sigma[-1] + ridge
    predictions = np.asarray(cache["prediction"])
    depths = np.arange(len(predictions))
    rate = SOLVERS[config.solver].rate or theory.RATES.get(config.solver)
    at = depths.astype(task.x.dtype)
    bounds = np.asarray(rate(low, high, at)) if rate else np.full(len(depths), np.nan)
    wrong = alpha_errors(cache["alpha"], kernel, task, ridge) if "alpha" in slots else None
    blocks = len(model.weights.prologue) + depths * model.blocks_per_step
    rows = [
        row("transformer", t, int(blocks[t]), f, path[t])._replace(
            alpha_error=np.nan if wrong is None else float(wrong[t]), bound=float(bounds[t])
        )
        for t, f in enumerate(predictions)
    ]
    mean = np.broadcast_to(np.mean(np.asarray(task.y), axis=0), best.shape)
    baseline = {"zero": np.zeros_like(mean), "mean": mean, "nadaraya_watson": smooth, "exact": best}
    baselines = [row(name, 0, 0, values) for name, values in baseline.items()]
    widths = {} if chosen.each else bandwidth(kernel)
    widths |= {f"smoother_{name}": value for name, value in bandwidth(smoother).items()}
    facts = {
        **asdict(config),
        "kernel": name_of(kernel),
        "steps": steps,
        "steps_because": reason,
        "most_steps": most,
        "leave_one_out": errors,
        **widths,
        "ridge": float(ridge),
        "hyperparameters": ["ridge", *widths],
        "chosen": chosen.names,
        "edges": chosen.edges,
        "loo_result": chosen.loo_result and chosen.loo_result._asdict(),
        "each": chosen.each
        and {
            "bandwidths": chosen.each.bandwidths.tolist(),
            "most": chosen.each.most,
            "log_likelihood": chosen.each.evidence,
            "importance": chosen.each.importance.tolist(),
            "leave_one_out": chosen.each.errors,
        },
        "chosen_on": min(task.num_supports, _model_selection.MOST["regression"]),
        "n": task.num_supports,
        "q": task.num_queries,
        "p": task.num_features,
        "r": task.num_outputs,
        "d_eff": float((sigma / (sigma + ridge)).sum()),  # NaN if the kernel overflows
        "cond": float(high / low),
        "exact_residual": float(exact.residual),
        "exact_ok": bool(exact.status.ok),
        "status": None if status is None else {k: v.item() for k, v in status._asdict().items()},
        # a command has neither the model nor its spectrum
        "advice": "" if status is None else status._replace(spectrum=False, model=False).advice(),
        "attention": model.spec.attention,
        "blocks_per_step": model.blocks_per_step,
        "depth": model.depth,
        "heads": model.num_heads,
        "mlp_width": model.mlp_width,
        "channels": model.layout.width,
        "dtype": str(task.x.dtype),
    }
    return DepthResult(rows, baselines, facts, baseline | {"transformer": predictions[-1]}, kernel)


def check_size(task: Task) -> None:
    """Raise MemoryError unless exact KRR fits, with its system in float64, too."""
    memory_limit.check("exact KRR", 6 * task.num_supports**2, task.x, "use fewer supports")


MOST_STEPS = {"float32": (256,), "float64": (256, 1024)}
"""The most steps of a transformer whose number of steps is not given, one after the other."""

CONVERGED = 0.1 * TOLERANCE
"""The error at which predictions have converged, if the number of steps is not given."""


def steps_needed(solver: str, kernel: Kernel, task: Task, ridge: float) -> tuple[int, str, int]:
    """The number of steps after which the predictions first converge, "converged", and the limit.

    If they do not within `MOST_STEPS`: that of the smallest error, "nearest", and the limit.
    """
    nearest, most = 0, 0
    for most in MOST_STEPS[str(task.x.dtype)]:
        model = build_model(solver, kernel, task, ridge, most)
        _, cache = run_with_cache(model, task, names=("prediction",))
        path = np.asarray(cache["prediction"])[1:]
        errors = np.asarray(in_float64(errors_of_steps, kernel, task, ridge, path))
        converged = errors <= CONVERGED
        if converged.any():
            return 1 + int(np.argmax(converged)), "converged", most
        nearest = 1 + int(np.argmin(errors))
    return nearest, "nearest", most


@jax.jit
def errors_of_steps(kernel: Kernel, task: Task, ridge: Any, predictions: jax.Array) -> jax.Array:
    """The `Status.error` after each step, as `check` measures it."""
    task = task.astype(jnp.result_type(float))
    best = solvers.exact(kernel, task, ridge=ridge).prediction.reshape(task.num_queries, -1)
    f = predictions.astype(best.dtype).reshape(-1, *best.shape)
    return _accuracy.relative_errors(f, best, task.y.reshape(task.num_supports, -1))


def alpha_errors(alpha: Any, kernel: Kernel, task: Task, ridge: float) -> np.ndarray:
    """`Row.alpha_error` after every step, in float64; NaN if A is not positive definite."""
    y = np.asarray(task.y, np.float64).reshape(task.num_supports, -1)
    A = np.array(system(kernel, task).gram, np.float64)
    A[np.diag_indices(len(A))] += float(ridge)
    try:
        best = np.linalg.solve(A, y)
    except np.linalg.LinAlgError:
        return np.full(len(alpha), np.nan)
    alpha = np.asarray(alpha, np.float64).reshape(-1, *best.shape)
    size = float(np.sum(best * y))
    squares = np.einsum("tnr,nm,tmr->t", alpha - best, A, alpha - best)
    return np.sqrt(np.where(squares >= 0, squares, np.nan) / (size if size > 0 else 1.0))


def norm(values: Any) -> float:
    return float(np.linalg.norm(np.asarray(values, np.float64)))


def relative(gap: float, size: float) -> float:
    return gap / size if size > 0 else gap
