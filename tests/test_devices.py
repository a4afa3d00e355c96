"""Starts the tests of `tests/on_eight_devices` in processes with several virtual devices."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from xla_flags import DEVICES

FOLDER = Path(__file__).parent / "on_eight_devices"


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("count", "marked", "files"),
    [
        (8, "not slow", "*.py"),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in ((8, "slow", "*.py"), (2, "", "commands.py"), (4, "", "commands.py"))
        ),
    ],
)
def test_on_several_devices(count, marked, files):
    """LAPACK gets no threads of its own: devices would wait for them.

    The files are named: a pattern of all files would have pytest rewrite the asserts of JAX, too.
    """
    flags = f"{os.environ['XLA_FLAGS']} {DEVICES}={count}"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-o", "addopts="]
    done = subprocess.run(
        [*command, "-m", marked, *sorted(FOLDER.glob(files))],
        env={**os.environ, "XLA_FLAGS": flags, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=570,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert re.search(r"\d+ passed", done.stdout)
