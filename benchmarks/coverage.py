"""`python -m benchmarks.coverage`: 95 % intervals on held-out rows, at five scales of y."""

import warnings
from collections.abc import Callable
from functools import partial
from itertools import product
from operator import itemgetter
from typing import Any

import jax.numpy as jnp
import numpy as np
from rich.progress import track
from scipy.stats import binomtest
from sklearn import datasets
from sklearn.gaussian_process import GaussianProcessRegressor, kernels as sk
from sklearn.preprocessing import StandardScaler

from benchmarks import records
from icl_krr import InContextRegressor
from icl_krr.experiments import to_markdown

SCALES, ROWS, SPLITS, WIDTH = (1e-20, 1e-5, 1.0, 1e5, 1e20), 200, 2, 1.959964

Row = dict[str, Any]
Table = tuple[Any, Any]
Interval = tuple[Any, Any]
"""Predictions at the held-out rows, and half the widths of the intervals around them."""


def column(load: Callable[..., Any], index: int) -> Table:
    """One column of a table, to be predicted from the others."""
    x = load(return_X_y=True)[0]
    return np.delete(x, index, axis=1), x[:, index]


def real() -> dict[str, Any]:
    exercise: Any = datasets.load_linnerud()
    digits: Any = datasets.load_digits(return_X_y=True)[0]
    return {
        "diabetes: progression": datasets.load_diabetes(return_X_y=True),
        "diabetes: body mass index": column(datasets.load_diabetes, 2),
        "wine: alcohol": column(datasets.load_wine, 0),
        "wine: proline": column(datasets.load_wine, 12),
        "breast cancer: smoothness": column(datasets.load_breast_cancer, 4),
        "breast cancer: diagnosis": datasets.load_breast_cancer(return_X_y=True),
        "iris: petal width": column(datasets.load_iris, 3),
        "iris: sepal width": column(datasets.load_iris, 1),
        "digits: ink below, from pixels above": (digits[:, :32], digits[:, 32:].sum(1)),
        "linnerud: waist": (exercise.data, exercise.target[:, 1]),
    }


