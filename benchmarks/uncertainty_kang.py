"""`python -m benchmarks.uncertainty_kang`: the experiments of Kang, Lee and Cheng (2026), arXiv
2605.26713, with other models.
"""

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.random import Generator
from rich.progress import track
from scipy.linalg import cholesky, solve_triangular
from scipy.spatial.distance import cdist

import icl_krr as ik
from benchmarks import records
from icl_krr import constructions, uncertainty
from icl_krr.experiments import to_markdown
from icl_krr.uncertainty import Predictive

SIGMA = 0.2
BINS, LAYERS, LEVELS = (16, 32, 64, 128, 256), (2, 4, 8, 16, 32), (0.5, 0.9, 0.95)
PUBLISHED = {  # figure 2: log of the mean total variation distance: BINS x LAYERS
    ("linear", "theory"): (
        (-0.72, -1.15, -1.41, -1.45, -1.46),
        (-0.76, -1.38, -1.94, -2.11, -2.12),
        (-0.77, -1.51, -2.38, -2.78, -2.82),
        (-0.77, -1.56, -2.69, -3.41, -3.51),
        (-0.77, -1.59, -2.88, -3.98, -4.19),
    ),
    ("linear", "learnable"): (
        (-0.88, -1.42, -1.48, -1.48, -1.48),
        (-0.96, -1.94, -2.15, -2.15, -2.14),
        (-0.98, -2.31, -2.83, -2.82, -2.83),
        (-0.99, -2.5, -3.46, -3.51, -3.48),
        (-0.99, -2.6, -4.09, -4.14, -4.22),
    ),
    ("gaussian", "theory"): (
        (-0.65, -1.16, -1.47, -1.69, -1.61),
        (-0.66, -1.24, -1.49, -2.18, -1.83),
        (-0.67, -1.31, -1.97, -2.52, -2.68),
        (-0.67, -0.99, -2.0, -2.69, -2.95),
        (-0.67, -1.05, -2.0, -2.71, -2.86),
    ),
    ("gaussian", "learnable"): (
        (-0.66, -1.24, -1.6, -1.65, -1.74),
        (-0.67, -1.38, -2.0, -2.11, -2.32),
        (-0.68, -1.43, -2.21, -2.34, -2.76),
        (-0.68, -1.45, -2.3, -2.49, -2.92),
        (-0.68, -1.45, -2.32, -2.53, -3.07),
    ),
}
MANY = (0.4, 0.8, 1.2)
SCORES = {  # tables 2, 3: (lengthscales, n): CRPS; coverage at LEVELS, with 8, 16, 32 layers
    ((0.4,), 256): ".538 .547 .539; .504 .487 .505; .904 .899 .904; .953 .946 .953",
    ((0.4,), 1024): ".540 .540 .538; .495 .485 .499; .896 .887 .894; .947 .943 .947",
    ((0.8,), 256): ".318 .310 .307; .488 .499 .509; .890 .901 .905; .942 .951 .954",
    ((0.8,), 1024): ".271 .262 .258; .444 .478 .505; .848 .877 .897; .908 .932 .950",
    ((1.6,), 256): ".157 .151 .149; .500 .498 .506; .901 .900 .908; .950 .948 .952",
    ((1.6,), 1024): ".147 .137 .135; .481 .479 .503; .883 .884 .908; .938 .943 .952",
    (MANY, 256): ".380 .378 .377; .573 .575 .590; .895 .897 .901; .937 .937 .942",
    (MANY, 512): ".374 .371 .367; .570 .568 .590; .889 .891 .903; .926 .925 .932",
    (MANY, 1024): ".358 .353 .346; .560 .563 .598; .887 .887 .902; .930 .929 .940",
}
NOISES = (0.1, 0.2, 0.3)  # standard deviations in table 3
TASKS = {256: 2048, 512: 1024, 1024: 512}
FIGURE = 512
SOLVED = {256: 512, 1024: 128}  # by models of many steps
ENDS = (-3.2, 3.2)  # between which distributions are compared in tables 2 and 3

Kernel = ik.Linear | ik.Gaussian
Row = dict[str, Any]
Density = tuple[np.ndarray, np.ndarray]


