"""`python -m benchmarks.interruptions`: interrupt each command at random times, and start it again.

Each command runs without interruption. Then a signal ends it five times in another folder, each
time at a random moment: four times SIGINT to all of its processes, as Ctrl-C in a terminal, and
once SIGTERM. At the end it runs until it finishes. This takes about a quarter of an hour on two
idle cores. The record is saved after every command.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import psutil
from flax import serialization
from rich.progress import track

from benchmarks import records
from icl_krr.files import to_markdown

RECORD = records.RESULTS / "interruptions.json"
TABLE = "a,b,y\n" + "".join(f"{i % 7},{i * 5 % 11},{i % 7 - i * 5 % 11 / 3}\n" for i in range(60))
COMMANDS = {
    "demo": "demo --steps 4",
    "predict": "predict ../table.csv --target y --steps 4",
    "fit": "fit ../table.csv --target y --steps 4 --iterations 40",
    "sweep": "sweep width --values 4 8 --seeds 6 --steps 8",
    "train": (
        "train --task.num-features 2 --task.num-supports 8 --model.width 8 --model.depth 2 "
        "--model.heads 1 --training.steps 4000 --training.batch 8 --training.log-every 1000 "
        "--training.validation 16"
    ),
    "identify": "identify linear --tasks 4 --probe-tasks 16 --kernels linear",
    "ablate": "ablate richardson --steps 4 --tasks 4",
    "verify": "verify C1 C3 C11 --quick",
    "bench": "bench --suite exact --quick",
    "report": "report ../../verify/whole ../../identify/whole",
}
LONGEST = 20.0
"""Largest time in seconds from a start to its interruption."""
LATE = 0.1
"""A command that ends with status 0 so many seconds after a signal had finished before it."""

SIGNALS = (signal.SIGINT,) * 4 + (signal.SIGTERM,)
LOCK = ".icl-krr.lock"
CHANGES = ("meta", "cells", "seconds", "steps_per_second", "rss_mb", "ratio", "met", "files")
"""Entries that differ between two runs: times, and what belongs to the machine."""


def start(command: str, folder: Path) -> subprocess.Popen[bytes]:
    """Start a command in a group of processes of its own."""
    words = [sys.executable, "-c", "from icl_krr.cli import console; console()", *command.split()]
    folder.mkdir(parents=True, exist_ok=True)
    return subprocess.Popen(
        [*words, "--out", str(folder)],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def finish(command: str, folder: Path) -> float:
    """Run a command to its end; return its time in seconds."""
    since = time.perf_counter()
    process = start(command, folder)
    _, said = process.communicate()
    if process.returncode:
        raise RuntimeError(f"{command} must end with status 0, got {process.returncode}: {said!r}")
    return time.perf_counter() - since


def interrupt(command: str, folder: Path, number: int, after: float) -> dict[str, Any]:
    """Start a command and send it a signal; return what happened."""
    before, process = progress(folder), start(command, folder)
    time.sleep(after)
    family = psutil.Process(process.pid).children(recursive=True)
    ended = process.poll() is not None
    since = time.perf_counter()
    if number == signal.SIGINT and not ended:
        os.killpg(process.pid, number)
    elif not ended:
        process.send_signal(number)
    try:
        _, said = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        process.kill()
        _, said = process.communicate()
    seconds = time.perf_counter() - since
    ended |= process.returncode == 0 and seconds < LATE
    # as a shell says it: Python itself ends a process at a signal that arrives at its very end
    status = process.returncode if process.returncode >= 0 else 128 - process.returncode
    _, alive = psutil.wait_procs(family, timeout=10)
    return {
        "signal": signal.Signals(number).name,
        "after": after,
        "finished before": ended,
        "status": status,
        "right status": status == (0 if ended else 128 + number),
        "seconds": seconds,
        "traceback": b"Traceback" in said,
        "damaged files": damaged(folder),
        "files left over": [
            path.name for path in folder.glob(".*") if path.name != LOCK and path.is_file()
        ],
        "processes left over": len(alive),
        "finished work lost": progress(folder) < before,
    }


def cut(
    command: str, folder: Path, number: int, rng: random.Random, latest: float
) -> list[dict[str, Any]]:
    """Start a command until a signal comes before its end; after an end it starts afresh."""
    starts: list[dict[str, Any]] = []
    while not starts or starts[-1]["finished before"]:
        if starts:
            shutil.rmtree(folder)
        starts.append(interrupt(command, folder, number, rng.uniform(0.05, latest)))
    return starts


def damaged(folder: Path) -> list[str]:
    """The files that cannot be read."""
    return [path.name for path in folder.iterdir() if path.name[0] != "." and not whole(path)]


def whole(path: Path) -> bool:
    content = path.read_bytes()
    try:
        if path.suffix == ".json":
            json.loads(content)
        elif path.suffix == ".svg":
            ElementTree.fromstring(content)
        elif path.suffix == ".msgpack":
            serialization.msgpack_restore(content)
        elif path.suffix == ".csv":
            rows = [*csv.reader(content.decode().splitlines())]
            return len({len(row) for row in rows}) == 1 and content.endswith(b"\n")
        ends = {".png": b"IEND\xaeB`\x82", ".html": b"</html>", ".md": b"|"}
        return content.rstrip(b"\n").endswith(ends.get(path.suffix, b""))
    except (ValueError, ElementTree.ParseError):
        return False


def progress(folder: Path) -> int:
    """Finished cells of a sweep, or finished steps of a training."""
    cells, steps = folder / "results.csv", folder / "checkpoint.msgpack"
    if steps.exists():
        return int(serialization.msgpack_restore(steps.read_bytes())["step"])
    return len(cells.read_text().splitlines()) if cells.exists() else 0


def results(folder: Path) -> dict[str, Any]:
    """All numbers in the folder that another run must reproduce."""
    found: dict[str, Any] = {}
    for path in sorted(folder.iterdir()):
        if path.suffix == ".csv":
            rows = csv.DictReader(path.read_text().splitlines())
            found[path.name] = [lasting(row) for row in rows]
        elif path.suffix == ".json" and path.name != "meta.json":
            found[path.name] = lasting(json.loads(path.read_text()))
        elif path.name == "model.msgpack":
            found[path.name] = path.read_bytes()
        elif path.name[0] != ".":
            found[path.name] = None
    return found


def lasting(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {name for name in value if name not in CHANGES and not name.endswith("_ms")}
        return {name: lasting(value[name]) for name in sorted(kept)}
    return [lasting(item) for item in value] if isinstance(value, list) else value


def study(name: str, rng: random.Random, folder: Path) -> dict[str, Any]:
    """Interrupt a command, and compare its results with those of a run without interruption."""
    command = COMMANDS[name]
    whole_run, cut_run = folder / name / "whole", folder / name / "cut"
    finish(command, whole_run)
    took = finish(command, folder / name / "again")  # what the first run compiled is kept
    starts: list[dict[str, Any]] = []
    for number in SIGNALS:
        starts += cut(command, cut_run, number, rng, min(took, LONGEST))
    finish(command, cut_run)
    return {
        "command": f"icl-krr {command}",
        "seconds": took,
        "starts": starts,
        "same result": results(whole_run) == results(cut_run),
    }


HEADER = [
    "command",
    "interruptions",
    "status 130 or 143",
    "median seconds until exit",
    "tracebacks",
    "damaged files",
    "files or processes left over",
    "finished work lost",
    "same result after a restart",
]


def line(name: str, record: dict[str, Any]) -> list[str]:
    starts = [one for one in record["starts"] if not one["finished before"]]
    left = sum(len(one["files left over"]) + one["processes left over"] for one in starts)
    return [
        name,
        str(len(starts)),
        str(sum(one["right status"] for one in starts)),
        f"{statistics.median(one['seconds'] for one in starts):.2g}" if starts else "-",
        str(sum(one["traceback"] for one in starts)),
        str(sum(len(one["damaged files"]) for one in starts)),
        str(left),
        str(sum(one["finished work lost"] for one in starts)),
        "yes" if record["same result"] else "no",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=COMMANDS, help="replace only these records")
    asked = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # children inherit no SIG_IGN
    found = json.loads(RECORD.read_text())["commands"] if RECORD.exists() and asked.only else {}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["JAX_COMPILATION_CACHE_DIR"] = f"{folder}/compiled"
        os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "true"  # compiles faster
        for name in track(asked.only or COMMANDS, description="commands"):
            (Path(folder) / name).mkdir()
            (Path(folder) / name / "table.csv").write_text(TABLE)
            found[name] = study(name, random.Random(f"{asked.seed} {name}"), Path(folder))
            write(found, asked.seed)
    print(RECORD.with_suffix(".md").read_text())


def write(found: dict[str, Any], seed: int) -> None:
    """Write the table and the record of the commands that were interrupted so far."""
    found = {name: found[name] for name in COMMANDS if name in found}
    meta = records.meta(f"interruptions --seed {seed}", device="cpu", seed=seed)
    table = to_markdown((HEADER, [line(*pair) for pair in found.items()]))
    records.save(RECORD.stem, {"meta": meta, "commands": found}, table)


if __name__ == "__main__":
    main()