def drawn(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    sizes: Any = {"n_samples": ROWS, "random_state": seed}
    x = rng.normal(size=(ROWS, 4))
    smooth, rough = (
        rng.multivariate_normal(np.zeros(ROWS), np.asarray(kernel(x)) + 0.05 * np.eye(ROWS))
        for kernel in (sk.RBF(2.0), sk.Matern(2.0, nu=0.5))
    )
    noise = rng.normal(size=ROWS)
    return {
        "Friedman 1": datasets.make_friedman1(noise=1.0, **sizes),
        "Friedman 2": datasets.make_friedman2(noise=50.0, **sizes),
        "Friedman 3": datasets.make_friedman3(noise=0.1, **sizes),
        "linear": datasets.make_regression(n_features=8, noise=20.0, **sizes),
        "sparse": datasets.make_sparse_uncorrelated(**sizes),
        "Gaussian process, smooth": (x, smooth),
        "Gaussian process, rough": (x, rough),
        "noise that grows with x": (x, np.sin(x[:, 0]) + 0.3 * np.exp(x[:, 1] / 2) * noise),
        "noise with heavy tails": (x, np.sin(x[:, 0]) + 0.3 * rng.standard_t(3, ROWS)),
        "noise only": (x, noise),
    }


def gaussian(regressor: Any, x: np.ndarray, y: np.ndarray, new: np.ndarray) -> Interval:
    """The interval of a regressor with a standard deviation."""
    mean, deviation = map(np.asarray, regressor.fit(x, y).predict(new, return_std=True))
    return mean, WIDTH * deviation


def peer(x: np.ndarray, *data: np.ndarray) -> Interval:
    kernel = sk.ConstantKernel(1.0, (1e-4, 1e4)) * sk.RBF(np.sqrt(x.shape[1]), (0.05, 1e3))
    kernel = kernel + sk.WhiteKernel(0.1, (1e-6, 10))
    return gaussian(GaussianProcessRegressor(kernel, alpha=0.0, normalize_y=True), x, *data)


def conformal(solver: str, x: np.ndarray, y: np.ndarray, new: np.ndarray) -> Interval:
    """Split conformal intervals: fit one half, and take a quantile of the errors of the other.

    Source: Papadopoulos, Proedrou, Vovk, Gammerman, Inductive confidence machines for regression,
    2002.
    """
    half = len(y) // 2
    fitted = InContextRegressor(normalize_y=True, solver=solver).fit(x[:half], y[:half])
    errors = np.sort(np.abs(y[half:] - fitted.predict(x[half:])))
    rank = int(np.ceil(0.95 * (len(errors) + 1)))
    return fitted.predict(new), errors[rank - 1] if rank <= len(errors) else np.inf


def around(centre: Any, y: np.ndarray, new: np.ndarray) -> Interval:
    return np.full(len(new), centre), WIDTH * np.sqrt(np.mean((y - centre) ** 2))


MODELS: dict[str, Callable[..., Interval]] = {
    "InContextRegressor()": partial(gaussian, InContextRegressor()),
    "InContextRegressor(normalize_y=True)": partial(gaussian, InContextRegressor(normalize_y=True)),
    "scikit-learn's Gaussian process": peer,
    "split conformal, the same regression": partial(conformal, "conjugate_gradient"),
    "split conformal, Nadaraya-Watson": partial(conformal, "nadaraya_watson"),
    "mean of the supports": lambda x, y, new: around(np.mean(y), y, new),
    "zero": lambda x, y, new: around(0.0, y, new),
}


def evaluate(table: Table, model: str, scale: float, seed: int, splits: int) -> Row:
    """Hits, widths and errors over all held-out rows, in units of the deviation of y."""
    x, y = table
    unit, hits, widths, errors, warned = float(np.std(y)), [], [], [], 0
    for split in range(splits):
        order = np.random.default_rng((seed, split)).permutation(len(y))[:ROWS]
        support_rows, query_rows = np.split(order, [int(0.7 * len(order))])
        u = StandardScaler().fit(x[support_rows]).transform(x)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            mean, width = MODELS[model](u[support_rows], scale * y[support_rows], u[query_rows])
        error = np.abs(mean / scale - y[query_rows])
        hits.append(error <= width / scale)
        widths.append(np.broadcast_to(2 * width / scale, len(query_rows)) / unit)
        errors.append((error / unit) ** 2)
        warned += bool(caught)
    hits = np.concatenate(hits)
    return {
        "model": model,
        "scale": scale,
        "covered": int(hits.sum()),
        "rows": len(hits),
        "width": float(np.mean(np.concatenate(widths))),
        "rmse": float(np.sqrt(np.mean(np.concatenate(errors)))),
        "fits with warnings": warned,
    }


def share(rows: list[Row]) -> str:
    covered, count = (sum(row[name] for row in rows) for name in ("covered", "rows"))
    low, high = binomtest(covered, count).proportion_ci(method="wilson")
    return f"{covered / count:.3f} ({low:.3f} to {high:.3f})"


def document(record: Row) -> str:
    header = ["model", "tables", *(f"coverage at {scale:g}" for scale in SCALES)]
    header += ["median width / std(y)", "median RMSE / std(y)", "fits with warnings"]
    lines, cells = [], records.grouped(record["results"], itemgetter("model", "kind"))
    for model, kind in product(MODELS, ("real", "drawn")):
        chosen = cells[model, kind]
        shares = [*map(share, records.grouped(chosen, itemgetter("scale")).values())]
        middle = [np.median(numbers(chosen, name)) for name in ("width", "rmse")]
        warned = sum(row["fits with warnings"] for row in chosen)
        lines.append([model, kind, *shares, *(f"{one:.3g}" for one in middle), str(warned)])
    return f"{records.caption(CAPTION, record['meta'])}\n{to_markdown((header, lines))}"


def numbers(rows: list[Row], name: str) -> list[float]:
    """A column; a number that is not finite is null in a record."""
    return [np.inf if row[name] is None else row[name] for row in rows]


CAPTION = """Coverage of 95 % intervals on held-out rows for y times five scales, with intervals of
Wilson at 95 % for the share. Rows of one division share their supports, so these are approximate.
{splits} divisions of each table into 70 % supports and 30 % held-out rows, at most {rows} rows,
features standardised. A fit that warns is counted, and an interval that is NaN covers nothing.
{dtype}, and float64 where the estimator changes to it; seed {seed}, {versions}.
"""


def main() -> None:
    quick = "two tables; writes no files"
    args = records.options(__doc__, quick, seed="seed of tables and divisions")
    splits = 1 if args.quick else SPLITS
    tables = [("real", *pair) for pair in real().items()]
    tables += [("drawn", *pair) for pair in drawn(args.seed).items()]
    rows = [
        {"kind": kind, "table": name, **evaluate(table, model, scale, args.seed, splits)}
        for kind, name, table in track([tables[6], tables[-1]] if args.quick else tables)
        for model in MODELS
        for scale in SCALES
    ]
    dtype = str(jnp.result_type(float))
    facts = {"seed": args.seed, "dtype": dtype, "splits": splits, "rows": ROWS}
    meta = records.meta("coverage", "numpy", "scikit-learn", "scipy", **facts)
    records.finish("coverage", {"meta": meta, "results": rows}, document, args.quick)


if __name__ == "__main__":
    main()
