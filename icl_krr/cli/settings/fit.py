"""What `icl-krr fit` can be told."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from .construction import Construction


@dataclass(frozen=True)
class Fit(Construction):
    """Fit the construction's hyperparameters by gradient through the forward. DATA is a table, of
    which --target is to be predicted, or a run of icl-krr train, shipped or in a folder, whose
    predictions are. Prints what moved, and errors beside the baselines on what is held apart."""

    data: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="DATA")]] = tyro.MISSING
    """Such as table.csv, gp-encoder, or a folder."""
    target: Annotated[str | None, tyro.conf.arg(metavar="COLUMN")] = None
    """Column of the table to predict."""
    objective: Literal["held-out", "marginal-likelihood"] = "held-out"
    """Squared error at queries: each quarter of a table's supports from the others, or the tasks
    of a run; or the likelihood of the supports' outputs."""
    method: Literal["adam", "lbfgs"] = "adam"
    """Optimiser."""
    iterations: int = 100
    """Its iterations at most."""
    fit_spectrum: bool = False
    """Fit the bounds on the eigenvalues too, and with them step sizes and momenta, which otherwise
    follow from the tasks."""
    supports: int | None = None
    """Rows of the table used as supports; by default three quarters of them, 512 at most."""
    tasks: int = 64
    """Tasks of a run that are fitted to, and as many held apart."""
    out: Path | None = None
    """Folder for fit.csv, moved.csv, meta.json, fit.png and .svg; no files if absent."""
