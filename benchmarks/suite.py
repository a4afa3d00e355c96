"""`python -m benchmarks.suite`: programs and seconds of each file of tests.

The tests are those of the README's command. This file is also the plugin of pytest that counts. A
program counts if it is compiled, or read from the cache that the processes of the tests share.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import pytest

EXAMPLES = "examples in docstrings"
EVENTS = {
    "/jax/core/compile/jaxpr_trace_duration": "tracing",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "tracing",
    "/jax/core/compile/backend_compile_duration": "compiling",
}

since: Counter[str] = Counter()
"""What this process has traced and compiled since its last report."""

files: defaultdict[str, Counter[str]] = defaultdict(Counter)


def heard(event: str, duration_secs: float, **kwargs: Any) -> None:
    if (kind := EVENTS.get(event)) is not None:
        since[kind] += duration_secs  # pyright: ignore[reportArgumentType]
        since["programs"] += kind == "compiling"


def pytest_configure() -> None:
    jax.monitoring.register_event_duration_secs_listener(heard)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: Any, call: Any) -> Iterator[Any]:
    report = yield
    report.user_properties = [*since.items(), ("seconds", call.duration)]
    since.clear()
    return report


def pytest_runtest_logreport(report: Any) -> None:
    """Called in the process that distributes the tests, which adds up what the others report."""
    path = report.nodeid.split("::")[0]
    own = files[path if path.startswith("tests/") else EXAMPLES]
    own.update(dict(report.user_properties))
    own["tests"] += report.when == "call"


def pytest_sessionfinish(session: Any) -> None:
    if not hasattr(session.config, "workerinput"):
        Path(os.environ["SUITE"]).write_text(json.dumps(files))


def main() -> None:
    from benchmarks.records import meta, save  # the plugin needs none of it
    from icl_krr.files import to_markdown

    command = [sys.executable, "-m", "pytest", "-n", "auto", "-p", "benchmarks.suite"]
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        counts = Path(folder) / "counts.json"
        code = subprocess.call(command, env={**os.environ, "SUITE": str(counts)})
        rows = json.loads(counts.read_text())
    seconds, own = time.perf_counter() - start, os.times()
    names = ("tests", "programs", "seconds", "tracing", "compiling")
    rows["all"] = {name: sum(row.get(name, 0) for row in rows.values()) for name in names}
    table = [
        [path, *(f"{row.get(name, 0):.0f}" for name in names)]
        for path, row in sorted(rows.items(), key=lambda pair: -pair[1]["seconds"])
    ]
    text = to_markdown((["file", *names], table))
    facts = {
        "wall_seconds": round(seconds),
        "cpu_seconds": round(own.children_user + own.children_system),
    }
    save("suite", {"meta": {**meta("suite", "pytest"), **facts}, "files": rows}, text)
    print(f"{text}\n{facts}")
    sys.exit(code)


if __name__ == "__main__":
    main()
