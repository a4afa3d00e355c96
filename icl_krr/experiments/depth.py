"""Depth by depth: how far a constructed transformer is from exact kernel ridge regression."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from .. import checks, constructions, solvers, theory
from ..kernels import Exponential, Kernel, Linear
from ..tasks import Task
from ..transformer import Transformer, run_with_cache
from .tuning import choose_ridge, choose_temperature

SOLVERS = ("conjugate-gradient", "gradient-descent", "nadaraya-watson")
KERNELS = ("linear", "exponential")


@dataclass(frozen=True)
class DepthConfig:
    """Which solver on which kernel, and how deep.

    `kernel` is by default the one that the solver is built on. `ridge` and `temperature` are
    > 0, or None to be chosen by leave-one-out on the supports.

    Raises ValueError for unknown names and numbers out of range.
    """

    solver: str = "conjugate-gradient"
    kernel: str | None = None
    ridge: float | None = None
    temperature: float | None = None
    steps: int = 16

    def __post_init__(self):
        checks.choice("solver", self.solver, SOLVERS)
        own = "exponential" if self.solver == "nadaraya-watson" else "linear"
        if self.kernel is None:
            object.__setattr__(self, "kernel", own)
        checks.choice("kernel", self.kernel, KERNELS)
        checks.count("steps", self.steps)
        for name in ("ridge", "temperature"):
            if getattr(self, name) is not None:
                checks.positive_scalar(name, getattr(self, name))
        if self.kernel != own:
            raise ValueError(
                f"kernel must be {own!r} for solver {self.solver!r}, got {self.kernel!r}"
            )


class Row(NamedTuple):
    """One predictor at one depth; gaps and errors are over the queries.

    `gap` = |f - f*| / |f*| to exact KRR f*, `oracle_gap` = |f - g| / |f*| to the oracle's
    iterate g of the same step (not divided where f* = 0), `rmse` to the queries' y; NaN where
    there is nothing to compare.
    """

    predictor: str
    step: int
    blocks: int
    gap: float
    oracle_gap: float
    rmse: float


class DepthResult(NamedTuple):
    rows: list[Row]
    baselines: list[Row]
    facts: dict[str, Any]


def run(task: Task, config: DepthConfig) -> DepthResult:
    """Predict with the construction at every depth, and with every baseline.

    Baselines are the zero and the mean of the supports' y, Nadaraya-Watson at its own
    temperature, and exact KRR; every hyperparameter that is not given is chosen alike.
    """
    if task.mask is not None:  # padding would count in means and sizes
        task = task.replace(x=task.x[task.mask], y=task.y[task.mask], mask=None)
    temperature = config.temperature or choose_temperature(task)
    softmax = Exponential(temperature)
    kernel: Kernel = softmax if config.kernel == "exponential" else Linear()
    ridge = config.ridge or choose_ridge(kernel, task)
    exact = solvers.exact(kernel, task, ridge=ridge)
    smooth = np.asarray(solvers.nadaraya_watson(softmax, task).prediction)
    model, path = build(kernel, task, ridge, config)
    _, cache = run_with_cache(model, task, names=("prediction",))
    best = np.asarray(exact.prediction)
    size = norm(best)

    def row(
        predictor: str, step: int, blocks: int, f: np.ndarray, oracle: np.ndarray | None = None
    ) -> Row:
        error = np.nan if task.y_query is None else norm(f - task.y_query) / np.sqrt(f.size)
        agreement = np.nan if oracle is None else relative(norm(f - oracle), size)
        return Row(predictor, step, blocks, relative(norm(f - best), size), agreement, error)

    prologue = len(model.weights.prologue)
    rows = [
        row("transformer", t, prologue + t * model.blocks_per_step, f, path[t])
        for t, f in enumerate(np.asarray(cache["prediction"]))
    ]
    mean = np.broadcast_to(np.mean(task.y, axis=0), best.shape)
    baselines = [
        row("zero", 0, 0, np.zeros_like(mean)),
        row("mean", 0, 0, mean),
        row("nadaraya-watson", 0, 0, smooth),
        row("exact", 0, 0, best),
    ]
    low, high = theory.spectral_bounds(kernel, task, ridge=ridge)
    sigma = theory.eigenvalues(kernel, task)
    facts = {
        **asdict(config),
        "ridge": float(ridge),
        "temperature": float(temperature),
        "chosen": [name for name in ("ridge", "temperature") if getattr(config, name) is None],
        "n": task.num_supports,
        "q": task.num_queries,
        "p": task.num_features,
        "r": task.num_outputs,
        "d_eff": float(theory.effective_dimension(sigma, ridge)),
        "cond": float(high / low),
        "exact_residual": float(exact.residual),
        "blocks_per_step": model.blocks_per_step,
        "depth": model.depth,
        "channels": model.layout.width,
        "dtype": str(task.x.dtype),
    }
    return DepthResult(rows, baselines, facts)


def build(
    kernel: Kernel, task: Task, ridge: float, config: DepthConfig
) -> tuple[Transformer, np.ndarray]:
    """The construction, and its oracle's predictions step by step."""
    sizes: dict[str, Any] = {"num_features": task.num_features, "num_outputs": task.num_outputs}
    if config.solver == "nadaraya-watson":
        smooth = np.asarray(solvers.nadaraya_watson(kernel, task).prediction)
        return constructions.nadaraya_watson(kernel, **sizes), np.stack([0 * smooth, smooth])
    common: dict[str, Any] = {"ridge": ridge, "steps": config.steps}
    if config.solver == "gradient-descent":
        common["spectrum"] = theory.spectral_bounds(kernel, task, ridge=ridge)
        model = constructions.gradient_descent(kernel, **sizes, **common)
        return model, np.asarray(solvers.gradient_descent(kernel, task, **common).prediction)
    model = constructions.conjugate_gradient(kernel, **sizes, **common)
    return model, np.asarray(solvers.conjugate_gradient(kernel, task, **common).prediction)


def norm(values: Any) -> float:
    return float(np.linalg.norm(np.asarray(values, np.float64)))


def relative(gap: float, size: float) -> float:
    return gap / size if size > 0 else gap
