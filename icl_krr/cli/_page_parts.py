"""The parts of the page of `icl-krr report`: read from folders of other commands, or computed."""

import json
import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from statistics import mode
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from .. import report as pages
from .._core.files import from_csv, from_markdown
from ..experiments import _explorer as explorer
from ..experiments._claims.tables import compute, table as table_of_claims
from ..experiments._claims.verify import claims, verify_all
from ..experiments._curves import curves
from ..experiments._explorer import Explored, ExplorerConfig, explore
from ..experiments._scaling import family_of, read_models, task_settings
from ..experiments._shared.recipe import folder_of, holds_run, run_names
from ..experiments._shared.rows import Rows, tidy
from ..experiments._shared.runs import Run, load
from ..experiments._snapshot import take_snapshot
from ..experiments._sweep.config import SweepConfig, axis_of
from ..experiments.identify import _trained_model as trained_model
from ..experiments.identify._settings import IdentifyConfig
from ..experiments.identify._trained_model import examine
from ..probes._naming.distances import SPACES
from ..report import Section, render
from ..tasks import sample
from . import _output
from ._identification import identification_record

TITLE = "In-context kernel ridge regression, as transformer weights"
WORDS = (
    "The forward pass of a transformer can run a solver of kernel ridge regression. The weights of "
    "the constructed models on this page are written down explicitly. Constructed and trained "
    "models use the same forward code."
)


class Part(NamedTuple):
    """A part of the page that is still to be computed."""

    title: str
    cost: int  # CPU seconds, about, on two cores with nothing compiled before
    make: Callable[[_output.Show], Section]


def page_parts(
    runs: tuple[str, ...], seed: int, meta: dict[str, Any], grid: list[Explored]
) -> list[Part | Section]:
    """The parts in the order of the page; the grid of the sliders is kept in `grid`."""
    folders = sort_by_kind(runs)
    (where,) = folders[TRAINED] or ["gp-encoder"]
    run, name = load(where), Path(where).name
    identified = [identification_section(folder_of(one)) for one in folders[IDENTIFICATION]]
    verified = [claims_section(folder_of(one)) for one in folders[CLAIMS]]
    streams = partial(streams_section, run, name, seed)
    identifying = partial(reduced_identification, run, name, seed, meta)
    return [
        Part("sliders over constructed transformers", 15, partial(sliders, seed, grid)),
        Part(f"residual streams and attention patterns of {name}", 10, streams),
        *training_sections(run, name, folder_of(where)),
        Part("scaling of trained models", 15, partial(scaling, seed, meta)),
        *(identified or [Part(f"identification of {name}", 90, identifying)]),
        *(sweep_section(i, folder_of(one)) for i, one in enumerate(folders[SWEEP])),
        *(verified or [Part("claims, quick run", 150, partial(quick_claims, seed, meta))]),
        Section("made", "How this page was made", (), (pages.Facts(pages.facts_of(meta)),)),
    ]


def make_page(folder: Path, parts: list[Part | Section], show: _output.Show) -> dict[str, float]:
    """Write the page with what is ready, then again after every part; return seconds by part."""
    seconds: dict[str, float] = {}

    def save() -> None:
        ready = [part for part in parts if isinstance(part, Section)]
        waiting = "; ".join(part.title for part in parts if isinstance(part, Part))
        missing = (
            f"In progress at {time.strftime('%Y-%m-%d %H:%M:%S %z')}: {waiting}. Load this page "
            "again to see the parts that are ready by then. If icl-krr report does not run any "
            "more, run the command again."
        )
        page = render(TITLE, WORDS, ready, missing if waiting else "")
        _output.save(folder, {"report.html": page})

    def tell(title: str, words: str, done: int = 0, total: int = 0) -> None:
        count = f", {done} of {total} done" if total else ""
        show(f"{title}: {words}{count}", len(seconds), len(missing))

    missing = [(place, part) for place, part in enumerate(parts) if isinstance(part, Part)]
    save()
    print(
        f"wrote {folder / 'report.html'} with what is ready; {len(missing)} parts follow, each "
        f"as soon as it is ready, in about {sum(part.cost for _, part in missing)} CPU seconds",
        file=sys.stderr,
    )
    for place, part in missing:
        start = time.perf_counter()
        tell(part.title, "begins")
        parts[place] = part.make(partial(tell, part.title))
        seconds[part.title] = time.perf_counter() - start
        save()
    return seconds


