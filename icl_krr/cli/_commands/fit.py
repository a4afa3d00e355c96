"""`icl-krr fit`: fit hyperparameters by gradient through the forward pass."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from ..._core.text_tables import TextTable, format_number
from ...catalogue import taken
from ...catalogue._choices import KernelName
from ...experiments._shared.recipe import folder_of, holds_run
from .._options import ONE_DEVICE, Construction, OnDevices, checked, refuse_unused
from .._output import Outcome, working

if TYPE_CHECKING:
    from ...experiments._hyperparameters import FittedHyperparameters

UNITS = {
    "held-out": "mean squared error",
    "marginal-likelihood": "-log marginal likelihood per support",
}


@dataclass(frozen=True)
class Fit(Construction):
    """Fit the hyperparameters of a construction with gradients through its forward pass. DATA
    is a table or a trained model. For a table, the construction predicts the column --target. For
    a trained model, the construction predicts the outputs of that model. The command prints the
    hyperparameters before and after the fit, and the errors of the construction and the
    baselines on held-out data."""

    data: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="DATA")]] = tyro.MISSING
    """A table (such as table.csv), a trained model of the package (such as gp-encoder) or the
    folder of an icl-krr train run."""
    kernel: KernelName | None = None
    """Kernel of the regression; the solver must support the kernel.
    If None, the kernel of the Gaussian process that generated the training tasks of the model.
    If there is no such kernel or the solver does not support it, the first of linear, exponential
    and gaussian that the solver supports."""
    steps: int = 16
    """Number of solver steps that the transformer runs, >= 1."""
    target: Annotated[str | None, tyro.conf.arg(metavar="COLUMN")] = None
    """Column of the table to predict; required for a table."""
    objective: Literal["held-out", "marginal-likelihood"] = "held-out"
    """Quantity to optimise.
    "held-out" is the squared error at the queries.
    For a table, "held-out" predicts each quarter of the supports from the other three quarters.
    "marginal-likelihood" is the likelihood of the outputs of the supports."""
    method: Literal["adam", "lbfgs"] = "adam"
    """Optimiser."""
    iterations: int = 100
    """Maximum number of iterations of the optimiser."""
    fit_spectrum: bool = False
    """Also fit the bounds on the eigenvalues, which determine step sizes and momenta.
    Otherwise the bounds are computed from the tasks."""
    supports: int | None = None
    """Number of rows of the table used as supports.
    If None, three quarters of the rows, but at most 512."""
    tasks: int = 64
    """Number of tasks for the fit, if DATA is a trained model.
    The same number of other tasks is held out."""
    out: Path | None = None
    """Folder for fit.csv, moved.csv, meta.json, fit.png and fit.svg.
    If None, no files are written."""
    devices: OnDevices = ONE_DEVICE

    def refuse_options_without_effect(self) -> None:
        super().refuse_options_without_effect()
        if self.target is not None:
            refuse_unused(self, ["tasks"], "for a table")


def run(settings: Fit) -> Outcome:
    from ...experiments._hyperparameters import FitConfig, fit_hyperparameters
    from ...plots import fitting_figure
    from ...training import Diverged

    make_tasks, kernel = read_data(settings)
    config = checked(settings, FitConfig, kernel=kernel, centred=settings.target is not None)
    with working(settings) as show:
        show("compiling", 0, config.iterations)
        try:
            fitted = fit_hyperparameters(
                make_tasks(), config, lambda i, loss: show(f"loss {loss:.4g}", i, config.iterations)
            )
        except Diverged as error:
            raise ValueError(
                f"{error}; raise the temperature, the lengthscale or the ridge"
            ) from None
    result, facts = fitted.adapted, fitted.facts
    losses = [{"iteration": i, "loss": value} for i, value in enumerate(result.losses)]
    record = {"moved": [row._asdict() for row in result.moved], "errors": fitted.errors}
    title = f"{Path(settings.data).name}, seed {settings.seed}, {facts['dtype']}:\n"
    title += f"{config.solver}, {config.kernel} kernel"
    return Outcome(
        {"losses": losses, **record},
        summary(settings, fitted),
        {
            "fit.csv": losses,
            "moved.csv": record["moved"],
            "meta.json": record,
            "fit": partial(fitting_figure, result.losses, UNITS[config.objective], title),
        },
        {**facts, "stopped": result.stopped},
    )


def read_data(settings: Fit) -> tuple[Any, str | None]:
    """The function that makes the tasks, and the kernel; None leaves the choice to the solver."""
    from ...experiments._hyperparameters import of_run, of_table
    from ...experiments._shared.runs import find, load
    from ...tasks import read_table
    from ...tasks._division import default_num_supports

    if settings.target is not None:
        if holds_run(folder_of(settings.data)):
            raise ValueError(
                f"--target must not be given for a trained model, got {settings.target!r} for "
                f"{settings.data}; remove it"
            )
        table = read_table(settings.data, settings.target)
        supports = default_num_supports(table) if settings.supports is None else settings.supports
        return lambda: of_table(table, supports, settings.seed), settings.kernel
    if settings.data.endswith(".csv"):
        raise ValueError(f"target must be given for the table {settings.data}; use --target COLUMN")
    if settings.supports is not None:
        raise ValueError(
            f"--supports must not be given for a trained model, got {settings.supports}; remove it"
        )
    find(settings.data, "a table with --target COLUMN", name="data")
    run = load(settings.data)
    kernel, recipe = settings.kernel, run.recipe.task
    if kernel is None and recipe.family == "gaussian_process":
        kernel = recipe.kernel if recipe.kernel in taken(settings.solver) else None
    return lambda: of_run(run, settings.tasks, settings.seed), kernel


def summary(settings: Fit, fitted: FittedHyperparameters) -> list[TextTable | str]:
    result, facts = fitted.adapted, fitted.facts
    moved = [
        [row.name, f"{row.start:.4g}", f"{row.fitted:.4g}", format_number(row.change)]
        for row in result.moved
    ]
    errors = [[row["predictor"], f"{row['error']:.4g}"] for row in fitted.errors]
    title = f"{Path(settings.data).name}: fitted hyperparameters"
    return [
        TextTable(title, ["parameter", "start", "fitted", "relative change"], [moved]),
        TextTable("mean squared error on held-out data", ["predictor", "error"], [errors]),
        f"loss ({UNITS[facts['objective']]}): {result.losses[0]:.6g} at the start, "
        f"{min(result.losses):.6g} after {len(result.losses) - 1} iterations of {facts['method']}"
        f"{f'; {result.stopped}' if result.stopped else ''}\n"
        f"{facts['solver']} on the {facts['kernel']} kernel, {facts['steps']} steps\n"
        f"fitted on {facts['tasks']} tasks of n = {facts['n']} supports; held-out data: q = "
        f"{facts['q']} queries per task; p = {facts['p']} features, dtype = {facts['dtype']}, "
        f"seed = {settings.seed}\n"
        "errors are in units of y squared (for a table, 1 is the variance of y over the supports)",
    ]
