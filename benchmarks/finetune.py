"""`python -m benchmarks.finetune`: fine-tune constructed gradient descent (C22); about an hour."""

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from math import isnan
from operator import itemgetter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from benchmarks import records
from benchmarks.records import grouped
from icl_krr import constructions, solvers
from icl_krr.experiments import Lines, Rows, draw_tasks, replace, to_csv, to_markdown
from icl_krr.kernels import Linear
from icl_krr.plots import curves_figure
from icl_krr.probes import linear_maps, weight_difference
from icl_krr.tasks import LinearRegression, Task, map_tasks
from icl_krr.theory import spectral_bounds
from icl_krr.training import Training, adapt, advance, held_out, start
from icl_krr.transformer import Transformer, dense, predict_batch, untie

QUICK = {"depths": (1, 2), "depth": 2, "updates": 20, "every": 10, "seeds": 1, "tasks": 64}
OWN_WEIGHTS, ALL_WEIGHTS = "trained: its own weights", "trained: all weights"
ALL_WEIGHTS_FROM_GD_PLUS_PLUS = "trained from GD++: all weights"
DIVERGED_ABOVE = 2
"""Training counts as diverged if its last loss exceeds its first loss times this factor."""


@dataclass(frozen=True)
class Config:
    """Settings of a fine-tuning of gradient descent on ill-conditioned linear tasks."""

    depths: tuple[int, ...] = (1, 2, 4, 6)  # numbers of blocks to train
    depth: int = 4  # number of blocks whose training path is recorded
    condition: float = 30.0  # condition number of the covariance of the inputs
    num_features: int = 8  # number of features p
    num_supports: int = 32  # number of supports n
    noise: float = 0.02  # variance of the noise on the supports' outputs
    updates: int = 3000  # number of updates, each on a fresh batch
    batch: int = 256  # number of tasks in a batch
    learning_rates: tuple[float, ...] = (1e-3, 3e-4, 1e-4, 3e-5)  # until one does not diverge
    every: int = 200  # number of updates between records of the path
    tuning: int = 1024  # number of tasks that tune the scalars of competitors
    tasks: int = 4096  # number of other tasks that score all methods
    seeds: int = 3  # number of seeds
    seed: int = 0  # first seed

    @property
    def family(self) -> Any:
        same = ("condition", "noise", "num_features", "num_supports")
        return LinearRegression(num_queries=4, **{name: getattr(self, name) for name in same})


class Problem(NamedTuple):
    """The tasks of one seed."""

    config: Config
    ridge: float  # optimal ridge of the tasks
    tuning: Task  # tasks that tune scalars
    scored: Task  # tasks that score models
    spectrum: tuple[float, float]  # bounds on the eigenvalues of K + ridge I

    def loss(self, model: Transformer) -> float:
        return float(jnp.mean((predict_batch(model, self.scored) - self.scored.y_query) ** 2))

    def exact_loss(self) -> float:
        exact = jax.jit(partial(map_tasks, lambda t: solvers.exact(Linear(), t, ridge=self.ridge)))
        return float(jnp.mean((exact(self.scored).prediction - self.scored.y_query) ** 2))

    def tune_scalars(self, build: Callable[[Any], Transformer], first: dict[str, Any]) -> Any:
        """The positive scalars with the least error, found by Adam on their logarithms."""
        objective = held_out(build, self.tuning)
        return adapt(objective, first, positive=tuple(first), iterations=300).parameters


def draw_problem(config: Config, seed: int) -> Problem:
    family = config.family
    kernel, ridge = family.optimal()
    key = jax.random.key(seed)
    both = (config.tuning, config.tasks)
    tuning, scored = (draw_tasks(jax.random.fold_in(key, i), n, family) for i, n in enumerate(both))
    bounds = jax.jit(partial(map_tasks, lambda task: spectral_bounds(kernel, task, ridge=ridge)))
    low, high = bounds(tuning)
    return Problem(config, ridge, tuning, scored, (float(jnp.min(low)), float(jnp.max(high))))


