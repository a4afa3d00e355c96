"""The gap between a constructed transformer and exact kernel ridge regression at every depth."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from .. import capacity, checks, solvers, theory
from ..catalogue import KERNELS, SOLVERS, find, kernel_class, load, taken
from ..kernels import Exponential, Kernel
from ..probes import check
from ..tasks import Task, system
from ..transformer import run_with_cache
from .shared import model_selection
from .shared.build import build
from .shared.model_selection import Progress, silent

BANDWIDTHS = ("temperature", "lengthscale")
"""Bandwidths that a config can set. Leave-one-out chooses the bandwidth of any other kernel."""


@dataclass(frozen=True)
class DepthConfig:
    """A solver, a kernel, its hyperparameters and a number of steps.

    Args:
        solver: name of a solver in the catalogue; default "conjugate_gradient".
        kernel: name of a kernel; by default the first kernel that the solver takes.
        ridge: ridge > 0. By default leave-one-out on the supports chooses it.
        temperature: temperature > 0 of the exponential kernel. By default leave-one-out on the
            supports chooses it. The Nadaraya-Watson baseline always has a temperature of its own,
            chosen in the same way.
        lengthscale: lengthscale > 0 of the Gaussian kernel, with the same default.
        steps: number of solver steps, >= 1; default 16.

    Raises:
        ValueError: a name is unknown, the solver does not take the kernel, the kernel has no
            temperature or lengthscale, or a number is out of range.
    """

    solver: str = "conjugate_gradient"
    kernel: str | None = None
    ridge: float | None = None
    temperature: float | None = None
    lengthscale: float | None = None
    steps: int = 16

    def __post_init__(self):
        row = find("solver", SOLVERS, self.solver)
        object.__setattr__(self, "solver", row.name)
        takes = taken(row.name)
        kernel = find("kernel", KERNELS, takes[0] if self.kernel is None else self.kernel).name
        object.__setattr__(self, "kernel", kernel)
        checks.stored("steps", self.steps)
        own = kernel_class(kernel).bandwidth
        for name in ("ridge", *BANDWIDTHS):
            value = getattr(self, name)
            if value is None:
                continue
            checks.positive_scalar(name, value)
            if name in BANDWIDTHS and name != own:
                raise ValueError(
                    f"{name} must be None for kernel {kernel!r}, which has no {name}, got {value}"
                )
        if kernel not in takes:
            raise ValueError(
                f"kernel must be {' or '.join(map(repr, takes))} for solver {self.solver!r}, "
                f"got {kernel!r}"
            )


class Row(NamedTuple):
    """One predictor at one depth. Norms and means are over the queries.

    Attributes:
        predictor: name of the predictor.
        step: number of solver steps.
        blocks: number of transformer blocks up to this step.
        gap: |f - f*| / |f*|, where f* is the exact KRR prediction; |f - f*| if f* = 0.
        oracle_gap: |f - g| / |f*|, where g is the oracle's iterate of the same step; |f - g| if
            f* = 0, and NaN if the predictor has no oracle.
        rmse: root mean squared error of f against `y_query`; NaN if the task has no `y_query`.
        alpha_error: |alpha - alpha*|_A / |alpha*|_A with A = K + ridge I; NaN if the predictor has
            no alpha.
        bound: the proven bound on `alpha_error` at this step; NaN if the solver has none.
    """

    predictor: str
    step: int
    blocks: int
    gap: float
    oracle_gap: float
    rmse: float
    alpha_error: float = np.nan
    bound: float = np.nan


class DepthResult(NamedTuple):
    """Rows of the transformer and of the baselines, and facts about the task and the model."""

    rows: list[Row]
    baselines: list[Row]
    facts: dict[str, Any]


def run(task: Task, config: DepthConfig, progress: Progress = silent) -> DepthResult:
    """Predict with the construction at every depth, and with every baseline.

    The baselines are zero, the mean of the supports' y, Nadaraya-Watson and exact KRR.
    Nadaraya-Watson uses the exponential kernel if the kernel of the regression is not positive.
    Leave-one-out chooses every hyperparameter that the config does not set, separately for
    regression and for Nadaraya-Watson. `progress` is told what is being done.
    """
    if task.mask is not None:  # masked supports must not count in means and sizes
        task = task.replace(x=task.x[task.mask], y=task.y[task.mask], mask=None)
    # exact KRR in the dtype of the task, and its system in float64
    capacity.check("exact KRR", 6 * task.num_supports**2, task.x, "use fewer supports")
    kernel, smoother = choose_kernels(task, config, progress)
    ridge = config.ridge or model_selection.choose_ridge(kernel, task)
    progress("exact KRR and the solver itself")
    exact = solvers.exact(kernel, task, ridge=ridge)
    smooth = np.asarray(solvers.nadaraya_watson(smoother, task).prediction)
    solved_on = smoother if not SOLVERS[config.solver].iterates else kernel
    model, path = build(config.solver, solved_on, task, ridge, config.steps)
    progress("the transformer")
    slots = tuple(name for name in ("prediction", "alpha") if name in model.layout.names)
    _, cache = run_with_cache(model, task, names=slots)
    status = None if model.problem is None else check(model, task)
    best = np.asarray(exact.prediction)
    size = norm(best)

    def row(
        predictor: str, step: int, blocks: int, f: np.ndarray, oracle: np.ndarray | None = None
    ) -> Row:
        error = np.nan if task.y_query is None else norm(f - task.y_query) / np.sqrt(f.size)
        agreement = np.nan if oracle is None else relative(norm(f - oracle), size)
        return Row(predictor, step, blocks, relative(norm(f - best), size), agreement, error)

    progress("the eigenvalues of the kernel matrix")
    sigma = theory.eigenvalues(kernel, task)
    low, high = sigma[0] + ridge, sigma[-1] + ridge
    predictions = np.asarray(cache["prediction"])
    steps = np.arange(len(predictions))
    rate = SOLVERS[config.solver].rate
    at = steps.astype(task.x.dtype)
    bounds = np.asarray(load(rate)(low, high, at)) if rate else np.full(len(steps), np.nan)
    errors = alpha_errors(cache["alpha"], kernel, task, ridge) if "alpha" in slots else None
    blocks = len(model.weights.prologue) + steps * model.blocks_per_step
    rows = [
        row("transformer", t, int(blocks[t]), f, path[t])._replace(
            alpha_error=np.nan if errors is None else float(errors[t]), bound=float(bounds[t])
        )
        for t, f in enumerate(predictions)
    ]
    mean = np.broadcast_to(np.mean(task.y, axis=0), best.shape)
    baselines = [
        row("zero", 0, 0, np.zeros_like(mean)),
        row("mean", 0, 0, mean),
        row("nadaraya_watson", 0, 0, smooth),
        row("exact", 0, 0, best),
    ]
    facts = {
        **asdict(config),
        **bandwidth(kernel),
        **{f"smoother_{name}": value for name, value in bandwidth(smoother).items()},
        "ridge": float(ridge),
        "hyperparameters": [
            "ridge",
            *bandwidth(kernel),
            *(f"smoother_{name}" for name in bandwidth(smoother)),
        ],
        "chosen": [
            name for name in ("ridge", *bandwidth(kernel)) if getattr(config, name, None) is None
        ],
        "chosen_on": min(task.num_supports, model_selection.MOST["regression"]),
        "n": task.num_supports,
        "q": task.num_queries,
        "p": task.num_features,
        "r": task.num_outputs,
        "d_eff": float((sigma / (sigma + ridge)).sum()),  # NaN if the kernel overflows
        "cond": float(high / low),
        "exact_residual": float(exact.residual),
        "status": None if status is None else {k: v.item() for k, v in status._asdict().items()},
        "advice": "" if status is None else status.advice(),
        "attention": model.spec.attention,
        "blocks_per_step": model.blocks_per_step,
        "depth": model.depth,
        "heads": model.num_heads,
        "mlp_width": model.mlp_width,
        "channels": model.layout.width,
        "dtype": str(task.x.dtype),
    }
    return DepthResult(rows, baselines, facts)


def alpha_errors(alpha: Any, kernel: Kernel, task: Task, ridge: float) -> np.ndarray:
    """|alpha_t - alpha*|_A / |alpha*|_A after every step, with alpha* in float64.

    NaN if A is singular.
    """
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
    return np.sqrt(squares / (size or 1.0))


def families(kernel: str) -> tuple[type[Kernel], type[Kernel]]:
    """The class of the kernel, and that of the Nadaraya-Watson baseline's kernel.

    Nadaraya-Watson needs a positive kernel. If the kernel is not positive, the baseline's kernel
    is exponential.
    """
    row = find("kernel", KERNELS, kernel)
    family = load(row.made_by)
    return family, family if row.kind == "positive" else Exponential


def choose_kernels(
    task: Task, config: DepthConfig, progress: Progress = silent
) -> tuple[Kernel, Kernel]:
    """The kernels of the regression and of the Nadaraya-Watson baseline."""
    family, smooths = families(str(config.kernel))
    given = vars(config).get(str(family.bandwidth))
    if given is None:
        smoother = model_selection.choose_smoother(smooths, task, progress)
        kernel = model_selection.choose_kernel(family, task, config.ridge, progress)
        return kernel, smoother
    kernel = family.of_bandwidth(given)
    if SOLVERS[config.solver].iterates:
        return kernel, model_selection.choose_smoother(smooths, task, progress)
    return kernel, kernel


def bandwidth(kernel: Kernel) -> dict[str, float]:
    name = kernel.bandwidth
    return {} if name is None else {name: float(getattr(kernel, name))}


def norm(values: Any) -> float:
    return float(np.linalg.norm(np.asarray(values, np.float64)))


def relative(gap: float, size: float) -> float:
    return gap / size if size > 0 else gap