class Drawn(NamedTuple):
    """A batch of tasks with one query, its output, and the exact distribution of the output."""

    tasks: ik.Task
    y: np.ndarray
    exact: Predictive


def gram(kernel: Kernel, x: np.ndarray) -> np.ndarray:
    if isinstance(kernel, ik.Linear):
        z = x @ np.asarray(kernel.projection).T
        return z @ z.T
    return np.exp(-cdist(x, x, "sqeuclidean") / (2 * kernel.lengthscale**2))


def draw(rng: Generator, pairs: Sequence[tuple[Kernel, float]], p: int, sizes: np.ndarray) -> Drawn:
    """Tasks of a process that is drawn from `pairs` of kernel and noise, a task for each size.

    The last row of the Cholesky factor of the covariance of the supports and the query has mean and
    variance of the output of the query given the supports.
    """
    most, parts = int(sizes.max()), []
    for n in track(sizes, f"draw {len(sizes)} tasks"):
        x = rng.normal(size=(n + 1, p)) / np.sqrt(p)
        roots = [cholesky(gram(k, x) + s**2 * np.eye(n + 1), lower=True) for k, s in pairs]
        y = roots[rng.integers(len(pairs))] @ rng.normal(size=n + 1)
        z = [solve_triangular(root[:n, :n], y[:n], lower=True) for root in roots]
        solved = [*zip(roots, z, strict=True)]
        evidence = [-0.5 * v @ v - np.log(np.diag(L)[:n]).sum() for L, v in solved]
        weights = np.exp(np.array(evidence) - max(evidence))
        means = [L[n, :n] @ v for L, v in solved]
        at = np.pad(x[:n], ((0, most - n), (0, 0))), np.pad(y[:n], (0, most - n))
        mask_of_n = np.arange(most) < n
        moments = weights / weights.sum(), np.array(means), [root[n, n] ** 2 for root in roots]
        parts.append((*at, x[n:], mask_of_n, y[n], *moments))
    x, y, x_query, mask, targets, *exact = map(np.stack, zip(*parts, strict=True))
    tasks = ik.Task(*map(jnp.asarray, (x, y, x_query)), mask=jnp.asarray(mask))
    return Drawn(tasks, targets, Predictive(*map(jnp.asarray, exact)))


def of_model(model: ik.Transformer) -> Callable[[ik.Task], Predictive]:
    """The distribution that a model reads out, at the query of every task."""
    run = jax.jit(lambda tasks: ik.map_tasks(lambda task: ik.predictive(model, task), tasks))
    return lambda tasks: Predictive(*(part[:, 0] for part in run(tasks)))


def of_posterior(model: ik.Transformer, kernel: Kernel) -> Callable[[ik.Task], Predictive]:
    """The distribution of a model that solves for y and for the vectors k(x) of the queries."""
    solve = lambda task: tuple(ik.posterior(model, kernel, task))  # noqa: E731
    run = jax.jit(lambda tasks: ik.map_tasks(solve, tasks))

    def distribution(tasks: ik.Task) -> Predictive:
        mean, variance = run(tasks)
        return Predictive(jnp.ones_like(mean), mean, variance + SIGMA**2)

    return distribution


def constant(name: str, kernel: ik.Kernel, other: Drawn) -> Callable[[ik.Task], Predictive]:
    """A baseline whose variance is its mean squared error on other tasks."""

    def means(tasks: ik.Task) -> jax.Array:
        if name == "zero":
            return jnp.zeros((len(tasks.x), 1))
        if name == "mean of the supports":
            return jnp.mean(tasks.y, axis=1, where=tasks.mask)[:, None]
        smooth = lambda task: ik.solvers.nadaraya_watson(kernel, task).prediction  # noqa: E731
        return jax.jit(lambda tasks: ik.map_tasks(smooth, tasks))(tasks)

    variance = jnp.mean((means(other.tasks) - other.y[:, None]) ** 2)
    return lambda tasks: Predictive(
        jnp.ones((len(tasks.x), 1)), means(tasks), jnp.full((len(tasks.x), 1), variance)
    )


