"""The causal effect of every part of a model, compared with the expectation of its algorithm."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..._core.files import Lines
from ...probes import ablate, sites
from ...probes._naming.distances import squared_norms
from ...probes._resampling import INTERVAL_QUANTILES, RESAMPLES, relative_distances, resamples
from ...transformer import predict_batch
from .._shared.rows import Rows
from .config import AblateConfig
from .targets import construct, trained

DIVERGED = 1e8
"""Tables show changes above this value as `> 1e+08`, since they only measure rounding errors."""


class Ablation(NamedTuple):
    """A row for every site, and the losses of the intact model and of known predictors."""

    rows: Rows
    losses: dict[str, float]


def examine(config: AblateConfig, progress: Callable[[str], None] = lambda name: None) -> Ablation:
    """Ablate one part at a time; compare the predictions with those of the ablated algorithm."""
    progress("building the model and drawing its tasks")
    subject = construct(config) if config.constructed else trained(config)
    model, tasks = subject.model, subject.tasks
    alone = config.each_step or not config.constructed
    kinds = config.kinds or (("head", "slot") if config.constructed else ("head", "unit"))
    model_sites = sites(model, kinds, each_step=alone)
    if not model_sites:
        raise ValueError(f"kinds must name parts that the model has, got {', '.join(kinds)}")
    progress(f"running {len(model_sites)} ablations")
    intact = predict_batch(model, tasks)
    changed = ablate(model, tasks, model_sites, replace=config.replace)
    named = [{"site": site.name, "kind": site.kind, "slot": site.slot} for site in model_sites]
    rows = measure(named, intact, changed, tasks.y_query, config.seed)
    for site, row, ablated in zip(model_sites, rows, changed, strict=True):
        part = f"{site.kind} {site.slot}"
        if alone or config.replace != "zero" or part not in subject.words:
            continue
        row["expectation"] = subject.words[part]
        row |= compare(ablated, subject.expected[part], intact)
    loss = float(jnp.mean((intact - tasks.y_query) ** 2))
    return Ablation(rows, {"intact": loss, **subject.losses})


def measure(named: Rows, intact: jax.Array, changed: jax.Array, y: jax.Array, seed: int) -> Rows:
    """Add the change |f' - f| / |f| and the loss of `changed` [S, b, q] to the rows of S sites."""
    squares = squared_norms(changed - intact[None], 2).T
    sizes = np.repeat(squared_norms(intact, 1)[:, None], len(changed), axis=1)
    each = relative_distances(squares, sizes, np.ones(len(intact)))
    drawn = relative_distances(squares, sizes, resamples(len(intact), RESAMPLES, seed))
    low, high = np.quantile(drawn, INTERVAL_QUANTILES, axis=0)
    losses = np.mean((np.asarray(changed) - np.asarray(y)) ** 2, axis=(1, 2))
    columns = {"change": each, "low": low, "high": high, "loss": losses}
    return [
        row | {key: float(column[i]) for key, column in columns.items() if np.isfinite(losses[i])}
        for i, row in enumerate(named)
    ]


def compare(ablated: jax.Array, expected: jax.Array, intact: jax.Array) -> dict[str, float]:
    """The expected change, and the distance of the predictions from the expected predictions."""
    size = jnp.linalg.norm(intact)
    if not bool(jnp.any(jnp.isfinite(expected))):
        return {"distance to expectation": float("inf" if jnp.any(jnp.isfinite(ablated)) else 0)}
    largest = jnp.maximum(size, jnp.linalg.norm(expected))
    return {
        "expected change": float(jnp.linalg.norm(expected - intact) / size),
        "distance to expectation": float(jnp.linalg.norm(ablated - expected) / largest),
    }


def table(ablation: Ablation) -> Lines:
    """A table with one line per site."""
    header = ["site", "slot", "change (95 %)", "loss"]
    expects = any("expectation" in row for row in ablation.rows)
    header += ["expectation", "expected change", "distance to expectation"] if expects else []
    lines = []
    for row in ablation.rows:
        line = [row["site"], row["slot"], "NaN or infinite", "-"]
        if row.get("change", 0) > DIVERGED:
            line[2] = f"> {DIVERGED:g}"
        elif "change" in row:
            interval = f"({row['low']:.2g}, {row['high']:.2g})"
            line[2:] = [f"{row['change']:.3g} {interval}", f"{row['loss']:.3g}"]
        if expects:
            values = [row.get(key) for key in ("expected change", "distance to expectation")]
            line += [row.get("expectation", ""), *("" if x is None else f"{x:.2g}" for x in values)]
        lines.append(line)
    return header, lines
