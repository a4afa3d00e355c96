"""Depth by depth: how far a constructed transformer is from exact kernel ridge regression."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from .. import checks, solvers, theory
from ..catalogue import KERNELS, SOLVERS, find, load, taken
from ..kernels import Exponential, Kernel
from ..tasks import Task
from ..transformer import run_with_cache
from .shared import model_selection
from .shared.build import build

BANDWIDTHS = ("temperature", "lengthscale")
"""Bandwidths that can be given; one of another name is chosen by leave-one-out."""


@dataclass(frozen=True)
class DepthConfig:
    """Which solver on which kernel, and how deep.

    `kernel` is by default the first that the solver takes. `ridge`, `temperature` (of the
    exponential kernel) and `lengthscale` (of the Gaussian) are > 0, or None to be chosen by
    leave-one-out on the supports, for regression and for the Nadaraya-Watson baseline each.

    Raises ValueError for unknown names, a kernel that the solver cannot take and numbers out of
    range.
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
        checks.count("steps", self.steps)
        for name in ("ridge", *BANDWIDTHS):
            if getattr(self, name) is not None:
                checks.positive_scalar(name, getattr(self, name))
        if kernel not in takes:
            raise ValueError(
                f"kernel must be {' or '.join(map(repr, takes))} for solver {self.solver!r}, "
                f"got {kernel!r}"
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

    Baselines are the zero and the mean of the supports' y, Nadaraya-Watson (on the exponential
    kernel beside linear regression), and exact KRR; every hyperparameter that is not given is
    chosen alike, for regression and for Nadaraya-Watson each.
    """
    if task.mask is not None:  # padding would count in means and sizes
        task = task.replace(x=task.x[task.mask], y=task.y[task.mask], mask=None)
    kernel, smoother = choose_kernels(task, config)
    ridge = config.ridge or model_selection.choose_ridge(kernel, task)
    exact = solvers.exact(kernel, task, ridge=ridge)
    smooth = np.asarray(solvers.nadaraya_watson(smoother, task).prediction)
    solved_on = smoother if not SOLVERS[config.solver].iterates else kernel
    model, path = build(config.solver, solved_on, task, ridge, config.steps)
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
        row("nadaraya_watson", 0, 0, smooth),
        row("exact", 0, 0, best),
    ]
    low, high = theory.spectral_bounds(kernel, task, ridge=ridge)
    sigma = theory.eigenvalues(kernel, task)
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
        "n": task.num_supports,
        "q": task.num_queries,
        "p": task.num_features,
        "r": task.num_outputs,
        "d_eff": float(theory.effective_dimension(sigma, ridge)),
        "cond": float(high / low),
        "exact_residual": float(exact.residual),
        "attention": model.spec.attention,
        "blocks_per_step": model.blocks_per_step,
        "depth": model.depth,
        "heads": model.num_heads,
        "mlp_width": model.mlp_width,
        "channels": model.layout.width,
        "dtype": str(task.x.dtype),
    }
    return DepthResult(rows, baselines, facts)


def families(kernel: str) -> tuple[type[Kernel], type[Kernel]]:
    """The class of a kernel, and that of the smoother beside it: its own if that can smooth."""
    row = find("kernel", KERNELS, kernel)
    family = load(row.made_by)
    return family, family if row.kind == "positive" else Exponential


def choose_kernels(task: Task, config: DepthConfig) -> tuple[Kernel, Kernel]:
    """The kernel of the regression, and that of the Nadaraya-Watson baseline."""
    family, smooths = families(str(config.kernel))
    for name in BANDWIDTHS:
        if name != smooths.bandwidth and getattr(config, name) is not None:
            raise ValueError(
                f"{name} must be left to a kernel that has one, got {getattr(config, name)} and "
                f"the kernel {config.kernel!r}"
            )
    given = getattr(config, smooths.bandwidth) if smooths.bandwidth in BANDWIDTHS else None
    smoother = (
        model_selection.choose_smoother(smooths, task)
        if given is None
        else smooths.of_bandwidth(given)
    )
    if family is not smooths:
        return family(), smoother
    if given is None:
        return model_selection.choose_kernel(family, task, config.ridge), smoother
    return smoother, smoother


def bandwidth(kernel: Kernel) -> dict[str, float]:
    name = kernel.bandwidth
    return {} if name is None else {name: float(getattr(kernel, name))}


def norm(values: Any) -> float:
    return float(np.linalg.norm(np.asarray(values, np.float64)))


def relative(gap: float, size: float) -> float:
    return gap / size if size > 0 else gap
