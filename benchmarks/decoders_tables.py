"""The grid of decoders of `benchmarks.decoders`, and the table of those that were trained."""

from __future__ import annotations

from typing import Any, NamedTuple

from icl_krr.files import to_markdown

FIRST, BATCH, RATE, VALIDATION = 2000, 16, 0.064, 2048
"""Updates of the first round, tasks of a step, learning rate times the width, and validation
tasks."""


class Cell(NamedTuple):
    """One model: its tasks, its size and its seed."""

    num_features: int = 2
    num_supports: int = 16
    lengthscale: float = 0.8
    depth: int = 8
    width: int = 32
    seed: int = 0

    @property
    def name(self) -> str:
        p, n, scale, depth, width, seed = self
        return f"p{p}-n{n}-l{scale:.2g}-depth{depth}-width{width}-seed{seed}"


LENGTHS = {1: 0.57, 2: 0.8, 5: 1.26}
"""The lengthscale for each number of features p, about 0.57 sqrt(p): half of it is the other."""
DEPTHS, SEEDS = (4, 8, 12), (0, 1, 2, 3, 4)


def cells() -> list[Cell]:
    """The models that are trained: first all depths, then one axis at a time, then more seeds."""
    base = Cell()
    axes = [base._replace(num_features=p, lengthscale=LENGTHS[p]) for p in (1, 5)]
    axes += [base._replace(num_supports=32), base._replace(lengthscale=0.4)]
    axes += [base._replace(width=width) for width in (16, 64)]
    of_seed = [[base._replace(depth=depth, seed=seed) for depth in DEPTHS] for seed in SEEDS]
    return [*of_seed[0], *axes, *of_seed[1], *of_seed[2], base._replace(num_supports=64)]


def whole_grid() -> list[Cell]:
    """Every combination of the grid, trained or not."""
    return [
        Cell(p, n, length, depth, 32, seed)
        for seed in SEEDS
        for p, usual in LENGTHS.items()
        for n in (16, 32, 64)
        for length in (usual, usual / 2)
        for depth in DEPTHS
    ]


def row_of(cell: Cell, found: dict[str, Any]) -> dict[str, Any]:
    """The row of a model in the file that the package has."""
    own = cell._asdict()
    return {
        "model": cell.name,
        "style": "decoder",
        "attention": "softmax",
        **{name: own[name] for name in ("num_features", "num_supports", "lengthscale")},
        "noise": 0.05,
        **{name: own[name] for name in ("depth", "width", "seed")},
        **{name: found[name] for name in ("updates", "converged", "validation", "exact")},
        **{name: found[name] for name in ("nadaraya_watson", "mean", "zero")},
    }


def cost(cell: Cell, done: dict[Cell, dict[str, Any]]) -> float:
    """CPU seconds of a model that was not trained, from those that were: about tokens x blocks."""
    size = lambda one: one.depth * one.num_supports * one.width  # noqa: E731
    near = min(done, key=lambda one: abs(one.num_supports - cell.num_supports))
    return done[near]["seconds"] * size(cell) / size(near)


def markdown(done: dict[Cell, dict[str, Any]]) -> str:
    header = ["model", "error / exact", "Nadaraya-Watson", "mean", "zero", "updates"]
    header += ["excess after each round", "no longer falls", "CPU minutes"]
    lines = []
    for cell, found in done.items():
        ratios = (found[name] / found["exact"] for name in ("validation", *BASELINES))
        fell = ", ".join(f"{one:.3g}" for one in found["excess after each round"])
        cells = [*(f"{ratio:.3g}" for ratio in ratios), str(found["updates"]), fell]
        yes = "yes" if found["converged"] else "no"
        lines.append([cell.name, *cells, yes, f"{found['seconds'] / 60:.1f}"])
    left = [cell for cell in whole_grid() if cell not in done]
    hours = sum(cost(cell, done) for cell in left) / 3600
    spent = sum(found["seconds"] for found in done.values()) / 3600
    return (
        f"{ABOUT}\n{to_markdown((header, lines))}\n\n{len(done)} models took {spent:.1f} CPU "
        f"hours. Of the grid of {len(whole_grid())} models (p in 1, 2, 5; n in 16, 32, 64; two "
        f"lengthscales; depths 4, 8, 12; five seeds), {len(left)} were not trained; they would "
        f"cost about {hours:.0f} CPU hours.\n"
    )


BASELINES = ("nadaraya_watson", "mean", "zero")
ABOUT = f"""\
`python -m benchmarks.decoders` trains GPT-2-style decoders (LayerNorm, GELU, learned positions,
causal softmax attention with 4 heads, x and y interleaved) on Gaussian-process regression: inputs
uniform in (-1, 1), Gaussian kernel, noise variance 0.05. Targets are the outputs at every support
and at the query; no exact prediction is ever shown. AdamW, batches of {BATCH} tasks, learning rate
{RATE:g} over the width, with warm-up and cosine decay in every round. Rounds have {FIRST},
{FIRST}, {2 * FIRST}, ... updates. "No longer falls": the last round, which doubled the updates,
lowered the excess error over exact regression by less than a tenth. Errors are at one query after
all n supports, on {VALIDATION} tasks that no round has seen.
"""
