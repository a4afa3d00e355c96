"""The settings of `icl-krr fit`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

from .choices import Kernel
from .command import Folder, refuse_unused
from .construction import Construction
from .devices import ONE_DEVICE, OnDevices


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
    kernel: Kernel | None = None
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
    out: Folder | None = None
    """Folder for fit.csv, moved.csv, meta.json, fit.png and fit.svg.
    If None, no files are written."""
    devices: OnDevices = ONE_DEVICE

    def refuse_options_without_effect(self) -> None:
        super().refuse_options_without_effect()
        if self.target is not None:
            refuse_unused(self, ["tasks"], "for a table")
