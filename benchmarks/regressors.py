"""`python -m benchmarks.regressors`: regressors of scikit-learn beside the estimator (40 min)."""

import time
import warnings
from collections.abc import Callable
from operator import itemgetter
from typing import Any

import numpy as np
from rich.progress import track
from sklearn import datasets
from sklearn.ensemble import RandomForestRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor, kernels as sk
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import GridSearchCV

import icl_krr as ik
from benchmarks import coverage, records
from icl_krr.experiments import format_number, to_markdown

SPLITS, WIDTH = 5, 1.959964
SIZES = 250, 500, 1000, 2000
"""Numbers of supports with which two regressors are timed."""
WORSE = 1.02
"""The aim: an RMSE of at most this times that of scikit-learn's Gaussian process."""

Row = dict[str, Any]
Data = tuple[Any, Any]


def tables() -> dict[str, Data]:
    """Features and target of tables of scikit-learn, and of functions of uniform features."""
    rng = np.random.default_rng(0)
    generators: Any = datasets  # whose types depend on its arguments
    real, cancer = coverage.real(), generators.load_breast_cancer(return_X_y=True)[0]
    two, five = rng.uniform(size=(240, 8)), rng.uniform(size=(400, 5))
    noise = rng.normal(size=640)
    return {
        "diabetes: progression": real["diabetes: progression"],
        "wine: alcohol": real["wine: alcohol"],
        "breast cancer: log of the radius": (cancer[:, 1:], np.log(cancer[:, 0])),
        "iris: petal width": real["iris: petal width"],
        "Friedman 1": generators.make_friedman1(400, noise=1.0, random_state=0),
        "Friedman 2": generators.make_friedman2(400, noise=30.0, random_state=0),
        "Friedman 3": generators.make_friedman3(400, noise=0.1, random_state=0),
        "two of eight": (two, np.sin(6 * two[:, 0]) + two[:, 1] / 2 + 0.1 * noise[:240]),
        "linear, four of twelve": generators.make_regression(
            300, 12, n_informative=4, noise=20.0, random_state=0
        ),
        "steps": (five, np.floor(4 * five[:, 0]) + 2 * (five[:, 1] > 0.5) + 0.2 * noise[240:]),
    }


def process(widths: Any) -> Any:
    return GaussianProcessRegressor(sk.ConstantKernel() * sk.RBF(widths) + sk.WhiteKernel())


GRID = {name: 10.0 ** np.arange(-4, 2) for name in ("alpha", "gamma")}
REGRESSORS: dict[str, Callable[[int], Any]] = {
    "one": lambda p: ik.InContextRegressor(normalize_y=True),
    "each": lambda p: ik.InContextRegressor(normalize_y=True, bandwidths="each"),
    "each, Matern 5/2": lambda p: ik.InContextRegressor(
        kernel="matern52", normalize_y=True, bandwidths="each"
    ),
    "Nadaraya-Watson": lambda p: ik.InContextRegressor(solver="nadaraya_watson", normalize_y=True),
    "GP, one": lambda p: process(1.0),
    "GP, each": lambda p: process(np.ones(p)),
    "KernelRidge, grid": lambda p: GridSearchCV(
        KernelRidge(kernel="rbf"), GRID, scoring="neg_mean_squared_error"
    ),
    "random forest": lambda p: RandomForestRegressor(random_state=0),
}
"""The estimator with one lengthscale and with one for each feature, and its peers."""

PROBABILISTIC = "one", "each", "each, Matern 5/2", "GP, one", "GP, each"


def divided(data: Data, count: int, seed: int) -> tuple[Data, Data]:
    """Supports and queries, in units of the supports."""
    order = np.random.default_rng(seed).permutation(len(data[1]))
    parts = []
    for values in data:
        rows = values[order[:count]]
        spread = rows.std(axis=0)
        parts.append((values[order] - rows.mean(axis=0)) / np.where(spread > 0, spread, 1))
    x, y = parts
    return (x[:count], y[:count]), (x[count:], y[count:])


def evaluate(name: str, supports: Data, queries: Data) -> Row:
    """The RMSE, the coverage of 95 % intervals and the seconds of a fit with its predictions."""
    regressor, (x, y) = REGRESSORS[name](supports[0].shape[1]), queries
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        start = time.perf_counter()
        regressor.fit(*supports)
        if name in PROBABILISTIC:
            mean, std = regressor.predict(x, return_std=True)
        else:
            mean, std = regressor.predict(x), None
        seconds = time.perf_counter() - start
    return {
        "regressor": name,
        "rmse": float(np.sqrt(np.mean((mean - y) ** 2))),
        "coverage": None if std is None else float(np.mean(np.abs(mean - y) <= WIDTH * std)),
        "seconds": seconds,
        "warned": sum(issubclass(one.category, ConvergenceWarning) for one in caught),
    }