def gradient_descent(problem: Problem, depth: int, step_sizes: Any) -> Transformer:
    """Gradient descent with one step size per block, [depth], or one for all blocks."""
    sizes: dict[str, Any] = {"num_features": problem.config.num_features, "steps": depth}
    model = constructions.gradient_descent(Linear(), ridge=problem.ridge, step_size=1.0, **sizes)
    (block,) = untie(model).weights.steps
    etas = jnp.broadcast_to(jnp.asarray(step_sizes), depth)
    scaled = {"alpha", "r", "prediction"}

    def scale(unit: Any) -> Any:
        by = lambda leaf: leaf * etas.reshape(-1, *[1] * (leaf.ndim - 1))  # noqa: E731
        return unit.replace(up=jax.tree.map(by, unit.up)) if unit.to in scaled else unit

    steps = (block.replace(mlp=tuple(map(scale, block.mlp))),)  # pyright: ignore[reportAttributeAccessIssue]
    return model.replace(weights=model.weights.replace(steps=steps))  # pyright: ignore[reportAttributeAccessIssue]


def chebyshev_step_sizes(low: Any, high: Any, depth: int) -> jax.Array:
    """Reciprocals of Chebyshev nodes: the residual polynomial has the smallest maximum."""
    angles = jnp.pi * (2 * jnp.arange(depth, dtype=float) + 1) / (2 * depth)
    return 1 / ((high + low) / 2 + (high - low) / 2 * jnp.cos(angles))


def competitors(problem: Problem, depth: int) -> dict[str, Transformer]:
    """Algorithms with `depth` steps, each with its scalars tuned by the same procedure."""
    low, high = problem.spectrum
    sizes: dict[str, Any] = {"num_features": problem.config.num_features, "steps": depth}
    descent = partial(gradient_descent, problem, depth)

    def interval(at: dict[str, Any]) -> tuple[Any, Any]:
        return at["high"] * at["share"] / (1 + at["share"]), at["high"]

    nodes, ends = chebyshev_step_sizes(high / 10, high, depth), {"share": 0.1, "high": high}
    chebyshev = partial(constructions.chebyshev, Linear(), ridge=problem.ridge, **sizes)
    builds: dict[str, tuple[Callable[[Any], Transformer], dict[str, Any]]] = {
        "tuned step": (lambda at: descent(at["step"]), {"step": 2 / (low + high)}),
        "tuned steps": (lambda at: descent(at["steps"]), {"steps": nodes}),
        "Chebyshev roots, tuned interval": (
            lambda at: descent(chebyshev_step_sizes(*interval(at), depth)),
            ends,
        ),
        "Chebyshev iteration, tuned interval": (lambda at: chebyshev(spectrum=interval(at)), ends),
        "GD++, tuned": (
            lambda at: constructions.gradient_descent_plus_plus(Linear(), **at, **sizes),
            {"step_size": 2 / high, "curvature": 0.2 / high},
        ),
    }
    models = {"textbook step": descent(2 / (low + high))}
    for name, (build, first) in builds.items():
        models[name] = build(problem.tune_scalars(build, first))
    best = constructions.conjugate_gradient(Linear(), ridge=problem.ridge, **sizes)
    return models | {"conjugate gradient, as many steps": best}


Path = list[tuple[int, Transformer, float]]
"""The number of updates, the model and its loss: at the start, early, and from time to time."""


def train_without_divergence(problem: Problem, first: Transformer, seed: int) -> tuple[Path, float]:
    """Train all weights by Adam on fresh tasks; also returns the learning rate.

    Training diverges if a loss is NaN, or if the last loss exceeds the first loss times
    `DIVERGED_ABOVE`. It then starts again at the next learning rate.
    """
    c, path = problem.config, []
    for rate in c.learning_rates:
        recipe = Training(steps=c.updates, batch=c.batch, learning_rate=rate, seed=seed)
        state, path = start(first, recipe), [(0, first, problem.loss(first))]
        for update in range(1, c.updates + 1):
            state, _ = advance(state, c.family, recipe)
            if update % c.every == 0 or update in (10, 50, 100):
                model = jax.tree.map(jnp.copy, state.model)  # the next step takes its buffers
                path.append((update, model, problem.loss(model)))
                if isnan(path[-1][2]):
                    break
        if path[-1][2] < DIVERGED_ABOVE * path[0][2]:
            break
    return path, rate  # pyright: ignore[reportPossiblyUnboundVariable]


class Comparison(NamedTuple):
    """Rows for every method, depth and seed; update and block of a training run; pair of slots."""

    losses: Rows
    path: Rows
    moved: Rows


