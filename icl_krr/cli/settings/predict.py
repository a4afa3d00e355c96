"""The settings of `icl-krr predict`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from .choices import Kernel
from .command import Folder
from .construction import Construction


@dataclass(frozen=True)
class Predict(Construction):
    """Predict a column of TABLE.csv with a constructed transformer. The rows of --queries are
    predicted from the rows of the table. Without --queries, random rows of the table are predicted
    from its other rows. Every column except the target is a feature. The command prints
    predictions with 95 % intervals, and the distance of the transformer to exact KRR at every
    depth. It computes in float64 where float32 has too few digits."""

    table: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="TABLE.csv")]] = tyro.MISSING
    """Comma-separated file with a header line."""
    target: Annotated[str, tyro.conf.arg(metavar="COLUMN")] = tyro.MISSING
    """Column to predict."""
    queries: Annotated[Path | None, tyro.conf.arg(metavar="QUERIES.csv")] = None
    """Comma-separated file with the rows to predict. It must have all feature columns of the
    table, and can have the target column.
    If None, the rows of the table that are not supports."""
    encode: bool = False
    """Encode columns of text: each different text becomes a column that is 0 or 1 (one-hot)."""
    missing: Literal["drop", "median"] | None = None
    """What to do about cells without a value: empty, NA, N/A, NaN, null or ?, in any case. "drop"
    leaves out their rows, and predicts nothing for such rows of --queries. "median" gives a number
    the median of its column in the table, and a text 0 in all of its columns (see --encode); rows
    of the table without a target are left out. A typing error is never missing.
    If None, such cells are refused."""
    supports: int | None = None
    """Number of rows of the table used as supports, drawn at random.
    If None, three quarters of the rows, but at most 512; all rows if --queries is given, but at
    most 1024."""
    kernel: Kernel | None = None
    """Kernel of the regression; the solver must support the kernel.
    If None, the kernel with the least leave-one-out error on the supports, of linear, exponential
    and gaussian."""
    amplitude: float | None = None
    """Amplitude s > 0 of the prior in squared units of the target: the covariance is s k(x, z), and
    the variance of the noise is s times the ridge. It scales the intervals, not the predictions.
    If None, the amplitude with the largest likelihood of the supports."""
    steps: int | None = None
    """Number of solver steps that the transformer runs, >= 1.
    If None, as many as the predictions need to converge, at most 256 in
    float32 and 1024 in float64."""
    out: Folder | None = None
    """Folder for predictions.csv, results.csv, meta.json, depth.png and depth.svg.
    If None, no files are written."""
