"""Tables of real data, read from CSV files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from .._core import checks
from .._core.messages import one_line, short_repr, suggestion
from .._core.readable import readable
from ._cells import DROP, MEDIAN, METHODS, Cells, cell_faults, read_cells, refuse, separator
from ._columns import Column, Scaling, columns_of, date_faults, present


@readable
@dataclass(frozen=True)
class Table:
    """A table of numbers with named feature columns and a named target column.

    Args:
        features: names of the p feature columns.
        target: name of the target column.
        columns: the columns of the file that became the features; default (), none were encoded.
        dropped: rows of the file that are left out because a cell is missing, from 1 for the first
            below the header; default (), none.
        filled: cells that were missing and filled, bool [rows, columns]; default None, none.

    >>> len(Table(np.ones((2, 1)), np.zeros(2), features=("age",), target="progression"))
    2
    """

    x: np.ndarray
    y: np.ndarray
    features: tuple[str, ...]
    target: str
    columns: tuple[Column, ...] = ()
    dropped: tuple[int, ...] = ()
    filled: Any = None

    def __post_init__(self):
        for name, value in (("x", self.x), ("y", self.y)):
            checks.array(name, value)
            checks.numeric(name, value)
            checks.finite(name, value)
        checks.names("features", self.features)
        checks.instance("target", self.target, str, "the name of a column")
        if self.x.shape[1:] != (len(self.features),) or self.y.shape != self.x.shape[:1]:
            raise ValueError(
                f"x must be [rows, p] with p = {len(self.features)} features and y [rows], got "
                f"shapes {list(self.x.shape)} and {list(self.y.shape)}"
            )
        columns = (*zip(self.features, self.x.T, strict=True), (self.target, self.y))
        for name, column in columns:
            if (row := _outlier(column)) is not None:
                raise ValueError(f"row {row}, {_outlier_message(name, column[row])}")

    def __len__(self) -> int:
        return len(self.y)


@readable
class Queries(NamedTuple):
    """Rows to predict.

    Attributes:
        x: features, float64 [rows, p], in the order of the table's features.
        dropped: as in `Table`.
        filled: cells that were missing and filled, or whose text is `unseen`, bool [rows, columns];
            default None, none.
        unseen: texts of encoded columns that the table does not have, such as "city=Oslo". All
            features of such a text are 0; default (), none.
    """

    x: np.ndarray
    y: np.ndarray | None
    unseen: tuple[str, ...] = ()
    dropped: tuple[int, ...] = ()
    filled: np.ndarray | None = None


def read_table(
    path: str | Path, target: str, encode: bool = False, missing: str | None = None
) -> Table:
    """Read a table from a comma-separated file with a header.

    Args:
        path: file in UTF-8.
        target: name of the target column. All other columns are features.
        encode: whether columns of text become features that are 0 or 1, one for each different
            text (one-hot); default False, columns of text are refused.
        missing: what to do about missing cells, which are empty or NA, N/A, NaN, null or ? in any
            case. "drop" leaves out their rows. "median" leaves out rows without a target, and gives
            a missing number the median of its column in the other rows, and a missing text 0 in all
            of its features. Default None: missing cells are refused.

    Raises:
        ValueError: the file does not hold such a table, for example because a column has dates or
            too many different texts. The message names the lines or the column.

    >>> table = read_table(diabetes_path(), target="progression")
    >>> len(table), table.features[:3]
    (442, ('age', 'sex', 'bmi'))
    """
    checks.instance("target", target, str, "the name of a column")
    checks.flag("encode", encode)
    if missing is not None:
        checks.choice("missing", missing, METHODS)
    cells, target = read_cells(path), target.strip()
    if target not in cells.columns:
        raise ValueError(
            f"target must be a column of {path} ({one_line(', '.join(cells.columns))}), got "
            f"{short_repr(target)}{separator(cells.columns) or suggestion(target, cells.columns)}"
        )
    names = [name for name in cells.columns if name != target]
    if not names:
        raise ValueError(
            f"{path} must have a feature column besides "
            f"{short_repr(target)}{separator(cells.columns)}"
        )
    faults = date_faults(cells, [target])
    needed = {DROP: [target, *names], MEDIAN: [target]}
    cells, dropped = _drop_incomplete_rows(cells, needed.get(missing or "", []))
    columns, refused = columns_of(cells, names, encode)
    rules = {c.name: c.rule for c in (*columns, Column(target, () if faults else None))}
    faults += refused + cell_faults(cells, rules, missing)
    faults += [
        f"column {short_repr(name)}: expected a number in some row, got none; remove the column"
        for name in names
        if missing == MEDIAN and not present(cells.columns[name])
    ]
    refuse(cells.path, faults)
    y = Column(target).numbers(cells)[:, 0]
    x, filled = _fill_missing(cells, columns)
    features = tuple(feature for column in columns for feature in column.features)
    outliers = [
        f"line {cells.lines[row]}, {_outlier_message(name, values[row])}"
        for name, values in (*zip(features, x.T, strict=True), (target, y))
        if (row := _outlier(values)) is not None
    ]
    refuse(cells.path, outliers)
    return Table(x, y, features, target, columns, dropped, filled)


def _drop_incomplete_rows(cells: Cells, names: Sequence[str]) -> tuple[Cells, tuple[int, ...]]:
    """The rows without missing cells in these columns, and the numbers of the others, from 1."""
    if not names:
        return cells, ()
    lacks = cells.missing(names)
    keep = np.asarray(~lacks.any(axis=1))
    if not keep.any():
        worst = names[int(np.argmax(lacks.sum(axis=0)))]
        raise ValueError(
            f"{cells.path} must have a row without missing cells, got none of {len(keep)}; most "
            f"are missing in the column {short_repr(worst)}"
        )
    return cells.only(keep), tuple((np.flatnonzero(~keep) + 1).tolist())


def _fill_missing(
    cells: Cells, columns: Sequence[Column], medians: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray | None]:
    """Features with medians, by default their own, for missing numbers, and which cells lack.

    A missing text has no feature of its own.
    """
    x = np.concatenate([column.numbers(cells) for column in columns], axis=1, dtype=float)
    lacks = np.isnan(x)
    if medians is None:
        medians = np.nanmedian(x, axis=0)
    missing = cells.missing(column.name for column in columns)
    return np.where(lacks, medians, x), missing if missing.any() else None


def read_queries(path: str | Path, table: Table, missing: str | None = None) -> Queries:
    """Read rows to predict from a comma-separated file with the feature columns of a table.

    Args:
        path: file in UTF-8. Its columns can have any order, and the target may be one of them.
        table: table of the supports. Text is encoded in the same way as in this table.
        missing: what to do about missing cells, see `read_table`. "drop" leaves out queries with
            missing features. "median" gives them the median of the column in the table. With both,
            y is None if a target is missing. Default None: missing cells are refused.

    >>> table = diabetes()
    >>> queries = read_queries(diabetes_path(), table)
    >>> queries.x.shape, bool((queries.y == table.y).all())
    ((442, 10), True)
    """
    checks.instance("table", table, Table, "an icl_krr.tasks.Table")
    if missing is not None:
        checks.choice("missing", missing, METHODS)
    cells = read_cells(path)
    columns = table.columns or tuple(map(Column, table.features))
    names = [column.name for column in columns]
    lacks = [name for name in names if name not in cells.columns]
    others = [name for name in cells.columns if name not in (*names, table.target)]
    faults = (
        [f"expected all columns of the table, got no {one_line(str(lacks)[1:-1])}"] if lacks else []
    )
    if others:
        listed = one_line(str(others)[1:-1])
        faults.append(f"expected only columns of the table, got {listed}; remove them")
    refuse(cells.path, faults)
    cells, dropped = _drop_incomplete_rows(cells, names if missing == DROP else [])
    targets = [Column(table.target)] if present(cells.columns.get(table.target, ())) else []
    refuse(cells.path, cell_faults(cells, {c.name: c.rule for c in (*columns, *targets)}, missing))
    y = targets[0].numbers(cells)[:, 0] if targets else None
    if y is not None and np.isnan(y).any():
        y = None
    medians = np.median(table.x, axis=0)  # those that the table was filled with, if it was
    x, filled = _fill_missing(cells, columns, medians)
    unseen = np.stack([column.unseen(cells) for column in columns], axis=1)
    if unseen.any():
        filled = unseen if filled is None else filled | unseen
    texts = {f"{names[j]}={cells.columns[names[j]][i]}" for i, j in np.argwhere(unseen)}
    return Queries(x, y, tuple(sorted(texts)), dropped, filled)


def _outlier(column: np.ndarray) -> int | None:
    """The row of a value next to which most different values of a column become equal.

    They become equal in JAX's default dtype, when the column is standardised.
    """
    digits = jnp.finfo(jnp.result_type(float)).nmant + 1
    fraction, exponent = np.frexp(column)
    before = len(set(zip(np.round(np.ldexp(fraction, digits)), exponent, strict=True)))
    after = len(np.unique(Scaling.of(column).apply(column).astype(jnp.result_type(float))))
    if after == before or after > max(2, before // 2):
        return None
    return int(np.argmax(np.abs(column / 2 - np.median(column) / 2)))


def _outlier_message(name: str, value: float) -> str:
    return (
        f"column {name!r}: {value:g} is so large that the other values become equal when the "
        "column is standardised; correct the value or remove the row"
    )


def diabetes_path() -> Path:
    return Path(str(resources.files("icl_krr.tasks") / "data" / "diabetes.csv"))


def diabetes() -> Table:
    """The diabetes table of the package: 442 patients, ten features and the disease progression.

    The features are age (years), sex (1 or 2), body mass index (kg/m^2), average blood pressure
    (mm Hg) and six blood serum measurements s1 to s6. The target is a quantitative measure of the
    progression one year after the baseline. The values are the raw values of scikit-learn's
    `load_diabetes(scaled=False)`.

    Source: B. Efron, T. Hastie, I. Johnstone, R. Tibshirani, Least Angle Regression, Annals
    of Statistics 32 (2004) 407-499.

    >>> diabetes().x.shape
    (442, 10)
    """
    return read_table(diabetes_path(), target="progression")
