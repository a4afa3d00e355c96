"""`python -m benchmarks.designed_tasks`: identify models on drawn and on designed tasks.

The models are solvers of linear regression with an error that no candidate has: a random smooth
function of the queries and of the supports, times 3 % or 10 % of the root mean square of y. Two
candidates are fitted to drawn tasks. They are scored on other drawn tasks, and on the same tasks
after `icl_krr.probes.design` has moved them. Five seeds each, float64, a few minutes on two cores.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from rich.progress import track

import icl_krr as ik
from benchmarks import records
from icl_krr.experiments.shared.draws import draw_tasks
from icl_krr.files import to_markdown
from icl_krr.probes import design, fit_candidate, gaussian_prior, identify, separation
from icl_krr.probes.naming.separation import predictions, program_of

FEATURES, SUPPORTS, TASKS, DEPTH, SEEDS = 3, 12, 24, 4, 5
FAMILY = ik.tasks.LinearRegression(
    num_features=FEATURES, num_supports=SUPPORTS, num_queries=8, noise=0.1
)
RIDGE = 0.1 * FEATURES
ERRORS = (0.03, 0.1)


class Case(NamedTuple):
    """A model and the two candidates that are asked for."""

    model: str
    solve: Callable[[ik.Task, float], jax.Array]
    candidates: tuple[str, str]


def heavy_ball(task: ik.Task, top: float) -> jax.Array:
    options = {"ridge": RIDGE, "steps": DEPTH, "step_size": 1 / top, "momentum": 0.4}
    return ik.solvers.heavy_ball(ik.Linear(), task, **options).prediction


def chebyshev(task: ik.Task, top: float) -> jax.Array:
    options = {"ridge": RIDGE, "steps": DEPTH, "spectrum": (0.1 * top, top)}
    return ik.solvers.chebyshev(ik.Linear(), task, **options).prediction


def gradient_descent(task: ik.Task, top: float) -> jax.Array:
    options = {"ridge": RIDGE, "steps": DEPTH, "step_size": 1.2 / top}
    return ik.solvers.gradient_descent(ik.Linear(), task, **options).prediction


def nesterov(task: ik.Task, top: float) -> jax.Array:
    """Nesterov's method with momentum t / (t + 3), which is no candidate."""
    gram, cross, _ = ik.tasks.system(ik.Linear(), task)
    alpha = before = jnp.zeros_like(task.y)
    path = [cross @ alpha]
    for t in range(DEPTH):
        ahead = alpha + t / (t + 3) * (alpha - before)
        before, alpha = alpha, ahead + (task.y - gram @ ahead - RIDGE * ahead) / top
        path.append(cross @ alpha)
    return jnp.stack(path)


CASES = (
    Case("heavy_ball", heavy_ball, ("heavy_ball", "chebyshev")),
    Case("chebyshev", chebyshev, ("chebyshev", "heavy_ball")),
    Case("gradient_descent", gradient_descent, ("gradient_descent", "chebyshev")),
    Case("nesterov", nesterov, ("gradient_descent", "chebyshev")),
)


def with_error(case: Case, top: float, size: float, key: jax.Array) -> Callable:
    """The solver plus a random smooth function of the task, another multiple at every layer."""
    one, two, three = jax.random.split(key, 3)
    w, u = jax.random.normal(one, (FEATURES, 16)), jax.random.normal(two, (16,)) / 4
    multiples = jax.random.normal(three, (DEPTH + 1, 1)).at[0].set(0)

    def answers(task: ik.Task) -> jax.Array:
        context = jnp.mean(jnp.tanh(task.x @ w) * task.y[:, None], axis=0)
        wrong = jnp.tanh(task.x_query @ w + context[None]) @ u
        scale = size * jnp.sqrt(jnp.mean(task.y**2))
        return case.solve(task, top) + scale * multiples * wrong[None]

    return answers