def compared(quick: bool) -> list[Row]:
    rows = []
    chosen = {**dict([*tables().items()][3:4])} if quick else tables()
    names = ("one", "GP, one") if quick else (*REGRESSORS,)
    todo = [(table, split) for table in chosen for split in range(1 if quick else SPLITS)]
    for table, split in track(todo, "tables"):
        data = chosen[table]
        parts = divided(data, 2 * len(data[1]) // 3, split)
        size = {"table": table, "split": split, "n": len(parts[0][1]), "p": data[0].shape[1]}
        rmse = float(np.sqrt(np.mean(parts[1][1] ** 2)))
        mean = {"regressor": "mean", "rmse": rmse, "coverage": None, "seconds": None, "warned": 0}
        rows += [size | row for row in (*(evaluate(name, *parts) for name in names), mean)]
    return rows


def timed(sizes: tuple[int, ...]) -> list[Row]:
    """Friedman 1 with more and more supports: a first fit, which compiles, and one of each."""
    rows = []
    for count in track(sizes, "sizes"):
        data = datasets.make_friedman1(count + 500, noise=1.0, random_state=1)
        for split, names in enumerate((("each",), ("each", "GP, each"))):
            parts = divided(data, count, split)
            rows += [{"n": count, "split": split} | evaluate(name, *parts) for name in names]
    return rows


def middle(rows: list[Row], key: str) -> str:
    column = [row[key] for row in rows]
    return "-" if None in column else format_number(float(np.median(column)), 3)


def gap(rows: list[Row], ours: str, theirs: str, table: str) -> tuple[float, float]:
    """The mean over splits of log(RMSE / RMSE of a peer), and twice its standard error."""
    of = {(row["table"], row["regressor"], row["split"]): row["rmse"] for row in rows}
    apart = np.log([of[table, ours, s] / of[table, theirs, s] for s in range(SPLITS)])
    return float(apart.mean()), float(2 * apart.std(ddof=1) / np.sqrt(len(apart)))


def verdict(mean: float, error: float) -> str:
    if mean - error > np.log(WORSE):
        return "worse"
    if mean + error < -np.log(WORSE):
        return "better"
    return "not distinguishable" if mean + error > np.log(WORSE) else "as good"


def document(record: Row) -> str:
    """The tables of a record."""
    rows = record["rows"]
    names, tables = list(dict.fromkeys(row["regressor"] for row in rows)), []
    cells = records.grouped(rows, itemgetter("table", "regressor"))
    chosen = {row["table"]: (row["n"], row["p"]) for row in rows}
    for key, regressors in (("rmse", names), ("coverage", PROBABILISTIC), ("seconds", names[:-1])):
        header = [f"{key}, median of {SPLITS} splits", "n", "p", *regressors]
        lines = []
        for table, size in chosen.items():
            medians = [middle(cells[table, name], key) for name in regressors]
            lines.append([table, *map(str, size), *medians])
        tables.append((header, lines))
    pairs = ("one", "GP, one"), ("each", "GP, each"), ("each", "one"), ("each", "random forest")
    header = ["RMSE of the first over RMSE of the second", *(f"{a} / {b}" for a, b in pairs)]
    lines = []
    for table in chosen:
        cells = []
        for ours, theirs in pairs:
            mean, error = gap(rows, ours, theirs, table)
            low, high = np.exp([mean - error, mean + error])
            cells.append(f"{np.exp(mean):.3f} ({low:.3f} to {high:.3f}), {verdict(mean, error)}")
        lines.append([table, *cells])
    tables.append((header, lines))
    header = ["supports", "each: first fit, s", "each, s", "GP, each, s", "GP, each / each"]
    header += ["RMSE of each", "RMSE of GP, each"]
    lines = []
    for n, (first, ours, peer) in records.grouped(record["times"], itemgetter("n")).items():
        seconds = [row["seconds"] for row in (first, ours, peer)]
        numbers = [*seconds, peer["seconds"] / ours["seconds"], ours["rmse"], peer["rmse"]]
        lines.append([str(n), *(format_number(value, 3) for value in numbers)])
    tables.append((header, lines))
    return "\n".join(map(to_markdown, tables))


def main() -> None:
    quick = records.options(__doc__).quick
    record: Row = {"rows": compared(quick), "times": timed((60,) if quick else SIZES)}
    if quick:
        return
    dtype = "float32, float64 where it has too few digits; scikit-learn in float64"
    meta = records.meta("regressors", "scikit-learn", "numpy", splits=SPLITS, dtype=dtype)
    records.finish("regressors", {"meta": meta, **record}, document, quick)


if __name__ == "__main__":
    main()