def compare(config: Config) -> Comparison:
    """Train textbook gradient descent at every depth, and compare it with competitors.

    The method "trained: its own weights" trains the weights of the construction, untied. Those with
    "all weights" train every entry of the dense matrices, starting from textbook gradient descent
    or from tuned GD++. The path is that of the former with `config.depth` blocks.

    The column `gain` is (textbook loss - exact loss) / (loss - exact loss).
    """
    losses, path, moved = Comparison([], [], [])
    for seed in range(config.seed, config.seed + config.seeds):
        problem = draw_problem(config, seed)
        least = problem.exact_loss()
        for depth in config.depths:
            models = competitors(problem, depth)
            first = models["textbook step"]
            rates: dict[str, float] = {}
            starts = {
                OWN_WEIGHTS: untie(first),
                ALL_WEIGHTS: dense(first),
                ALL_WEIGHTS_FROM_GD_PLUS_PLUS: dense(models["GD++, tuned"]),
            }
            for name, begun in starts.items():
                print(f"seed {seed}, {depth} blocks: training '{name}'", flush=True)
                trained, rates[name] = train_without_divergence(problem, begun, seed)
                models[name] = trained[-1][1]
                if depth == config.depth and name == ALL_WEIGHTS:
                    path += [
                        {"seed": seed, "update": update, "loss": error, **row}
                        for update, model, error in trained
                        for row in of_blocks(problem, begun, model)
                    ]
                    moved += [{"seed": seed, **r} for r in weight_difference(models[name], begun)]
            final_losses = {name: problem.loss(model) for name, model in models.items()}
            for name, error in final_losses.items():
                gain = (final_losses["textbook step"] - least) / (error - least)
                row = {"seed": seed, "blocks": depth, "method": name, "loss": error}
                row |= {"exact": least, "gain": gain, "learning rate": rates.get(name)}
                losses.append(row)
    return Comparison(losses, path, moved)


def of_blocks(problem: Problem, begun: Transformer, model: Transformer) -> Rows:
    """A row for every block, with its step size, its curvature and the change of its weights."""
    high, changes = problem.spectrum[1], weight_difference(model, begun)
    return [
        {
            "block": block,
            "step x high": step * high,
            "curvature x high": curvature * high,
            "change": float(np.linalg.norm([r["change"] for r in changes if r["block"] == block])),
        }
        for block, (step, curvature) in enumerate(zip(*block_coefficients(model), strict=True))
    ]


def block_coefficients(model: Transformer) -> tuple[list[float], list[float]]:
    """The step size eta and the curvature c of every block, read from its weights.

    A block adds eta <x, X^T r> to the prediction and subtracts c X^T X x from x. Each is the
    product of two numbers. The first is the query-key map of x, averaged over the features. The
    second is a map that the head and the MLP after it compute. For eta, it is the map from r to
    the prediction. For c, it is the map from x to x.
    """
    layout = model.layout
    x, r, f = (layout.channels(name) for name in ("x", "r", "prediction"))
    steps, curvatures = [], []
    for maps in linear_maps(model):
        step = curvature = 0.0
        for part, match in maps.items():
            if not part.endswith("query-key"):
                continue
            move = maps[part.replace("query-key", "value-output")]
            at_query, at_support = (move + move @ maps[f"mlp, {at}"] for at in ("query", "support"))
            compared = float(jnp.trace(match[x, x])) / layout["x"].width
            step += compared * float(at_query[r, f][0, 0])
            curvature -= compared * float(jnp.trace(at_support[x, x])) / layout["x"].width
        steps.append(step)
        curvatures.append(curvature)
    return steps, curvatures


def loss_table(comparison: Comparison) -> Lines:
    cells = grouped(comparison.losses, itemgetter("method", "blocks"))
    names, depths = (list(dict.fromkeys(key)) for key in zip(*cells, strict=True))
    lines = []
    for name in names:
        line = [name]
        for depth in depths:
            here = cells[name, depth]
            ratio = np.array([r["loss"] / r["exact"] for r in here])
            gain = np.array([r["gain"] for r in here])
            bad = np.count_nonzero(~np.isfinite(ratio))
            whole = f"{mean_and_range(ratio)} (x {mean_and_range(gain)})"
            line.append(f"diverged, {bad} of {len(ratio)} seeds" if bad else whole)
        lines.append(line)
    return ["loss / exact (gain)", *(f"{depth} blocks" for depth in depths)], lines