def sliders(seed: int, grid: list[Explored], show: _output.Show) -> Section:
    with jax.enable_x64(True):
        grid.append(explore(ExplorerConfig(seed=seed), show))
    return pages.explorer_section(grid[0])


def streams_section(run: Run, name: str, seed: int, show: _output.Show) -> Section:
    """A construction on the task of the explorer, and the trained model on a task of its family."""
    small = ExplorerConfig(num_queries=12, seed=seed)
    task = explorer.draw_task(small)
    constructed, _ = explorer.build_cell(task, 0.5, small.noise, None, steps=4)
    first = len(constructed.weights.prologue) + constructed.blocks_per_step
    drawn = explorer.sorted_task(sample(jax.random.key(seed), run.family), lambda x: x[:, 0])
    construction = take_snapshot(constructed, task, blocks=first)
    trained = take_snapshot(run.model, drawn)
    return pages.snapshots_section(construction, trained, name, str(jnp.result_type(float)), seed)


def scaling(seed: int, meta: dict[str, Any], show: _output.Show) -> Section:
    show("solvers")
    models, tasks = read_models(), 64
    key = mode(map(task_settings, models))
    family = family_of(key, queries=8)
    solver_curves = curves(family, steps=32, tasks=tasks, points=128, seeds=(seed,))
    provenance = f"Solvers: {tasks} tasks. {pages.provenance(meta, str(jnp.result_type(float)))}"
    return pages.scaling_section(models, key, solver_curves, provenance)


def reduced_identification(
    run: Run, name: str, seed: int, meta: dict[str, Any], show: _output.Show
) -> Section:
    config = IdentifyConfig(tasks=16, probe_tasks=128, seed=seed)
    with jax.enable_x64(True):
        findings = examine(run, config, show)
    result = findings.identification
    tables = [trained_model.layer_table(findings)]
    tables += [trained_model.distance_table(result, space) for space in SPACES]
    rows = trained_model.distance_rows(result), trained_model.filter_rows(findings)
    provenance = f"Reduced run: {config.tasks} tasks. {pages.provenance(meta, 'float64')}"
    record = identification_record(result)
    return pages.identification_section(name, record, tables, *rows, provenance)


def quick_claims(seed: int, meta: dict[str, Any], show: _output.Show) -> Section:
    verified = verify_all(claims(), seeds=range(seed, seed + 1), quick=True, progress=show)
    results = [result for result, _ in verified.values()]
    provenance = (
        f"Quick run: fewer draws, one seed. {pages.provenance(meta, 'dtype of each claim')} "
        f"{compute(results)}"
    )
    return pages.claims_section(table_of_claims(results), provenance)


def grid_rows(grid: Explored) -> Rows:
    """One row per cell of the grid, with all its numbers."""
    config = grid.config
    values = (config.temperatures, config.ridges, [w or "all" for w in config.widths])
    steps = range(config.steps + 1)
    places: dict[str, Any] = dict(zip(explorer.GRID_AXES, (*values, steps), strict=True))
    columns = {}
    for name, over in grid.over.items():
        values = grid.arrays[name]
        if values.ndim == len(over):  # a number, not a curve
            more = len(explorer.GRID_AXES) - values.ndim
            columns[name] = values.reshape(*values.shape, *[1] * more)
    return tidy(places, **columns)


CLAIMS, IDENTIFICATION, TRAINED, SWEEP = "claims", "an identification", "a trained model", "a sweep"
"""The kinds of folders."""


def sort_by_kind(runs: tuple[str, ...]) -> dict[str, list[str]]:
    """The folders of each kind; ValueError for an unknown folder, or two where one is shown."""
    kinds: dict[str, list[str]] = {kind: [] for kind in (CLAIMS, IDENTIFICATION, TRAINED, SWEEP)}
    for run in runs:
        kind = kind_of(run)
        if kinds[kind] and kind != SWEEP:
            raise ValueError(
                f"runs must include at most one folder with {kind}, got {kinds[kind][0]} and {run}"
            )
        kinds[kind].append(run)
    return kinds


