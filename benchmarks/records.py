"""What the benchmarks share: their options, the meta data of a record, and where both are kept."""

import argparse
import atexit
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import itemgetter
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

import jax
from matplotlib.figure import Figure

from icl_krr import experiments
from icl_krr.experiments import Cell, Lines, Study, environment, plain, replace
from icl_krr.plots import svg

RESULTS = Path(__file__).parent / "results"
RUNS = Path(__file__).parent / "runs"
"""Reference runs that are not in the package."""


Row = dict[str, Any]
"""A row of a record."""
Columns = Mapping[str, str | Callable[[Any], Any]]


def options(
    about: str | None,
    quick: str = "smoke test; writes no files",
    seed: str = "",
    folder: bool = False,
    **more: dict[str, Any],
) -> argparse.Namespace:
    """The options of a benchmark: --quick and --seed, if there are words for them, and `more`.

    The same command continues after an interruption from what is kept in --folder.
    """
    parser = argparse.ArgumentParser(description=about)
    if quick:
        parser.add_argument("--quick", action="store_true", help=quick)
    if seed:
        parser.add_argument("--seed", type=int, default=0, help=seed)
    if folder:
        place = Path(f"icl-krr-{Path(sys.argv[0]).stem.replace('_', '-')}")
        parser.add_argument("--folder", type=Path, default=place, help="what an earlier run kept")
    for name, words in more.items():
        parser.add_argument(name if words.get("nargs") == "+" else f"--{name}", **words)
    args = parser.parse_args()
    if folder and quick and args.quick:
        args.folder = Path(mkdtemp())
        atexit.register(rmtree, args.folder)
    return args


def table(rows: Iterable[Any], columns: Columns) -> Lines:
    """A line for each row; a column is a key of the rows, or what a function says of a row."""
    reads = [itemgetter(read) if isinstance(read, str) else read for read in columns.values()]
    return [*columns], [[str(read(row)) for read in reads] for row in rows]


def grouped(rows: Iterable[Any], key: Callable[[Any], Any]) -> dict[Any, list[Any]]:
    """The rows of each value of a key, in the order in which the values first appear."""
    groups: dict[Any, list[Any]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def digits(key: str, count: int = 3) -> Callable[[Row], str]:
    """A column of numbers."""
    return lambda row: experiments.format_number(row[key], count)


def meta(command: str, *packages: str, **facts: Any) -> dict[str, Any]:
    """What a record says of its run: the command, the machine, versions, and further facts."""
    return {"command": f"python -m benchmarks.{command}", **environment(*packages), **facts}


def caption(text: str, meta: Mapping[str, Any], **more: Any) -> str:
    """A text with facts of a record in it; versions as a list."""
    versions = ", ".join(f"{name} {number}" for name, number in meta["versions"].items())
    return text.format(**{**meta, "versions": versions, **more})


def rounded(value: Any) -> Any:
    """A long record, with numbers of six digits."""
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(item) for item in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def write(path: Path, record: Any) -> None:
    """Write a record as JSON, in few bytes."""
    text = json.dumps(plain(record), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    replace(path, f"{text}\n".encode())


def read(name: str) -> Any:
    path = RESULTS / f"{name}.json"
    return experiments.parse_json(path, path.read_bytes())


def save(name: str, record: Any, text: str, folder: Path = RESULTS) -> None:
    """Write the results of a benchmark: the record NAME.json and its tables NAME.md."""
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / f"{name}.json", record)
    replace(folder / f"{name}.md", text.encode())


def finish(
    name: str,
    record: Any,
    document: Callable[[Any], str],
    quick: bool,
    figures: Mapping[str, Callable[[Any], Figure]] | None = None,
) -> None:
    """Print the tables of a record, and write it with them and figures unless it is a smoke test.

    Tables show what is not finite as the record has it: as null.
    """
    print(text := document(plain(record)))
    if not quick:
        save(name, record, text)
        for figure, make in (figures or {}).items():
            draw(figure, make(plain(record)))


def draw(name: str, figure: Figure) -> None:
    """Write the figure of a benchmark."""
    replace(RESULTS.parent / "figures" / f"{name}.svg", svg(figure, name))


def finished(study: Study, folder: Path) -> list[tuple[Cell, Any]]:
    """The cells of a study with their results, kept in a folder; one without a result is left out.

    Numbers that are not finite become null.
    """
    maps = Path("/proc/self/maps")

    def each(measure: Callable[[Cell], Any], cells: Iterable[Cell]) -> Iterator[tuple[Cell, Any]]:
        for cell in cells:
            # programs map memory, and Linux limits the number of maps of a process
            if maps.exists() and len(maps.read_text().splitlines()) > 32_000:
                jax.clear_caches()
            try:
                yield cell, plain(measure(cell))
            except ValueError as error:  # one model that cannot be read must not stop the others
                print(f"{cell}: {error}", flush=True)

    def progress(words: str, done: int, total: int) -> None:
        print(f"{study.name}: {done} of {total}: {words}", flush=True)

    folder.mkdir(parents=True, exist_ok=True)
    measured = experiments.run(study, folder, progress, each).cells
    return [(cell, result) for cell, result in measured if result is not None]


def folder_of(name: str) -> Path:
    """The folder of a reference run: in the package, or here."""
    return RUNS / name if (RUNS / name).is_dir() else experiments.RUNS / name