def mean_and_range(values: np.ndarray) -> str:
    """Mean and half the range over seeds, as text."""
    return f"{values.mean():.3g} +- {np.ptp(values) / 2:.1g}"


def document(comparison: Comparison) -> str:
    return "\n".join(map(to_markdown, (loss_table(comparison), most_moved_table(comparison))))


def most_moved_table(comparison: Comparison, count: int = 12) -> Lines:
    """A table of the pairs of slots whose weights changed most, averaged over seeds."""
    each = grouped(comparison.moved, itemgetter("block", "part", "from", "to")).items()
    means = [(float(np.mean([row["change"] for row in rows])), pair) for pair, rows in each]
    means.sort(reverse=True)
    lines = [[*map(str, pair), f"{mean:.2g}"] for mean, pair in means[:count]]
    return ["block", "part", "from", "to", "change"], lines


def depth_figure(comparison: Comparison) -> Figure:
    """Excess loss over exact KRR against blocks, for trained weights and tuned algorithms."""
    curves = {}
    for name, here in grouped(comparison.losses, itemgetter("method")).items():
        each = grouped(here, itemgetter("blocks"))
        depths = sorted(each)
        excess = [[row["loss"] / row["exact"] - 1 for row in each[depth]] for depth in depths]
        curves[name] = depths, *spread(excess)
    panels = {"number of blocks": curves}
    words = "loss / loss of exact KRR - 1\n(mean and range over seeds)"
    dots = [name for name in curves if name.startswith("trained")]
    return curves_figure(panels, words, title_of(comparison), log="y", dots=dots)


def path_figure(comparison: Comparison, key: str, label: str) -> Figure:
    """Mean and range over seeds after every update, a curve for each block."""
    curves, lines = {}, {}
    for block, rows in grouped(comparison.path, itemgetter("block")).items():
        updates = grouped(rows, itemgetter("update"))
        values = [[row[key] for row in each] for each in updates.values()]
        curves[f"block {block}"] = [*updates], *spread(values)
    if key == "loss":  # the same for all blocks
        curves = {"trained, all weights": curves["block 0"]}
        lines = {name: mean_loss(comparison, name) for name in ("tuned step", "GD++, tuned")}
        lines["Chebyshev roots"] = mean_loss(comparison, "Chebyshev roots, tuned interval")
    title, log = title_of(comparison), "y" if lines else ""
    return curves_figure({"update": curves}, label, title, log=log, lines=lines)


PATHS = {
    "learning-loss": ("loss", "loss at the queries"),
    "learning-steps": ("step x high", "step size x largest eigenvalue"),
    "learning-curvature": ("curvature x high", "curvature (GD++) x largest eigenvalue"),
    "learning-change": ("change", "relative distance from the construction"),
}
"""{figure: (number of a row of the path, label of its axis)}."""


def figures(comparison: Comparison) -> dict[str, Figure]:
    paths = {name: path_figure(comparison, *shown) for name, shown in PATHS.items()}
    return {"learning": depth_figure(comparison), **paths}


def title_of(comparison: Comparison) -> str:
    seeds = sorted({row["seed"] for row in comparison.losses})
    start = "training starts from constructed gradient descent or GD++"
    return f"{start}; seeds {seeds[0]} to {seeds[-1]}, float32"


def mean_loss(comparison: Comparison, method: str) -> float:
    depth = max(row["block"] for row in comparison.path) + 1
    here = [r["loss"] for r in comparison.losses if (r["method"], r["blocks"]) == (method, depth)]
    return float(np.mean(here))


def spread(values: list[list[float]]) -> Iterator[list[float]]:
    """Means, least and largest values."""
    return ([*map(of, values)] for of in (np.mean, min, max))


def main() -> None:
    args = records.options(__doc__, seed="first seed")
    config = Config(seed=args.seed, **(QUICK if args.quick else {}))
    comparison = compare(config)
    facts = {"config": dataclasses.asdict(config), "dtype": "float32", "losses": comparison.losses}
    meta = records.meta("finetune", "optax", **facts)
    records.finish("learning", meta, lambda _: document(comparison), args.quick)
    if not args.quick:
        for name, figure in figures(comparison).items():
            records.draw(name, figure)
        replace(records.RESULTS / "learning-path.csv", to_csv(comparison.path))
        replace(records.RESULTS / "learning-moved.csv", to_csv(comparison.moved))


if __name__ == "__main__":
    main()
