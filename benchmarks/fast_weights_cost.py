"""`python -m benchmarks.fast_weights_cost`: what a rule costs, and how far it is from its oracle.

The differences are the largest at all supports and queries, relative to the largest prediction, of
all seeds, masks, gates and both prefixes, with three outputs.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import itertools
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.progress import track

import icl_krr as ik
from benchmarks import records
from icl_krr.files import to_markdown

P, N, OUTPUTS, SEEDS = 6, 24, 3, (0, 1, 2)
PREFIX: dict[str, Any] = {"ridge": 0.3, "steps": 4 * P}
RULES: dict[str, tuple[str, dict[str, Any]]] = {
    "delta rule": ("delta_rule", {"step_size": 0.2}),
    "delta rule, Huber": ("delta_rule", {"step_size": 0.2, "loss": ik.losses.Huber(0.5)}),
    "delta rule, L3": ("delta_rule", {"step_size": 0.05, "loss": ik.losses.Power(3.0)}),
    "implicit": ("implicit_delta_rule", {"step_size": 2.0}),
    "momentum": ("momentum_delta_rule", {"step_size": 0.1, "momentum": 0.6, "decay": 0.95}),
    "preconditioned": ("preconditioned_delta_rule", {"step_size": 0.2}),
    "preconditioned, squashed": ("preconditioned_delta_rule", {"step_size": 0.1, "squash": 1.5}),
    "Kalman, diagonal": ("kalman_delta_rule", {"ridge": 0.3, "process_noise": 0.05}),
    "Kalman, isotropic": (
        "kalman_delta_rule", {"ridge": 0.3, "process_noise": 0.05, "covariance": "isotropic"},
    ),
    "Mesa": ("prefix_conjugate_gradient", PREFIX),
}  # fmt: skip
GATES = {"none": None, "one a token": np.full(P, -0.05), "one a channel": -0.1 * np.eye(P)}
"""No gate, <w, x> for w < 0 and W x for a diagonal W: at most 1, because x is made positive."""


def task_of(seed: int, mask: bool, dtype: Any) -> ik.Task:
    rng = np.random.default_rng(seed)
    x, x_query = (np.abs(rng.normal(size=(size, P))) / P**0.5 for size in (N, 4))
    y = rng.normal(size=(N, OUTPUTS))
    kept = np.arange(N) % 4 != 1 if mask else np.ones(N, bool)
    return ik.Task(x=x.astype(dtype), y=y.astype(dtype), x_query=x_query.astype(dtype), mask=kept)


def differences(name: str, parameters: dict[str, Any], dtype: str) -> dict[str, float]:
    """The largest difference between the model in a dtype and its oracle in float64, by gate."""
    found = {}
    for gate, log_gate in GATES.items():
        if name.startswith("prefix") and gate == "one a channel":
            continue
        worst = 0.0
        for prefix in ("exclusive", "inclusive"):
            options = {**parameters, "log_gate": log_gate, "prefix": prefix}
            sizes = {"num_features": P, "num_outputs": OUTPUTS, "dtype": dtype}
            steps = {} if "steps" in parameters else {"steps": N}
            build, solve = getattr(ik.constructions, name), getattr(ik.solvers, name)
            model = build(ik.Linear(), **sizes, **steps, **options)
            for seed, mask in itertools.product(SEEDS, (False, True)):
                exact = np.asarray(solve(ik.Linear(), task_of(seed, mask, float), **options).along)
                along = np.asarray(ik.predict_along(model, task_of(seed, mask, dtype)), float)
                worst = max(worst, np.max(np.abs(along - exact[-1])) / np.max(np.abs(exact[-1])))
        found[gate] = float(worst)
    return found


def lines(function: Any) -> int:
    """The lines of the file of a function, without docstrings."""
    text = Path(inspect.unwrap(function).__code__.co_filename).read_text()
    told = sum(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(getattr(node.value, "value", None), str)
    )
    return len(text.splitlines()) - told


def row(label: str) -> dict[str, Any]:
    name, parameters = RULES[label]
    steps = {} if "steps" in parameters else {"steps": N}
    model = getattr(ik.constructions, name)(ik.Linear(), num_features=P, **steps, **parameters)
    wide, narrow = (differences(name, parameters, dtype) for dtype in ("float64", "float32"))
    return {
        "rule": label,
        **{f"float64, gates: {gate}": f"{value:.1e}" for gate, value in wide.items()},
        "float32": f"{max(narrow.values()):.1e}",
        "blocks a step": model.blocks_per_step,
        "blocks before": model.depth - model.steps * model.blocks_per_step,
        "channels": model.layout.width,
        "states": ", ".join(model.layout.states),
        "lines, weights": lines(getattr(ik.constructions, name)),
        "lines, oracle": lines(getattr(ik.solvers, name)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    rows = [row(label) for label in track([*RULES], "rules")]
    facts = {"features": P, "supports": N, "outputs": OUTPUTS, "seeds": SEEDS}
    about = records.meta("fast_weights_cost", dtypes=["float64", "float32"], **facts)
    records.write(records.RESULTS / "fast-weights-cost.json", {"meta": about, "rows": rows})
    keys = list(rows[0])
    table = to_markdown((keys, [[str(one.get(key, "refused")) for key in keys] for one in rows]))
    text = (
        f"# What each rule costs, and its distance from its oracle\n\n`{about['command']}`; "
        f"{about['device']}, {records.listed(about['versions'])}; seeds {list(SEEDS)}, "
        f"{P} features, {N} supports, {OUTPUTS} outputs.\n\n{table}\n"
    )
    (records.RESULTS / "fast-weights-cost.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