def truncated(drawn: Drawn, low: float, high: float) -> Density:
    """The middles of 512 equal parts of [low, high], and the exact densities there, truncated."""
    points = np.linspace(low, high, 513)
    middles, count = (points[1:] + points[:-1]) / 2, len(drawn.y)
    density = jax.jit(jax.vmap(lambda y: uncertainty.log_density(drawn.exact, y)))
    p = np.exp(np.asarray(density(np.repeat(middles[:, None], count, axis=1)))).T
    ends = jnp.asarray(np.full((count, 2), (low, high)).T)
    below, up_to = np.asarray(uncertainty.cdf(drawn.exact, ends))
    return middles, p / (up_to - below)[:, None]


def distance(target: Density, predictive: Predictive, edges: np.ndarray) -> np.ndarray:
    """Total variation distance of binned distributions from the exact ones between two edges.

    As in their code: both are truncated, the integral is a midpoint rule with 512 points, and the
    density in a bin is constant.
    """
    middles, p = target
    inside = np.asarray(jax.jit(uncertainty.bins)(predictive, jnp.asarray(edges)))[:, 1:-1]
    at = np.searchsorted(edges, middles, side="right") - 1
    q = (inside / inside.sum(1, keepdims=True) / np.diff(edges))[:, at]
    return 0.5 * np.abs(p - q).sum(1) * (middles[1] - middles[0])


OUTSIDE = "kernel, noise; k(x, x_q) comes from outside"
BASELINES = "zero", "mean of the supports", "Nadaraya-Watson"


def solvers_of(kernel: Kernel, p: int, drawn: Drawn, steps: Sequence[int]) -> list[Row]:
    """Constructions that solve with k(x), for every number of steps."""
    sizes: dict[str, Any] = {"num_features": p, "ridge": SIGMA**2}
    names, inputs, rows = ("richardson", "conjugate_gradient"), OUTSIDE, []
    if isinstance(kernel, ik.Linear):  # softmax needs a positive kernel
        bounds = lambda task: ik.spectral_bounds(kernel, task, ridge=SIGMA**2)  # noqa: E731
        _, high = ik.map_tasks(bounds, jax.tree.map(lambda part: part[:64], drawn.tasks))
        sizes["step_size"] = 1 / float(high.max())
        names, inputs = ("gradient_descent",), OUTSIDE + "; largest eigenvalue"
    for name, step in product(names, steps):
        model = getattr(constructions, name)(kernel, steps=step, **sizes)
        about = {"model": name, "required_inputs": inputs, "steps": step, "blocks": model.depth}
        rows.append({**about, "run": of_posterior(model, kernel)})
    return rows


def of_tasks(model: str, inputs: str, predictive: Predictive) -> Row:
    """A distribution that comes with the tasks."""
    return {"model": model, "required_inputs": inputs, "run": lambda _: predictive}


def baselines_of(names: Sequence[str], kernel: Kernel, before: Drawn) -> list[Row]:
    rows = [(f"{name}, constant variance", constant(name, kernel, before)) for name in names]
    return [{"model": model, "required_inputs": "variance", "run": run} for model, run in rows]


def figure_2(tasks: int, seed: int) -> list[Row]:
    """Log of the mean distance for every number of bins, on Bayesian linear and GP regression."""
    scale = jnp.diag(jnp.sqrt(jnp.array([2, 1, 1, 0.4, 0.4])))
    kinds = {"linear": (ik.Linear(scale), 5, 128, 512), "gaussian": (ik.Gaussian(0.8), 2, 64, 128)}
    rows: list[Row] = []
    for name, (kernel, p, fewest, most) in kinds.items():
        rng = np.random.default_rng(seed)
        pairs = [(kernel, SIGMA)]
        before, drawn = (
            draw(rng, pairs, p, rng.integers(fewest, most, size=count, endpoint=True))
            for count in (2000, tasks)
        )
        low, high = np.quantile(before.y, (0.001, 0.999))
        inputs = "kernel, noise"
        variants = [of_tasks("exact Bayes", inputs, drawn.exact)]
        if name == "linear":
            features, steps, approximates = kernel, (2, 4, 5), None
        else:
            landmarks = jnp.asarray(rng.normal(size=(64, p)) / np.sqrt(p))
            features = ik.Features(ik.sketches.nystrom_features(kernel, landmarks))
            steps, approximates, inputs = LAYERS, kernel, inputs + "; 64 points of the family"
        for step in steps:
            model = constructions.prefix_posterior(
                features, num_features=p, ridge=SIGMA**2, steps=step, approximates=approximates
            )
            about = {"model": "prefix_posterior", "required_inputs": inputs, "steps": step}
            variants.append({**about, "blocks": model.depth, "run": of_model(model)})
        variants += solvers_of(kernel, p, drawn, LAYERS)
        variants += baselines_of(BASELINES if name == "gaussian" else BASELINES[:2], kernel, before)
        target = truncated(drawn, low, high)
        for row in track(variants, f"figure 2, {name}"):
            predictive = row.pop("run")(drawn.tasks)
            for count in BINS:
                gaps = distance(target, predictive, np.linspace(low, high, count + 1))
                row[f"{count} bins"] = float(np.log(gaps.mean()))
            rows.append({"family": name, **row})
    return rows


