"""`python -m benchmarks.posteriors`: cost and accuracy of models with variance and evidence."""

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import icl_krr as ik
from benchmarks import records
from benchmarks.contests import Contest, compete
from benchmarks.records import Row
from icl_krr.experiments import format_number, to_markdown

SEED, SEEDS, QUERIES = 0, 3, 8
EDGES = 15
FEATURES, SUPPORTS, STEPS = 16, 256, 16
"""Sizes of the models that are counted and timed: features, supports and steps."""
SIZES = ((8, 64), (16, 64), (32, 64), (64, 64), (8, 512), (64, 512))
"""Features m and supports n of the tasks whose errors are measured with the ridge 0.1."""
RIDGES, LENGTHS, WIDTH = (1e-1, 1e-2, 1e-3, 1e-4), (64, 128, 256, 512), 32
"""Ridges and supports of the tasks whose evidence is measured in float32, with 32 features."""
DECAYS = {"equal": 0.0, "decaying": 4.0}
"""Powers of ten from the largest to the smallest variance of a feature."""


def models() -> dict[str, tuple[Callable[[], ik.Transformer], int | None]]:
    """How every construction that is compared is built, and its channels by formula."""
    build, m = ik.constructions, FEATURES
    builders: dict[str, tuple[Callable[[], ik.Transformer], int | None]] = {}
    for form, more in (("textbook", 0), ("fused", 3)):
        of_form: dict[str, Any] = {"num_features": m, "steps": STEPS, "form": form}
        one = partial(build.prefix_conjugate_gradient, ik.Linear(), ridge=0.1, **of_form)
        builders[f"prefix_conjugate_gradient, {form}"] = one, None
        one = partial(build.prefix_posterior, ik.Linear(), ridge=0.1, **of_form)
        builders[f"prefix_posterior, {form}"] = one, 9 * m + 12 + more
        for G, bins in product((1, 2, 4, 8), (0, EDGES)):
            edges = jnp.linspace(-2.0, 2.0, bins) if bins else None
            ridges = jnp.geomspace(0.1, 1.0, G)
            of_average = {"ridges": ridges, "edges": edges, **of_form}
            channels = 9 * G * m + m + G**2 + (19 + more) * G + 5
            channels += bins * (G + 1) + G + 1 if bins else 0
            name = f"bayesian_average, {form}, G = {G}" + (f", {bins} edges" if bins else "")
            builders[name] = partial(build.bayesian_average, ik.Linear(), **of_average), channels
    return builders


def costs(repeats: int) -> list[dict[str, Any]]:
    """Sizes of every model, and the time of one forward in turns with all others, in float32."""
    built = {name: (one(), channels) for name, (one, channels) in models().items()}
    task = draw(SEED, FEATURES, SUPPORTS, 0.1, 0.0, "float32")
    forward = jax.jit(ik.predict)
    runs = {name: lambda model=model: forward(model, task) for name, (model, _) in built.items()}
    first, *others = runs
    rest = {name: runs[name] for name in others}
    contest = Contest("posteriors", "forward", runs[first], rest, tolerance=None)
    rows = {row.program: row for row in compete(contest, repeats)}
    rows[first] = rows.pop("icl_krr")
    return [
        {
            "model": name,
            "blocks before": len(model.weights.prologue),
            "blocks a step": model.blocks_per_step,
            "heads in a block": model.num_heads,
            "MLP width": model.mlp_width,
            "channels": FEATURES + model.overhead,
            "channels by formula": by_formula,
            "first ms": rows[name].first_ms,
            "quartiles ms": [rows[name].lower_ms, rows[name].median_ms, rows[name].upper_ms],
            "time": rows[name].median_ms / rows[first].median_ms,
        }
        for name, (model, by_formula) in built.items()
    ]


def draw(seed: int, m: int, n: int, ridge: float, decay: float, dtype: str) -> ik.Task:
    """A Bayesian linear regression whose m features have variances with the sum 1."""
    at, function, error = jax.random.split(jax.random.key(seed), 3)
    variances = 10.0 ** (-decay * np.arange(m) / max(m - 1, 1))
    scale = np.sqrt(variances / variances.sum())
    x = jax.random.normal(at, (n + QUERIES, m), "float32") * jnp.asarray(scale, "float32")
    w = jax.random.normal(function, (m,), "float32")
    y = x[:n] @ w + ridge**0.5 * jax.random.normal(error, (n,), "float32")
    return ik.Task(*(part.astype(dtype) for part in (x[:n], y, x[n:])))


@partial(jax.jit, static_argnums=2)
def slots(model: ik.Transformer, task: ik.Task, names: tuple[str, ...]) -> Any:
    return ik.run_with_cache(model, task, names=names)[1]