def kind_of(run: str) -> str:
    folder = folder_of(run)
    if (folder / "claims.json").exists():
        return CLAIMS
    if (folder / "identify.json").exists():
        return IDENTIFICATION
    if holds_run(folder):
        return TRAINED
    if (folder / "results.csv").exists() and "config" in read_json(folder / "meta.json"):
        return SWEEP
    raise ValueError(
        "runs must be folders written by verify, identify, sweep or train, or one of "
        f"{', '.join(run_names())}; got {run!r}"
    )


DAMAGED = (OSError, AttributeError, IndexError, KeyError, TypeError, ValueError)


def read_json(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text()).items())
    except (OSError, AttributeError, ValueError):
        raise ValueError(f"{path} must be a JSON file written by an icl-krr command") from None


@contextmanager
def require_complete(folder: Path, command: str) -> Iterator[None]:
    """Raise ValueError in one sentence if a file of the folder is missing or damaged."""
    try:
        yield
    except DAMAGED:
        raise ValueError(
            f"{folder} must hold all files that icl-krr {command} writes, but a file is missing or "
            "damaged; run the command again"
        ) from None


def identification_section(folder: Path) -> Section:
    record = read_json(folder / "identify.json")
    with require_complete(folder, "identify"):
        tables = from_markdown((folder / "identify.md").read_text())[:3]  # states are last
        count = len(record["candidates"]) + len(record["baselines"])
        require_equal([len(lines) for _, lines in tables], [len(record["layers"]), count, count])
        distances = from_csv(folder / "heatmaps.csv")
        filters = from_csv(folder / "filter.csv")
        for one in record["candidates"]:
            keys = ("candidate", "kernel")
            rows = [row for row in distances if all(row[key] == one[key] for key in keys)]
            require_equal(size_of_grid(rows, "layer", "step"), len(rows))
            require_equal(len({row["layer"] for row in rows}), len(one["alignment"]))
        require_equal(size_of_grid(filters, "layer", "sigma"), len(filters))
        name = Path(record["meta"]["settings"]["model"]).name
        provenance = pages.provenance(record["meta"], record["meta"]["dtype"])
        return pages.identification_section(name, record, tables, distances, filters, provenance)


def sweep_section(place: int, folder: Path) -> Section:
    meta = read_json(folder / "meta.json")
    with require_complete(folder, "sweep"):
        settings, own_solvers = meta["config"], meta.get("own_solvers", {})
        lines = [line for line in settings["lines"] if line not in own_solvers]
        config = SweepConfig(**settings | {"lines": lines})
        rows = from_csv(folder / "results.csv")
        counts = Counter((row["line"], row["seed"]) for row in rows)
        require_equal(counts, {(one["line"], one["seed"]): one["rows"] for one in meta["cells"]})
        seeds = range(config.seed, config.seed + config.seeds)
        require_equal({*product(settings["lines"], seeds)} - {*counts}, set())
        provenance = pages.provenance(meta, meta["dtype"])
        plot = axis_of(config.axis).plot
        return pages.sweep_section(f"sweep-{place + 1}", config.axis, plot, rows, provenance)


def training_sections(run: Run, name: str, folder: Path) -> list[Section]:
    """The training curves; no section if the run has no metrics file."""
    metrics = folder / "metrics.csv"
    if not metrics.exists():
        return []
    provenance = f"{name}, seed {run.recipe.training.seed}, {jnp.result_type(float)}."
    try:
        return [pages.training_section(name, from_csv(metrics), provenance)]
    except (KeyError, IndexError, TypeError, ValueError):
        raise ValueError(f"{metrics} must be a metrics file written by icl-krr train") from None


def claims_section(folder: Path) -> Section:
    record = read_json(folder / "claims.json")
    with require_complete(folder, "verify"):
        table, *_, settings = from_markdown((folder / "claims.md").read_text())
        for lines in table[1], settings[1]:
            require_equal(len(lines), len(record["claims"]))
        provenance = pages.provenance(record["meta"], "dtype of each claim")
        return pages.claims_section(table, f"{provenance} {compute(record['claims'])}")


def size_of_grid(rows: Rows, *names: str) -> int:
    return math.prod(len({row[name] for row in rows}) for name in names)


def require_equal(actual: Any, expected: Any) -> None:
    if actual != expected:
        raise ValueError