central = jax.jit(uncertainty.interval)


def scores(drawn: Drawn, target: Density, predictive: Predictive) -> Row:
    """Score and coverage with standard errors, and the distance from the exact distributions."""
    y = jnp.asarray(drawn.y)
    crps = np.asarray(uncertainty.crps(predictive, y))
    row = {"CRPS": float(crps.mean()), "CRPS error": float(crps.std() / np.sqrt(len(y)))}
    for level in LEVELS:
        lower, upper = (np.asarray(end) for end in central(predictive, level))
        inside = (lower <= drawn.y) & (drawn.y <= upper)
        row[f"{level:.0%}"] = float(inside.mean())
        row[f"{level:.0%} error"] = float(inside.std() / np.sqrt(len(y)))
    row["log likelihood"] = float(uncertainty.log_likelihood(predictive, y))
    row["p-value"] = uncertainty.uniformity(predictive, y).p_value
    edges = np.linspace(*ENDS, 257)
    row["log distance"] = float(np.log(distance(target, predictive, edges).mean()))
    return row


def tables_2_and_3(tasks: dict[int, int], seed: int) -> list[Row]:
    """Scores on 16 features, with one lengthscale and noise, and with a prior over both."""
    rows: list[Row] = []
    for lengths, n in SCORES:
        rng, p = np.random.default_rng(seed), 16
        noises = (SIGMA,) if len(lengths) == 1 else NOISES
        numbers = [*product(lengths, noises)]
        pairs = [(ik.Gaussian(ell), sigma) for ell, sigma in numbers]
        counts = max(tasks[n] // 4, 8), tasks[n]
        before, drawn = (draw(rng, pairs, p, np.full(count, n)) for count in counts)
        exact, kernel = drawn.exact, ik.Gaussian(0.8)
        if len(pairs) == 1:
            kernel = pairs[0][0]
            variants = [of_tasks("exact Bayes", "kernel, noise", exact)]
            if n == 256 or lengths == (0.8,):
                variants += solvers_of(kernel, p, drawn, (8, 16, 32))
        else:
            at = jnp.argmax(exact.weights, axis=1, keepdims=True)
            places = at, jnp.full_like(at, numbers.index((0.8, SIGMA)))
            moments = ([jnp.take_along_axis(a, place, 1) for a in exact[1:]] for place in places)
            best, middle = (Predictive(jnp.ones(at.shape), *pair) for pair in moments)
            inputs, wrong = "9 pairs of kernel and noise", "1 pair, often wrong"
            variants = [
                of_tasks("exact Bayesian average", inputs, exact),
                of_tasks("largest evidence", inputs, best),
                of_tasks("lengthscale 0.8, noise 0.2", wrong, middle),
            ]
        variants += baselines_of(BASELINES, kernel, before)
        target = truncated(drawn, *ENDS)
        for row in track(variants, f"lengthscales {lengths}, {n} supports"):
            count = min(SOLVED[n], len(drawn.y)) if "steps" in row else len(drawn.y)
            part, subset = jax.tree.map(lambda a, k=count: a[:k], (drawn, target[1]))
            predictive = row.pop("run")(part.tasks)
            about = {"lengthscales": list(lengths), "supports": n, "tasks": count}
            rows.append({**about, **row, **scores(part, (target[0], subset), predictive)})
    return rows


def figure_2_table(rows: list[Row]) -> str:
    header = ["family", "model", "required inputs", "steps or layers", "blocks"]
    header += [f"{count} bins" for count in BINS]
    lines = []
    for (family, mode), cells in PUBLISHED.items():
        for k, layers in enumerate(LAYERS):
            about = [family, f"Kang et al., trained, {mode}", "trained on the family"]
            lines.append([*about, str(layers), str(layers), *(f"{row[k]:.2f}" for row in cells)])
    for row in rows:
        about = [row["family"], row["model"], row["required_inputs"]]
        size = [str(row.get(name, "")) for name in ("steps", "blocks")]
        lines.append([*about, *size, *(f"{row[f'{count} bins']:.2f}" for count in BINS)])
    return to_markdown((header, sorted(lines, key=lambda line: line[0] != "linear")))


def scores_table(rows: list[Row]) -> str:
    names = ("CRPS", *(f"{level:.0%}" for level in LEVELS))
    header = ["lengthscales", "supports", "model", "required inputs", "steps or layers", "blocks"]
    header += ["tasks", *names, "log likelihood", "p-value of uniformity"]
    header.append("log of the mean distance from exact, 256 bins")
    lines = []
    for (lengths, n), text in SCORES.items():
        where = [", ".join(map(str, lengths)), str(n)]
        cells = [part.split() for part in text.split(";")]
        for k, layers in enumerate((8, 16, 32)):
            about = [*where, "Kang et al., trained, learnable", "trained on the family"]
            columns = [f"0{cell[k]}" for cell in cells]
            lines.append([*about, str(layers), str(layers), "about 5000", *columns, "", "", ""])
        for row in rows:
            if (tuple(row["lengthscales"]), row["supports"]) == (lengths, n):
                size = [str(row.get(name, "")) for name in ("steps", "blocks", "tasks")]
                columns = [f"{row[name]:.3f} ± {row[f'{name} error']:.3f}" for name in names]
                rest = [f"{row['log likelihood']:.3f}", f"{row['p-value']:.2g}"]
                rest.append(f"{row['log distance']:.2f}")
                lines.append([*where, row["model"], row["required_inputs"], *size, *columns, *rest])
    return to_markdown((header, lines))


CAPTION = """G. Kang, C. J. Lee, X. Cheng, Transformers can learn posterior predictive distributions
in-context, ICML 2026, arXiv 2605.26713. Their numbers are copied from their text: of trained
transformers with 2 to 32 layers, one training seed, from the heat maps of figure 2 and from tables
2 and 3. All others are measured here, in float64, seed {seed}, {versions}. Their noise of 0.2 is a
standard deviation, as in their published code; their text calls it a variance, with which their
scores are not possible. They draw outputs from distributions without the outer 0.2%; here nothing
is left out. A block is attention and an MLP; a layer of theirs is attention. Models that solve with
k(x, x_q) take this vector as further outputs (`ik.posterior`); theirs compute it in their first
layer. `prefix_posterior` takes x and y alone.

Figure 2: logarithm of the mean total variation distance of binned from exact distributions,
{tasks} tasks

{figure_2}
Tables 2 and 3: 16 features, scores ± standard errors

{scores}"""


def document(record: Row) -> str:
    meta, scores = record["meta"], scores_table(record["tables 2, 3"])
    facts = {"tasks": meta["tasks"]["figure 2"], "figure_2": figure_2_table(record["figure 2"])}
    return records.caption(CAPTION, meta, scores=scores, **facts)


def main() -> None:
    quick = "few tasks; writes no files"
    args = records.options(__doc__, quick, seed="seed of the tasks")
    jax.config.update("jax_enable_x64", True)
    sizes = dict.fromkeys(TASKS, 8) if args.quick else TASKS
    figure = 8 if args.quick else FIGURE
    facts = {"dtype": "float64", "tasks": {"figure 2": figure, **sizes}}
    meta = records.meta("uncertainty_kang", "numpy", "scipy", seed=args.seed, **facts)
    record = {"meta": meta, "figure 2": figure_2(figure, args.seed)}
    record["tables 2, 3"] = tables_2_and_3(sizes, args.seed)
    records.finish("uncertainty-kang", record, document, args.quick)


if __name__ == "__main__":
    main()