def errors(m: int, n: int, ridge: float, decay: float, dtype: str, times: dict[str, int]) -> Row:
    """The largest errors over seeds after some numbers of steps, against oracles in float64."""
    build, linear = ik.constructions, ik.Linear()
    steps = [*times.values()]
    shared: dict[str, Any] = {"num_features": m, "steps": steps[-1], "dtype": dtype}
    posterior = build.prefix_posterior(linear, ridge=ridge, **shared)
    average = build.bayesian_average(linear, ridges=jnp.full(1, ridge), **shared)
    errors_of: dict[str, list[list[float]]] = {"mean": [], "variance": [], "evidence": []}
    conditions = []
    for seed in range(SEED, SEED + SEEDS):
        task, exact = (draw(seed, m, n, ridge, decay, kind) for kind in (dtype, "float64"))
        best = ik.solvers.posterior(linear, exact, ridge=ridge)
        evidence = ik.solvers.log_marginal_likelihood(linear, exact, ridge=ridge)
        cache = slots(posterior, task, ("prediction", "variance"))
        total = np.asarray(slots(average, task, ("log_evidence",))["log_evidence"])[:, -1]
        for name, slot in (("mean", "prediction"), ("variance", "variance")):
            value, truth = (np.asarray(a) for a in (cache[slot], getattr(best, name)))
            gaps = np.max(np.abs(value[:, -QUERIES:] - truth), axis=1) / np.max(np.abs(truth))
            errors_of[name].append([float(gaps[t]) for t in steps])
        errors_of["evidence"].append([float(abs(total[t] - evidence)) for t in steps])
        eigenvalues = np.linalg.eigvalsh(np.asarray(exact.x.T @ exact.x))
        conditions.append(float((eigenvalues[-1] + ridge) / (max(eigenvalues[0], 0) + ridge)))
    worst = {
        name: dict(zip(times, np.max(values, axis=0).tolist(), strict=True))
        for name, values in errors_of.items()
    }
    of = {"m": m, "n": n, "ridge": ridge, "decay": decay, "dtype": dtype}
    return {**of, "condition": float(np.median(conditions)), **worst}


def document(record: dict[str, Any]) -> str:
    """The three tables of a record."""
    keys = [key for key in record["costs"][0] if key != "quartiles ms"]
    header = [*keys[:-2], "ms to compile", "ms", "ms / first row"]
    lines = []
    for row in record["costs"]:
        low, middle, high = (f"{ms:.2g}" for ms in row["quartiles ms"])
        sizes = ["-" if row[key] is None else str(row[key]) for key in keys[:-2]]
        compiled = f"{row['first ms'] - row['quartiles ms'][1]:.0f}"
        lines.append([*sizes, compiled, f"{middle} ({low} to {high})", f"{row['time']:.2f}"])
    tables = [(header, lines)]
    kinds = {decay: kind for kind, decay in DECAYS.items()}
    condition = {"condition number": records.digits("condition")}
    columns = {"features m": "m", "supports n": "n", "variances": lambda row: kinds[row["decay"]]}
    columns |= condition | {"dtype": "dtype"}
    for name in ("mean", "variance", "evidence"):
        columns |= after_steps(record["errors"], name)
    tables.append(records.table(record["errors"], columns))
    columns = {"ridge": records.digits("ridge"), "supports n": "n", **condition}
    columns |= after_steps(record["float32"], "evidence")
    tables.append(records.table(record["float32"], columns))
    return "\n".join(map(to_markdown, tables))


def after_steps(rows: list[Row], key: str) -> dict[str, Callable[[Row], str]]:
    """A column for each number of steps."""
    return {f"{key}, {t} steps": lambda row, t=t: format_number(row[key][t]) for t in rows[0][key]}


def main() -> None:
    quick = records.options(__doc__).quick
    record: dict[str, Any] = {"costs": costs(1 if quick else 9)}
    with jax.enable_x64(True):
        sizes = ((4, 16),) if quick else SIZES
        record["errors"] = [
            errors(m, n, 0.1, decay, dtype, {"m + 1": m + 1, "3 m": 3 * m})
            for (m, n), decay, dtype in product(sizes, DECAYS.values(), ("float64", "float32"))
        ]
        grid = ((1e-2, 16),) if quick else product(RIDGES, LENGTHS)
        m, decay = 4 if quick else WIDTH, DECAYS["decaying"]
        times = {"m + 1": m + 1, "3 m": 3 * m, "8 m": 8 * m}
        record["float32"] = [errors(m, n, ridge, decay, "float32", times) for ridge, n in grid]
    dtype = "times in float32; errors in the dtype of the row, against oracles in float64"
    meta = records.meta("posteriors", seeds=[*range(SEED, SEED + SEEDS)], dtype=dtype)
    records.finish("posteriors", {"meta": meta, **record}, document, quick)


if __name__ == "__main__":
    main()
