"""`icl-krr report`: one page with the results of finished runs; missing results are computed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from ... import report as pages
from ...experiments.claims.tables import compute, table as table_of_claims
from ...experiments.claims.verify import claims, verify_all
from ...experiments.explorer import (
    GRID_AXES,
    Explored,
    ExplorerConfig,
    build_cell,
    draw_task,
    explore,
    sorted_task,
)
from ...experiments.identify.trained_model import (
    IdentifyConfig,
    distance_rows,
    distance_table,
    examine,
    filter_rows,
    layer_table,
)
from ...experiments.shared.recipe import folder_of
from ...experiments.shared.rows import Rows, tidy
from ...experiments.shared.runs import Run, load
from ...experiments.snapshot import take_snapshot
from ...files import to_csv
from ...probes.naming.distances import SPACES
from ...report import Facts, Section
from ...tasks import sample
from ...text_tables import Table
from .. import output
from ..csv_rows import parse_rows
from ..page_in_parts import Part, Show, make_page
from ..run_folders import (
    claims_section,
    identification_section,
    sort_by_kind,
    sweep_section,
)
from ..settings.report import Report
from .identify import identification_record

TRAINED = "gp-encoder"


def run(settings: Report) -> int:
    meta, seed = output.surroundings(settings), settings.seed
    sources = sort_by_kind(settings.runs)
    where = sources.run or TRAINED
    model, named = load(where), Path(where).name
    grid: list[Explored] = []
    parts = [
        Part("sliders over constructed transformers", lambda show: sliders(seed, grid, show)),
        Part(
            f"residual streams and attention patterns of {named}",
            lambda show: streams_section(model, named, seed),
        ),
        *training_sections(model, named, folder_of(where)),
        identification_section(sources.identification)
        if sources.identification
        else Part(
            f"identification of {named}",
            lambda show: small_identification(model, named, seed, meta, show),
        ),
        *(sweep_section(*pair) for pair in enumerate(sources.sweeps)),
        claims_section(sources.claims)
        if sources.claims
        else Part("claims, quick run", lambda show: quick_claims(seed, meta, show)),
        Section("made", "How this page was made", (), (Facts(pages.facts_of(meta)),)),
    ]
    if (settings.out / "meta.json").exists() and not (settings.out / "report.html").is_file():
        raise ValueError(
            f"{settings.out} must be empty or hold a report, got other files; choose another --out"
        )
    output.prepare(settings.out)
    seconds = make_page(settings.out, parts)
    rows = grid_rows(grid[0])
    meta["dtype"] = grid[0].dtype
    files = {"grid.csv": to_csv(rows), "meta.json": (output.to_json(meta) + "\n").encode()}
    output.write(settings.out, files)
    if settings.json:
        print(output.to_json({"meta": meta, "rows": rows}))
    else:
        lines = [[title, f"{spent:.0f}"] for title, spent in seconds.items()]
        output.wide().print(Table("report.html", ["part", "seconds"], [lines]))
    return 0


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


def training_sections(run: Run, name: str, folder: Path) -> list[Section]:
    """The training curves; no section if the run has no metrics file."""
    metrics = folder / "metrics.csv"
    if not metrics.exists():
        return []
    made = f"{name}, seed {run.recipe.training.seed}, {jnp.result_type(float)}."
    try:
        return [pages.training_section(name, parse_rows(metrics), made)]
    except (KeyError, IndexError, TypeError, ValueError):
        raise ValueError(f"{metrics} must be a metrics file written by icl-krr train") from None


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
