"""The sections of the report page that are computed because no folder holds them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from .. import report as pages
from ..experiments.claims.result import compute, table as table_of_claims
from ..experiments.claims.verify import claims, verify_all
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
from ..experiments.shared.rows import Rows, tidy
from ..experiments.shared.runs import Run
from ..experiments.snapshot import take_snapshot
from ..probes.naming.distances import SPACES
from ..report import Section
from ..tasks import sample
from .identification_tables import identification_record
from .page_in_parts import Show


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
