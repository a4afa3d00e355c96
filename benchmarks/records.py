"""What the benchmarks share: their options, the meta data of a record, and where both are kept."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax
import jax.numpy as jnp
from matplotlib.figure import Figure

from icl_krr import checks
from icl_krr.cli.output import plain
from icl_krr.experiments.shared import recipe
from icl_krr.files import json_of, replace
from icl_krr.plots import svg
from icl_krr.training import checkpoint

RESULTS = Path(__file__).parent / "results"
RUNS = Path(__file__).parent / "runs"
"""Reference runs that are not in the package."""


def options(
    about: str | None, quick: str = "smoke test; writes no files", seed: str = ""
) -> argparse.ArgumentParser:
    """The parser of a benchmark with --quick, and with --seed if there is a word for it."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--quick", action="store_true", help=quick)
    if seed:
        parser.add_argument("--seed", type=int, default=0, help=seed)
    return parser


def meta(command: str, *packages: str, device: str | None = None, **facts: Any) -> dict[str, Any]:
    """What a record says of its run: the command, the machine, versions, and further facts."""
    if device is None:
        first = jax.devices()[0]
        device = f"{first.platform}: {first.device_kind}"
    return {
        "command": f"python -m benchmarks.{command}",
        "device": device,
        "machine": platform.platform(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("icl_krr", "jax", "jaxlib", *packages)},
        **facts,
    }


def listed(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in versions.items())


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
    return json_of(path, path.read_bytes())


def save(name: str, record: Any, text: str, folder: Path = RESULTS) -> None:
    """Write the results of a benchmark: the record NAME.json and its tables NAME.md."""
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / f"{name}.json", record)
    replace(folder / f"{name}.md", text.encode())


def finish(name: str, record: Any, text: str, quick: bool) -> None:
    """Print the tables of a benchmark, and write its results unless it is only a smoke test."""
    print(text)
    if not quick:
        save(name, record, text)


def draw(name: str, figure: Figure) -> None:
    """Write the figure of a benchmark."""
    replace(RESULTS.parent / "figures" / f"{name}.svg", svg(figure, name))


def with_folder(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The options, with the folder from which the same command continues after an interruption."""
    place = Path(f"icl-krr-{Path(sys.argv[0]).stem.replace('_', '-')}")
    parser.add_argument("--folder", type=Path, default=place, help="what an earlier run has kept")
    return parser.parse_args()


@contextmanager
def workplace(asked: argparse.Namespace) -> Iterator[Path]:
    """The folder of `with_folder`, or a temporary one for a smoke test."""
    with TemporaryDirectory() as temporary:
        folder = Path(temporary) if asked.quick else asked.folder
        folder.mkdir(parents=True, exist_ok=True)
        yield folder


def kept_rows(jobs: Mapping[str, Callable[[], Any]], asked: argparse.Namespace) -> dict[str, Any]:
    """The rows of all jobs, in the folder of `with_folder`; a job without an answer is left out."""
    rows, maps = {}, Path("/proc/self/maps")
    with workplace(asked) as folder:
        for i, (name, job) in enumerate(jobs.items(), start=1):
            # programs map memory, and Linux limits the number of maps of a process
            if maps.exists() and len(maps.read_text().splitlines()) > 32_000:
                jax.clear_caches()
            try:
                rows[name] = kept(folder / f"{name}.json", job)
            except ValueError as error:  # one model that cannot be read must not stop the others
                print(f"{name}: {error}", flush=True)
            print(f"{i} of {len(jobs)}: {name}", flush=True)
    return rows


def folder_of(name: str) -> Path:
    """The folder of a reference run: in the package, or here."""
    return RUNS / name if (RUNS / name).is_dir() else recipe.RUNS / name


def ship(source: Path, target: Path) -> None:
    """Copy weights in half precision; they are read in single precision."""
    weights = checkpoint.read(source, "model")["model"]
    half = jax.tree.map(lambda leaf: jnp.astype(leaf, "f2"), weights)
    for leaf in jax.tree.leaves(half):
        checks.finite(f"weights of {source} in float16", leaf)
    checkpoint.write(target, {"model": half})


def kept(path: Path, make: Callable[[], Any]) -> Any:
    """What an earlier run has kept in a file; else what `make` returns, which is kept."""
    if not path.exists():
        write(path, make())
    return json.loads(path.read_text())
