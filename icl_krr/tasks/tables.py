"""Tables of real data: numeric CSV files, split into supports and queries."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from .. import checks
from ..fields import cut, shown
from ..readable import readable
from .task import Task


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

    >>> len(Table(np.ones((2, 1)), np.zeros(2), features=("age",), target="progression"))
    2
    """

    x: np.ndarray
    y: np.ndarray
    features: tuple[str, ...]
    target: str

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


def read_table(path: str | Path, target: str) -> Table:
    """Read a table from a comma-separated file with a header.

    Args:
        path: path of the file, in UTF-8.
        target: name of the target column. All other columns are features.

    Returns:
        A `Table` in float64 with the rows in the order of the file.

    Raises:
        ValueError: the file is empty, a column is missing or repeated, a row has the wrong number
            of cells, or a cell is not a finite number. The message names the line and the column.
        OSError: the file cannot be read.

    >>> table = read_table(diabetes_path(), target="progression")
    >>> len(table), table.features[:3]
    (442, ('age', 'sex', 'bmi'))
    """
    path = checks.path("path", path)
    checks.instance("target", target, str, "the name of a column")
    target = target.strip()
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            # line_num is the line in the file; a quoted cell may span several lines
            reader = csv.reader(file)
            lines = [(reader.line_num, row) for row in reader if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} must be comma-separated UTF-8 text: {error}") from None
    if not lines:
        raise ValueError(f"{path} is empty; it must have a header and rows of numbers")
    header = [name.strip() for name in lines[0][1]]
    rows = lines[1:]
    if target not in header:
        hint = "" if len(header) > 1 else "; is the file comma-separated?"
        raise ValueError(
            f"target must be a column of {path} ({cut(', '.join(header))}), "
            f"got {shown(target)}{hint}"
        )
    if not all(header):
        raise ValueError(f"{path} must name every column, got {cut(', '.join(map(repr, header)))}")
    if repeated := sorted({name for name in header if header.count(name) > 1}):
        raise ValueError(
            f"{path} must name each column once, got {shown(repeated[0])} more than once"
        )
    if len(header) < 2:
        raise ValueError(
            f"{path} must have a feature column besides {shown(target)}; "
            "is the file comma-separated?"
        )
    if not rows:
        raise ValueError(f"{path} must have rows of numbers below its header, got none")
    values = np.array([parse(path, header, line, row) for line, row in rows])
    for name, column in zip(header, values.T, strict=True):
        if (row := outlier(column)) is not None:
            raise ValueError(f"{path}, line {rows[row][0]}, {too_large(name, column[row])}")
    at = header.index(target)
    features = (*header[:at], *header[at + 1 :])
    return Table(np.delete(values, at, axis=1), values[:, at], features, target)


def parse(path: Path, header: list[str], line: int, row: list[str]) -> list[float]:
    if len(row) != len(header):
        raise ValueError(f"{path}, line {line}: expected {len(header)} cells, got {len(row)}")
    numbers = []
    for name, cell in zip(header, row, strict=True):
        try:
            number = math.nan if "_" in cell else float(cell)  # float accepts 1_000
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise ValueError(
                f"{path}, line {line}, column {shown(name)}: expected a finite number, "
                f"got {shown(cell)}; encode the column as numbers or remove it"
            )
        numbers.append(number)
    return numbers


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


def standardise(column: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Subtract the mean of the values that are seen, and divide by their standard deviation."""
    # a power of two before the squares, which would overflow
    _, exponent = np.frexp(np.max(np.abs(seen), axis=0))
    column, seen = (np.ldexp(values, -exponent) for values in (column, seen))
    # rounding can make the standard deviation of a constant column > 0
    varies = np.ptp(seen, axis=0) > 0
    return (column - seen.mean(axis=0)) / np.where(varies, seen.std(axis=0), 1)


def split(table: Table, num_supports: int, seed: int = 0) -> Task:
    """Split a table at random into supports and queries.

    The function centres x and y and scales them to unit variance, with the mean and standard
    deviation of the supports only, so that the scaling does not depend on the queries. A column
    that is constant in the supports is only centred.

    Args:
        table: table of numbers, such as `read_table` returns.
        num_supports: number of supports, at least 1 and less than the number of rows. All other
            rows are queries.
        seed: seed of the random order, an integer >= 0; default 0.

    Returns:
        A `Task` with y_query, in JAX's default floating dtype.

    Raises:
        TypeError: `num_supports` or `seed` is not an integer.
        ValueError: no support or no query is left, `seed` < 0, or a value overflows the dtype.

    >>> task = split(diabetes(), num_supports=300, seed=0)
    >>> task.x.shape, task.x_query.shape
    ((300, 10), (142, 10))
    """
    checks.instance("table", table, Table, "an icl_krr.tasks.Table")
    checks.count("num_supports", num_supports)
    checks.count("seed", seed, minimum=0)
    if num_supports >= len(table):
        raise ValueError(
            f"num_supports must be < {len(table)}, the number of rows of the table, because "
            f"the other rows are the queries, got {num_supports}"
        )
    order = np.random.default_rng(seed).permutation(len(table))
    supports, queries = order[:num_supports], order[num_supports:]

    x, y = (standardise(columns, columns[supports]) for columns in (table.x, table.y))
    return Task(x=x[supports], y=y[supports], x_query=x[queries], y_query=y[queries])


def usual_supports(table: Table) -> int:
    """The number of supports if none is given: three quarters of the rows, but at most 512."""
    return min(3 * len(table) // 4, 512)


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