def examine(case: Case, size: float, seed: int) -> dict[str, Any]:
    keys = jax.random.split(jax.random.key(seed), 3)
    fitted, scored = (draw_tasks(key, TASKS, FAMILY) for key in keys[:2])
    top = RIDGE + float(jnp.max(jnp.linalg.eigvalsh(fitted.x @ jnp.swapaxes(fitted.x, 1, 2))))
    model = with_error(case, top, size, keys[2])
    options = {"candidates": case.candidates, "kernels": ("linear",), "steps": 8, "seed": seed}
    drawn = identify(model, fitted, scored, **options)
    fits = {suspect.fit.candidate: suspect.fit for suspect in drawn.suspects}
    first, second = (fits[name] for name in case.candidates)
    prior = gaussian_prior(ik.Linear(), RIDGE, fitted)
    made = design(first, second, scored, log_prior=prior, seed=seed)
    designed = identify(model, fitted, made.tasks, **options)
    halves = [jax.tree.map(lambda leaf: leaf[half::2], made.tasks) for half in (0, 1)]  # noqa: B023
    path = predictions(program_of(first), first.logs, halves[0])
    again = fit_candidate(second.candidate, "linear", halves[0], path, 8)
    row = {"model": case.model, "error": size, "seed": seed}
    for where, found in (("drawn", drawn), ("designed", designed)):
        row |= {f"{where}: verdict": found.status, f"{where}: remain": ", ".join(found.remain)}
        for suspect in found.suspects:
            near = suspect.distances["prediction"]
            row[f"{where}: distance of {suspect.fit.candidate}"] = {
                name: getattr(near, name) for name in ("mean", "interval", "by_layer")
            }
    return row | {
        "in principle, drawn": made.before._asdict(),
        "in principle, designed": made.after._asdict(),
        "in principle, designed, refitted": separation(
            first, again, halves[1], seed=seed
        )._asdict(),
        "log prior, drawn": float(made.log_prior_before.mean()),
        "log prior, designed": float(made.log_prior_after.mean()),
        "largest move of a support": float(made.moved.max()),
        "size of predictions": made.size,
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Means over seeds, with the smallest and the largest value."""
    header = ["model", "error", "verdicts, drawn", "verdicts, designed"]
    header += ["the two candidates, drawn", "the two candidates, designed"]
    header += ["in principle, drawn", "in principle, designed", "after a new fit"]
    lines = []
    for case, size in product(CASES, ERRORS):
        own = [row for row in rows if (row["model"], row["error"]) == (case.model, size)]
        if not own:
            continue
        cells = [case.model, f"{size:.0%}"]
        for where in ("drawn", "designed"):
            said = (f"{r[f'{where}: verdict']}: {r[f'{where}: remain']}" for r in own)
            cells.append(counted(one.removesuffix(": ") for one in said))
        for where in ("drawn", "designed"):
            cells.append(
                "; ".join(
                    f"{name} {spread(r[f'{where}: distance of {name}']['mean'] for r in own)}"
                    for name in case.candidates
                )
            )
        for what in ("drawn", "designed", "designed, refitted"):
            cells.append(spread(row[f"in principle, {what}"]["mean"] for row in own))
        lines.append(cells)
    return to_markdown((header, lines))


def counted(words: Any) -> str:
    words = list(words)
    return "; ".join(f"{words.count(one)} x {one}" for one in dict.fromkeys(words))


def spread(values: Any) -> str:
    values = list(values)
    return f"{sum(values) / len(values):.2g} ({min(values):.2g}, {max(values):.2g})"


def main() -> None:
    asked = records.options(__doc__, "one seed; writes no files", "first seed").parse_args()
    jax.config.update("jax_enable_x64", True)
    seeds = range(asked.seed, asked.seed + (1 if asked.quick else SEEDS))
    cells = [*product(CASES, ERRORS[-1:] if asked.quick else ERRORS, seeds)]
    rows = [examine(*cell) for cell in track(cells, "identify")]
    text = table(rows)
    print(text)
    if asked.quick:
        return
    facts = {"family": repr(FAMILY), "tasks": TASKS, "depth": DEPTH, "seeds": list(seeds)}
    meta = records.meta("designed_tasks", "optax", dtype="float64", **facts)
    records.save("designed-tasks", {"meta": meta, "rows": rows}, text)


if __name__ == "__main__":
    main()
