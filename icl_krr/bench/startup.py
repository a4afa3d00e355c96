"""Start-up times of the command line; every run is a new process."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator

from .contest import Contest


def startup(quick: bool, seed: int) -> Iterator[Contest]:
    """`--help`, and `demo` with an empty and with a filled cache of compiled programs."""
    yield Contest(
        "startup",
        "icl-krr --help",
        lambda: cli("--help"),
        {"import jax": lambda: python("import jax")},
        limit_ms=300.0,
        tolerance=None,
    )
    if quick:
        return
    with tempfile.TemporaryDirectory() as folder:
        demo = ("demo", "--seed", str(seed), "--out", folder)
        yield Contest(
            "startup",
            "icl-krr demo, cold",
            cold(demo),
            {"compiled before": lambda: cli(*demo, cache=os.path.join(folder, "cache"))},
            limit_ms=15_000.0,
            tolerance=None,
        )


def cold(demo: tuple[str, ...]) -> Callable[[], None]:
    def program() -> None:
        with tempfile.TemporaryDirectory() as cache:
            cli(*demo, cache=cache)

    return program


def cli(*arguments: str, cache: str | None = None) -> None:
    python(f"from icl_krr.cli import main; main({list(arguments)!r})", cache)


def python(code: str, cache: str | None = None) -> None:
    keep = {} if cache is None else {"JAX_COMPILATION_CACHE_DIR": cache}
    subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        env={**os.environ, "MPLBACKEND": "agg", **keep},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
