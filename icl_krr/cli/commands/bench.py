"""`icl-krr bench`: run suites of contests and show the times as a table and as files."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from rich.console import Console

from ... import checks
from ...bench import COLUMNS, SUITES, Disagreement, Row, compete, markdown, summary
from ...plots import images, scaling_figure
from ...text_tables import Table
from .. import output
from ..settings.bench import Bench

PEERS = ("torch", "scipy", "linear-operator", "lineax")


def run(settings: Bench) -> int:
    checks.count("repeats", settings.repeats)
    if settings.out is not None:
        output.prepare(settings.out)
    meta = output.surroundings(settings)
    meta["versions"] |= {peer: found for peer in PEERS if (found := installed_version(peer))}
    rows, failures = [], []
    with Console(stderr=True).status("") as status:
        for name in settings.suite or SUITES:
            for contest in SUITES[name](settings.quick, settings.seed):
                status.update(f"{name}: {contest.name}")
                try:
                    rows += compete(contest, 1 if settings.quick else settings.repeats)
                except Disagreement as error:
                    failures.append(str(error))
    if settings.out is not None:
        record = {"meta": meta, "rows": [row._asdict() for row in rows]}
        files = {
            "bench.json": (output.to_json(record) + "\n").encode(),
            "bench.md": markdown(rows).encode(),
        }
        if any(row.suite == "scaling" for row in rows):
            files |= images("scaling", scaling_figure(rows, settings.seed))
        output.write(settings.out, files)
    if settings.json:
        print(output.to_json({"meta": meta, "rows": [row._asdict() for row in rows]}))
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
