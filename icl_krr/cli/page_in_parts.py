"""Write the page of `icl-krr report` part by part; compute the parts that no folder holds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from .. import report as pages
from ..experiments.claims.tables import compute, table as table_of_claims
from ..experiments.claims.verify import claims, verify_all
from ..experiments.curves import curves
from ..experiments.explorer import (
    GRID_AXES,
    Explored,
    ExplorerConfig,
    build_cell,
    draw_task,
    explore,
    sorted_task,
)
from ..experiments.identify.settings import IdentifyConfig
from ..experiments.identify.trained_model import (
    distance_rows,
    distance_table,
    examine,
    filter_rows,
    layer_table,
)
from ..experiments.scaling import family_of, most_common, read_models
from ..experiments.shared.rows import Rows, tidy
from ..experiments.shared.runs import Run
from ..experiments.snapshot import take_snapshot
from ..probes.naming.distances import SPACES
from ..report import Section, render
from ..tasks import sample
from . import output
from .identification import identification_record

Show = Callable[[str], None]
TITLE = "In-context kernel ridge regression, as transformer weights"
WORDS = (
    "The forward pass of a transformer can run a solver of kernel ridge regression. The weights of "
    "the constructed models on this page are written down explicitly. Constructed and trained "
    "models use the same forward code."
)


class Part(NamedTuple):
    """A part of the page that is computed: what it shows, its cost, and how it is made."""

    title: str
    cost: int  # CPU seconds, about, with nothing compiled before
    make: Callable[[Show], Section]


def make_page(folder: Path, parts: list[Part | Section], show: output.Show) -> dict[str, float]:
    """Write the page with what is ready, then again after every part; return seconds by part."""
    seconds: dict[str, float] = {}

    def save() -> None:
        ready = [part for part in parts if isinstance(part, Section)]
        waiting = [part.title for part in parts if isinstance(part, Part)]
        page = render(TITLE, WORDS, ready, about(waiting) if waiting else "")
        output.save(folder, {"report.html": page})

    missing = [(place, part) for place, part in enumerate(parts) if isinstance(part, Part)]
    save()
    print(
        f"wrote {folder / 'report.html'} with what is ready; {len(missing)} parts follow, each "
        f"as soon as it is ready, in about {sum(part.cost for _, part in missing)} CPU seconds",
        file=sys.stderr,
    )
    for place, part in missing:
        start = time.perf_counter()
        told = lambda words, title=part.title: show(f"{title}: {words}", len(seconds), len(missing))  # noqa: E731
        told("begins")
        parts[place] = part.make(told)
        seconds[part.title] = time.perf_counter() - start
        save()
    return seconds


def about(waiting: list[str]) -> str:
    """What the page says of the parts that it lacks."""
    now = time.strftime("%Y-%m-%d %H:%M:%S %z")
    return (
        f"In progress at {now}: {'; '.join(waiting)}. Load this page again to see the parts that "
        "are ready by then. If icl-krr report does not run any more, run the command again."
    )


def sliders(seed: int, grid: list[Explored], show: Show) -> Section:
    """The section with sliders; its grid is kept for the table of numbers."""
    with jax.enable_x64(True):
        grid.append(explore(ExplorerConfig(seed=seed), show))
    return pages.explorer_section(grid[0])


def streams_section(run: Run, name: str, seed: int) -> Section:
    """A construction on the task of the explorer, and the trained model on a task of its family."""
    small = ExplorerConfig(num_queries=12, seed=seed)
    task = draw_task(small)
    constructed, _ = build_cell(task, 0.5, small.noise, None, steps=4)
    first = len(constructed.weights.prologue) + constructed.blocks_per_step
    drawn = sorted_task(sample(jax.random.key(seed), run.family), lambda x: x[:, 0])
    known, seen = take_snapshot(constructed, task, blocks=first), take_snapshot(run.model, drawn)
    return pages.snapshots_section(known, seen, name, str(jnp.result_type(float)), seed)


def scaling(seed: int, meta: dict[str, Any], show: Show) -> Section:
    """The excess errors of trained models of the package, beside those of solvers."""
    show("effective dimensions")
    models = read_models()
    show("solvers")
    own, tasks = most_common(models), 64
    family = family_of(own, queries=8)
    found = curves(family, steps=32, tasks=tasks, points=128, seeds=(seed,))
    made = f"Solvers: {tasks} tasks. {pages.provenance(meta, str(jnp.result_type(float)))}"
    return pages.scaling_section(models, own, found, made)


def small_identification(
    run: Run, name: str, seed: int, meta: dict[str, Any], show: Show
) -> Section:
    """Reduced identification, used when no finished run is given."""
    config = IdentifyConfig(tasks=16, probe_tasks=128, seed=seed)
    with jax.enable_x64(True):
        found = examine(run, config, show)
    return pages.identification_section(
        name,
        identification_record(found.found),
        [layer_table(found), *(distance_table(found.found, space) for space in SPACES)],
        distance_rows(found.found),
        filter_rows(found),
        f"Reduced run: {config.tasks} tasks. {pages.provenance(meta, 'float64')}",
    )


def quick_claims(seed: int, meta: dict[str, Any], show: Show) -> Section:
    """Quick check of the claims, used when no finished run is given."""
    known = claims()
    done = 0

    def count(more: int) -> None:
        nonlocal done
        done += more
        show(f"{done} of {len(known)} done")

    count(0)
    found = verify_all(known, seeds=range(seed, seed + 1), quick=True, progress=count)
    results = [result for result, _ in found.values()]
    made = (
        f"Quick run: fewer draws, one seed. {pages.provenance(meta, 'dtype of each claim')} "
        f"{compute(result._asdict() for result in results)}"
    )
    return pages.claims_section(table_of_claims(results), made)


def grid_rows(found: Explored) -> Rows:
    """One row per cell of the grid, with all its numbers."""
    config = found.config
    values = (config.temperatures, config.ridges, [w or "all" for w in config.widths])
    places: dict[str, Any] = dict(zip(GRID_AXES, (*values, range(config.steps + 1)), strict=True))
    columns = {}
    for name, over in found.over.items():
        values = found.arrays[name]
        if values.ndim == len(over):  # a number, not a curve
            columns[name] = values.reshape(values.shape + (1,) * (len(GRID_AXES) - values.ndim))
    return tidy(places, **columns)
