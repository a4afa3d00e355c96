"""`python -m benchmarks.uncertainty`: intervals on held-out rows of tables of scikit-learn."""

from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich.progress import track
from sklearn.gaussian_process import GaussianProcessRegressor, kernels as sk

import icl_krr as ik
from benchmarks import coverage, records
from icl_krr import constructions, uncertainty
from icl_krr.experiments import to_markdown
from icl_krr.uncertainty import Predictive

FOLDS, LANDMARKS = 10, 32
GRID = (*product((0.5, 1.0, 2.0), (0.05, 0.2, 0.6)),)  # lengthscale / sqrt(features), noise

Row = dict[str, Any]


class Fold(NamedTuple):
    """A task in units of the supports, its outputs, and scikit-learn's fits of two kernels."""

    task: ik.Task
    y: np.ndarray
    gaussian: Any
    linear: Any

    @property
    def numbers(self) -> tuple[float, float, float]:
        """Lengthscale and noise for the Gaussian kernel, and noise for the linear kernel."""
        k1, k2 = self.gaussian.kernel_.k1, self.gaussian.kernel_.k2
        return k1.length_scale, k2.noise_level, self.linear.kernel_.k2.noise_level


def folds(x: np.ndarray, y: np.ndarray, seed: int) -> list[Fold]:
    order = np.random.default_rng(seed).permutation(len(y))
    test_rows = order[: len(y) // FOLDS * FOLDS].reshape(FOLDS, -1)
    return [fold(x, y, np.setdiff1d(order, rows, assume_unique=True), rows) for rows in test_rows]


def fold(x: np.ndarray, y: np.ndarray, train: np.ndarray, test: np.ndarray) -> Fold:
    u = (x - x[train].mean(0)) / x[train].std(0)
    v = (y - y[train].mean()) / y[train].std()
    task = ik.Task(*map(jnp.asarray, (u[train], v[train], u[test])))
    noise = sk.WhiteKernel(0.3, (1e-4, 10))
    start = sk.RBF(np.sqrt(x.shape[1]), (0.1, 100)) + noise, sk.DotProduct(0, "fixed") + noise
    fits = (GaussianProcessRegressor(kernel, alpha=0.0).fit(u[train], v[train]) for kernel in start)
    return Fold(task, v[test], *fits)


def gaussians(mean: Any, variance: Any) -> Predictive:
    parts = (jnp.ones_like(mean), mean, variance)
    return Predictive(*(jnp.asarray(part)[:, None] for part in parts))


def peer(regressor: Any, task: ik.Task) -> Predictive:
    mean, deviation = regressor.predict(np.asarray(task.x_query), return_std=True)
    return gaussians(mean, deviation**2)


def exact(kernel: ik.kernels.Kernel, task: ik.Task, noise: Any) -> Predictive:
    mean, variance = ik.solvers.posterior(kernel, task, ridge=noise)
    return gaussians(mean, variance + noise)


def given_columns(task: ik.Task, ell: Any, noise: Any, _: Any, steps: int) -> Predictive:
    kernel, p = ik.Gaussian(ell), task.num_features
    model = constructions.conjugate_gradient(kernel, num_features=p, ridge=noise, steps=steps)
    mean, variance = ik.posterior(model, kernel, task)
    return gaussians(mean, variance + noise)


def landmarks(task: ik.Task, ell: Any, noise: Any, _: Any) -> Predictive:
    kernel, points = ik.Gaussian(ell), task.x[:LANDMARKS]
    features, p = ik.Features(ik.sketches.nystrom_features(kernel, points)), task.num_features
    model = constructions.prefix_posterior(
        features, num_features=p, ridge=noise, steps=LANDMARKS, approximates=kernel
    )
    return ik.predictive(model, task)


def linear(task: ik.Task, noise: Any) -> Predictive:
    p = task.num_features
    model = constructions.prefix_posterior(ik.Linear(), num_features=p, ridge=noise, steps=2 * p)
    return ik.predictive(model, task)


def average(task: ik.Task, *_: Any) -> Predictive:
    p = task.num_features
    kernels = tuple(ik.Gaussian(ell * p**0.5) for ell, _ in GRID)
    maps = (ik.sketches.nystrom_features(kernel, task.x[:LANDMARKS]) for kernel in kernels)
    features, ridges = tuple(map(ik.Features, maps)), jnp.array([noise for _, noise in GRID])
    model = constructions.bayesian_average(
        features, num_features=p, ridges=ridges, steps=LANDMARKS + 1, approximates=kernels
    )
    return ik.predictive(model, task)


def spread(task: ik.Task, *_: Any) -> Predictive:
    ones = jnp.ones(task.num_queries)
    return gaussians(jnp.mean(task.y) * ones, jnp.var(task.y) * ones)


FITTED, COLUMNS = "lengthscale, noise", "lengthscale, noise; k(x, x_q) comes from outside"
MODELS: dict[str, tuple[str, Callable[..., Predictive]]] = {
    "exact Gaussian process": (FITTED, lambda t, ell, s, _: exact(ik.Gaussian(ell), t, s)),
    "conjugate_gradient, 8 steps": (COLUMNS, lambda *a: given_columns(*a, steps=8)),
    "conjugate_gradient, 32 steps": (COLUMNS, lambda *a: given_columns(*a, steps=32)),
    f"prefix_posterior, {LANDMARKS} supports as landmarks": (FITTED, landmarks),
    f"bayesian_average, {LANDMARKS} supports as landmarks": (f"{len(GRID)} pairs of both", average),
    "exact Bayesian linear regression": ("noise", lambda t, *s: exact(ik.Linear(), t, s[-1])),
    "prefix_posterior, linear kernel, 2 p steps": ("noise", lambda t, *s: linear(t, s[-1])),
    "mean and variance of the supports": ("nothing", spread),
}


def joined(parts: list[Predictive]) -> Predictive:
    return Predictive(*map(jnp.stack, zip(*parts, strict=True)))


def scores(predictive: Predictive, y: np.ndarray) -> Row:
    """Scores over all held-out rows [folds, rows]."""
    rows = uncertainty.coverage(predictive, y, by_task=False)
    return {
        "root mean squared error": float(np.sqrt(np.mean((np.asarray(predictive.mean) - y) ** 2))),
        "log likelihood": float(uncertainty.log_likelihood(predictive, jnp.asarray(y))),
        "CRPS": float(jnp.mean(uncertainty.crps(predictive, jnp.asarray(y)))),
        "coverage": rows.fraction,
        "interval by rows": rows[2:4],
        "p-value by folds": uncertainty.uniformity(predictive, y, by_task=True).p_value,
    }


def held_out(name: str, x: np.ndarray, y: np.ndarray, seed: int) -> list[Row]:
    every, rows = folds(x, y, seed), []
    targets = np.stack([one.y for one in every])
    about = {"table": name, "rows": targets.size}
    for kind, inputs in (("gaussian", FITTED), ("linear", "noise")):
        result = joined([peer(getattr(one, kind), one.task) for one in every])
        model = f"scikit-learn, {kind} kernel"
        rows.append({**about, "model": model, "required_inputs": inputs, **scores(result, targets)})
    for model, (inputs, run) in track(MODELS.items(), name):
        step = jax.jit(run)
        result = joined([step(one.task, *one.numbers) for one in every])
        rows.append({**about, "model": model, "required_inputs": inputs, **scores(result, targets)})
    return rows


def document(record: Row) -> str:
    scores = ("root mean squared error", "log likelihood", "CRPS")
    columns: records.Columns = {
        **{name: name for name in ("table", "model")},
        "required inputs": "required_inputs",
        **{name: lambda row, name=name: f"{row[name]:.3f}" for name in scores},
        "coverage of 95%": lambda row: f"{row['coverage']:.3f}",
        "95% confidence by rows": lambda row: "{:.3f} to {:.3f}".format(*row["interval by rows"]),
        "p-value of uniformity": records.digits("p-value by folds", 2),
    }
    table = to_markdown(records.table(record["held out"], columns))
    return f"{records.caption(CAPTION, record['meta'])}\n{table}"


CAPTION = """Held-out rows of tables that come with scikit-learn, in ten folds, in units of the
standard deviation of the supports' outputs. Gaussian kernel with k(x, x) = 1, and linear kernel;
lengthscale and noise are scikit-learn's fits to the supports of each fold. Rows of a fold share
their supports, and folds share rows, so that the confidence interval is approximate. A p-value
of 0.05 or more says that the distributions are not distinguishable from calibrated ones. float64,
seed {seed}, {versions}.
"""


def main() -> None:
    quick = "the smallest table; writes no files"
    args = records.options(__doc__, quick, seed="seed of the folds")
    jax.config.update("jax_enable_x64", True)
    names = ("diabetes: progression", "wine: alcohol", "iris: petal width")
    tables: dict[str, coverage.Table] = coverage.real()
    names = names[-1 if args.quick else 0 :]
    rows = [row for name in names for row in held_out(name, *tables[name], args.seed)]
    facts = {"seed": args.seed, "dtype": "float64", "folds": FOLDS, "grid": GRID}
    meta = records.meta("uncertainty", "numpy", "scikit-learn", "scipy", **facts)
    records.finish("uncertainty", {"meta": meta, "held out": rows}, document, args.quick)


if __name__ == "__main__":
    main()
