"""`icl-krr bench`: run suites of contests and show the times as a table and as files."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from ...catalogue import SUITES, load
from ...catalogue.choices import Suite
from ...text_tables import Table
from .. import output
from ..options import Command, Folder, refuse_unused

if TYPE_CHECKING:
    from ...bench import Row

PEERS = ("torch", "scipy", "linear-operator", "lineax")


@dataclass(frozen=True)
class Bench(Command):
    """Measure time and memory, and compare them with those of plain solvers and other libraries.
    The command first checks that programs return the same result. Then it runs them alternately.
    Libraries that are not installed are left out. Install them from a clone with
    python -m pip install ".[bench]"."""

    suite: tuple[Suite, ...] = ()
    """Groups of comparisons to run. If empty, all groups."""
    quick: bool = False
    """Run once on the smallest sizes, as a check. Timings are not meaningful."""
    repeats: int = 7
    """Number of timed runs of each program, >= 1. The programs run alternately. Programs that take
    milliseconds run up to 15 times as often."""
    seed: int = 0
    """Seed of every random choice."""
    json: bool = False
    """Print JSON instead of a table."""
    out: Folder | None = None
    """Folder for bench.json, bench.md, scaling.png and scaling.svg.
    If None, no files are written."""

    def refuse_options_without_effect(self) -> None:
        if self.quick:
            refuse_unused(self, ["repeats"], "with --quick, which runs once")


def run(settings: Bench) -> int:
    from ... import checks
    from ...bench import Disagreement, compete, markdown
    from ...plots import images, scaling_figure

    checks.count("repeats", settings.repeats)
    if settings.out is not None:
        output.prepare(settings.out)
    meta = output.surroundings(settings)
    meta["versions"] |= {peer: found for peer in PEERS if (found := installed_version(peer))}
    rows, failures = [], []
    with output.status() as status:
        for name in settings.suite or SUITES:
            for contest in load(SUITES[name])(settings.quick, settings.seed):
                status.update(f"{name}: {contest.name}")
                try:
                    rows += compete(contest, 1 if settings.quick else settings.repeats)
                except Disagreement as error:
                    failures.append(str(error))
    record = {"meta": meta, "rows": [row._asdict() for row in rows]}
    if settings.out is not None:
        files = {"bench.json": output.json_file(record), "bench.md": markdown(rows).encode()}
        if any(row.suite == "scaling" for row in rows):
            files |= images("scaling", scaling_figure(rows, settings.seed))
        output.write(settings.out, files)
    if settings.json:
        print(output.to_json(record))
    else:
        console = output.wide()
        console.print(contest_table(rows))
        if settings.quick:
            console.print("--quick runs each program once: these times judge no goal")
        missing = [peer for peer in PEERS if peer not in meta["versions"]]
        if missing:
            console.print(f"libraries that are not installed were left out: {', '.join(missing)}")
    if failures:
        raise ValueError("; ".join(failures))
    return 0


def contest_table(rows: list[Row]) -> Table:
    from ...bench import COLUMNS, summary

    return Table(
        "Median times (quartiles) in ms; ratio: time of icl_krr / time of the fastest rival",
        [*COLUMNS],
        [[list(line) for line in summary(rows)]],
        dropped_first=("compile, s", "scratch, MB", "its ms"),
        where="bench.json of --out FOLDER",
    )


def installed_version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
