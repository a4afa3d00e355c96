"""`python -m benchmarks.versus COMMIT`: the benchmark, timed here and at another commit in turns.

Each of the two versions has a process of its own. The processes take turns in every comparison of
the benchmark, so that both meet the same disturbances. The table has medians, and the median and
the quartiles of the ratios of neighbouring times. Above 1, this version is the slower one.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from rich.progress import MofNCompleteColumn, TextColumn, TimeRemainingColumn

from benchmarks import records
from benchmarks.speed import SUITES
from icl_krr.cli.output import progress as shown_progress
from icl_krr.files import to_markdown

ROOT = Path(__file__).parent.parent
TIMED = ("forward", "gradient", "context", "exact", "training")
"""Suites whose programs are functions of this process."""

TURNS = """
import json, sys
answers, sys.stdout = sys.stdout, sys.stderr
from benchmarks.contests import timed
from benchmarks.speed import SUITES
def say(what):
    print(json.dumps(what), file=answers, flush=True)
for suite in sys.argv[1:]:
    for contest in SUITES[suite](False, 0):
        say([suite, contest.name])
        while (word := sys.stdin.readline()) == "again\\n":
            say(timed(contest.ours)[0])
        if not word:
            sys.exit()
say(None)
"""


class Version:
    """A process that runs the contests of one version."""

    def __init__(self, folder: Path, suites: list[str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", TURNS, *suites],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(folder)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(
                "one of the versions failed; run its `python -m benchmarks speed` to see why"
            )
        return json.loads(line)

    def ask(self, word: str) -> None:
        assert self.process.stdin is not None
        print(word, file=self.process.stdin, flush=True)

    def time(self) -> float:
        self.ask("again")
        return self.answer()


def checkout(commit: str, folder: Path) -> str:
    """Write library and benchmarks of a commit to a folder, and return the commit's full name."""
    git = ["git", "-C", str(ROOT)]
    found = subprocess.run(
        [*git, "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}"],
        capture_output=True,
        text=True,
    )
    if found.returncode:
        print(f"commit must be a commit of this repository, got {commit!r}", file=sys.stderr)
        raise SystemExit(2)
    name = found.stdout.strip()
    archive = subprocess.check_output([*git, "archive", name, "icl_krr", "benchmarks"])
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    return name


def compare(folder: Path, suites: list[str], seconds: float) -> Iterator[dict[str, Any]]:
    """Rows of times in ms; each contest has 7 to 301 turns, about as many as the seconds allow."""
    here, there = Version(ROOT, suites), Version(folder, suites)
    while (contest := here.answer()) is not None:
        if contest != (other := there.answer()):
            raise SystemExit(
                f"the versions must have the same benchmark, got {contest} and {other}"
            )
        for each in (here, there):
            each.time()  # compiles
        first = here.time() + there.time()
        pairs = []
        count = int(np.clip(1e3 * seconds / first, 7, 301))
        columns = TextColumn(contest[1]), MofNCompleteColumn(), TimeRemainingColumn()
        with shown_progress(*columns) as progress:
            for i in progress.track(range(count)):
                turns = {each: each.time() for each in ((here, there), (there, here))[i % 2]}
                pairs.append([turns[here], turns[there]])
        for each in (here, there):
            each.ask("next")
        times = np.array(pairs)
        yield {
            "suite": contest[0],
            "contest": contest[1],
            "turns": len(pairs),
            "here_ms": float(np.median(times[:, 0])),
            "there_ms": float(np.median(times[:, 1])),
            "ratios": np.quantile(times[:, 0] / times[:, 1], [0.25, 0.5, 0.75]).tolist(),
        }


def table(rows: list[dict[str, Any]]) -> str:
    header = ["what", "turns", "this version, ms", "the other one, ms", "ratio (quartiles)"]
    lines = []
    for row in rows:
        low, middle, high = row["ratios"]
        times = [f"{row[name]:.3g}" for name in ("here_ms", "there_ms")]
        ratio = f"{middle:.2f} ({low:.2f}-{high:.2f})"
        lines.append([row["contest"], str(row["turns"]), *times, ratio])
    return to_markdown((header, lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", help="the other version")
    parser.add_argument("--suite", nargs="*", default=TIMED, choices=[*SUITES])
    parser.add_argument("--seconds", type=float, default=9, help="time for each comparison")
    asked = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(prefix="icl-krr-versus-") as folder:
        meta = records.meta(
            " ".join(["versus", *sys.argv[1:]]),
            device="the default one of JAX",
            other=checkout(asked.commit, Path(folder)),
            seed=0,
            dtype=str(jnp.result_type(float)),
        )
        for row in compare(Path(folder), asked.suite, asked.seconds):
            rows.append(row)
            records.save("versus", {"meta": meta, "rows": rows}, table(rows))
    print(table(rows))


if __name__ == "__main__":
    main()
