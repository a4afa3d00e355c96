"""Tables of real data, read from CSV files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from .. import checks
from ..fields import cut, shown
from ..names import similar
from ..readable import readable
from .columns import Cells, Column, columns_of, read_cells, separator
from .scaling import standardise


@readable
@dataclass(frozen=True)
class Table:
    """A table of numbers with named feature columns and a named target column.

    `len` of a table is its number of rows.

    Args:
        x: features, float64 [rows, p].
        y: target, float64 [rows].
        features: names of the p feature columns.
        target: name of the target column.
        columns: the columns of the file that became the features; default (), none were encoded.

    >>> len(Table(np.ones((2, 1)), np.zeros(2), features=("age",), target="progression"))
    2
    """

    x: np.ndarray
    y: np.ndarray
    features: tuple[str, ...]
    target: str
    columns: tuple[Column, ...] = ()

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
            if (row := outlier(column)) is not None:
                raise ValueError(f"row {row}, {too_large(name, column[row])}")

    def __len__(self) -> int:
        return len(self.y)


@readable
class Queries(NamedTuple):
    """Rows to predict.

    Attributes:
        x: features, float64 [rows, p], in the order of the table's features.
        y: target, float64 [rows], or None if it is not known.
        unseen: texts of encoded columns that the table does not have, such as "city=Oslo". All
            features of such a text are 0.
    """

    x: np.ndarray
    y: np.ndarray | None
    unseen: tuple[str, ...] = ()


def read_table(path: str | Path, target: str, encode: bool = False) -> Table:
    """Read a table from a comma-separated file with a header.

    Args:
        path: path of the file, in UTF-8.
        target: name of the target column. All other columns are features.
        encode: whether columns of text become features that are 0 or 1, one for each different
            text (one-hot); default False, columns of text are refused.

    Returns:
        A `Table` in float64 with the rows in the order of the file.

    Raises:
        ValueError: the file is empty, a column is missing or repeated, a row has the wrong number
            of cells, a cell is not a finite number, or a column of text has too many different
            texts. The message names the line or the column.
        OSError: the file cannot be read.

    >>> table = read_table(diabetes_path(), target="progression")
    >>> len(table), table.features[:3]
    (442, ('age', 'sex', 'bmi'))
    """
    checks.instance("target", target, str, "the name of a column")
    checks.flag("encode", encode)
    cells, target = read_cells(path), target.strip()
    if target not in cells.columns:
        raise ValueError(
            f"target must be a column of {path} ({cut(', '.join(cells.columns))}), "
            f"got {shown(target)}{separator(cells.columns) or similar(target, cells.columns)}"
        )
    names = [name for name in cells.columns if name != target]
    if not names:
        raise ValueError(
            f"{path} must have a feature column besides {shown(target)}{separator(cells.columns)}"
        )
    columns = columns_of(cells, names, encode)
    y = Column(target).numbers(cells)[:, 0]
    x = features_of(cells, columns)
    features = tuple(feature for column in columns for feature in column.features)
    for name, values in (*zip(features, x.T, strict=True), (target, y)):
        if (row := outlier(values)) is not None:
            raise ValueError(f"{path}, line {cells.lines[row]}, {too_large(name, values[row])}")
    return Table(x, y, features, target, columns)


def features_of(cells: Cells, columns: Sequence[Column]) -> np.ndarray:
    return np.concatenate([column.numbers(cells) for column in columns], axis=1, dtype=float)


def read_queries(path: str | Path, table: Table) -> Queries:
    """Read rows to predict from a comma-separated file with the feature columns of a table.

    Args:
        path: path of the file, in UTF-8. Its columns can have any order. It may have the target
            column of the table.
        table: table of the supports. Text is encoded in the same way as in this table.

    Returns:
        `Queries` in float64 with the rows in the order of the file.

    Raises:
        ValueError: a column is missing, or is not a column of the table, or a cell is not a finite
            number. The message names the line or the column.
        OSError: the file cannot be read.

    >>> table = diabetes()
    >>> queries = read_queries(diabetes_path(), table)
    >>> queries.x.shape, bool((queries.y == table.y).all())
    ((442, 10), True)
    """
    checks.instance("table", table, Table, "an icl_krr.tasks.Table")
    cells = read_cells(path)
    columns = table.columns or tuple(map(Column, table.features))
    names = [column.name for column in columns]
    for name in names:
        if name not in cells.columns:
            raise ValueError(f"{path} must have the column {shown(name)} of the table")
    for name in cells.columns:
        if name not in (*names, table.target):
            raise ValueError(
                f"{path} must have only columns of the table, got {shown(name)}; remove the column"
            )
    known = table.target in cells.columns
    y = Column(table.target).numbers(cells)[:, 0] if known else None
    unseen = {
        f"{column.name}={text}"
        for column in columns
        if column.texts is not None
        for text in cells.columns[column.name]
        if text not in column.texts
    }
    return Queries(features_of(cells, columns), y, tuple(sorted(unseen)))


def outlier(column: np.ndarray) -> int | None:
    """The row of a value next to which most different values of a column become equal.

    They become equal in JAX's default dtype, when the column is standardised.
    """
    digits = jnp.finfo(jnp.result_type(float)).nmant + 1
    fraction, exponent = np.frexp(column)
    before = len(set(zip(np.round(np.ldexp(fraction, digits)), exponent, strict=True)))
    after = len(np.unique(standardise(column, column).astype(jnp.result_type(float))))
    if after == before or after > max(2, before // 2):
        return None
    return int(np.argmax(np.abs(column / 2 - np.median(column) / 2)))


def too_large(name: str, value: float) -> str:
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

    Returns:
        A `Table` with x [442, 10] and y [442].

    Source: B. Efron, T. Hastie, I. Johnstone, R. Tibshirani, Least Angle Regression, Annals
    of Statistics 32 (2004) 407-499.

    >>> diabetes().x.shape
    (442, 10)
    """
    return read_table(diabetes_path(), target="progression")
