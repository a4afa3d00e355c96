"""A solver is a short file and a row, a kernel is one: a package of them is known everywhere."""

import csv
import os
import subprocess
import sys

import numpy as np
import pytest

SOLVER = '''\
"""Steepest descent."""

import icl_krr as ik


@ik.solver
def steepest_descent(K, y, *, ridge):
    """alpha += gamma r with gamma = r.r / r.Ar, the best step along the residual."""

    def step(alpha, r, prediction):
        Kr = K @ r
        Ar = Kr + ridge * r
        gamma = (r @ r) / (r @ Ar)
        return dict(
            alpha=alpha + gamma * r, r=r - gamma * Ar, prediction=prediction + gamma * Kr
        )

    return dict(alpha=0, r=y, prediction=0), step
'''

ROWS = """\
from icl_krr.catalogue import Box, Kernel, Solver, register

register(Kernel("tilted", "test_kernel_of_ones_own:Tilted", "positive"))
register(
    Solver(
        "steepest_descent",
        "SD",
        oracle="steepest.solver:steepest_descent",
        states=("alpha", "r", "prediction"),
        blocks={"linear": 3, "softmax": 4},
        sums=True,
        fitted={"ridge": Box(-5, 0.5, 1)},
    )
)
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A folder that holds what pip leaves of such a package; the environment of who has it."""
    site = tmp_path_factory.mktemp("site")
    (site / "steepest").mkdir()
    (site / "steepest-1.0.dist-info").mkdir()
    files = {
        "steepest/__init__.py": ROWS,
        "steepest/solver.py": SOLVER,
        "steepest-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: steepest\nVersion: 1.0\n",
        "steepest-1.0.dist-info/entry_points.txt": "[icl_krr]\nsteepest = steepest\n",
    }
    for name, content in files.items():
        (site / name).write_text(content)
    here = os.path.dirname(__file__)
    paths = [str(site), here, os.path.dirname(here), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "JAX_ENABLE_X64": "1"}


def python(code, env, folder):
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done


def test_without_the_package_nobody_knows_it():
    from icl_krr.catalogue import SOLVERS

    assert "steepest_descent" not in SOLVERS


@pytest.mark.slow
def test_commands_conformance_suite_readme_and_identify_have_it(package, tmp_path):
    """In one process, so that all is imported once. Identify finds the linear case's oracle."""
    rows = "\n".join(f"{i},{(i * 7) % 11},{(i * 5) % 13}" for i in range(40))
    (tmp_path / "table.csv").write_text(f"a,b,y\n{rows}\n")
    predict = "predict table.csv --target y --solver steepest-descent --steps 3 --kernel"
    sweep = "sweep ridge --lines steepest-descent conjugate-gradient --values 10 --kernel tilted"
    commands = {
        f"{predict} linear": ("steepest_descent, linear kernel", "3 blocks per step"),
        f"{predict} tilted": ("steepest_descent, tilted kernel", "4 blocks per step"),
        f"{sweep} --seeds 1 --steps 3 --num-supports 12 --num-queries 4 --out s": (
            "steepest_descent",
        ),
        "ablate steepest-descent --kernel tilted --steps 2 --tasks 2 --out a": ("gamma",),
    }
    code = f"""
import helpers, test_keystone
from benchmarks import speed_solvers
from benchmarks.refresh import solver_table
from icl_krr.catalogue import compared
from icl_krr.experiments.sweep.config import SweepConfig
from icl_krr.cli import main
from test_identify import made_of
from icl_krr.probes import identify

for words in {[*commands]}:
    print("END" if main(words.split()) == 0 else "FAILED")
cases = [case for case in helpers.CONSTRUCTIONS if case.solver == "steepest_descent"]
print("cases:", *(case.name for case in cases))
test_keystone.test_slots_equal_the_oracle_after_every_step(None, cases[1], 4, 7, 3)
timed = (solver for _, _, solver, *_ in speed_solvers.cases())
print("compared:", *compared(), *SweepConfig("depth").lines, *timed)
print("table:", [line[:2] for line in solver_table()[1] if "steepest" in line[0]])
made = made_of("steepest_descent", "linear")
found = identify(
    made.answers, *made.halves, kernels=("linear",),
    candidates=("steepest_descent", "gradient_descent"),
)
print("found:", found.status, *found.remain)
"""
    *printed, rest = python(code, package, tmp_path).stdout.split("END\n")
    for out, expected in zip(printed, commands.values(), strict=True):
        for words in expected:
            assert words in out
    rows = [*csv.DictReader((tmp_path / "s" / "results.csv").read_text().splitlines())]
    assert sum("steepest_descent" in row.values() for row in rows) == 4
    assert all(np.isfinite(float(row["gap"])) for row in rows)
    assert "cases: sd sd-exponential" in rest
    assert rest.split("compared:")[1].split("table:")[0].count("steepest_descent") == 4
    assert "found: identified steepest_descent" in rest
    assert "steepest_descent" in rest.split("table:")[1]


def test_a_package_that_fails_is_left_out_and_named(package, tmp_path):
    (tmp_path / "bad.py").write_text("raise RuntimeError('boom')")
    (tmp_path / "bad-1.0.dist-info").mkdir()
    for name, content in (("METADATA", "Name: bad\nVersion: 1.0\n"),
                          ("entry_points.txt", "[icl_krr]\nbad = bad\n")):  # fmt: skip
        (tmp_path / "bad-1.0.dist-info" / name).write_text(content)
    paths = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{package['PYTHONPATH']}"}
    code = "from icl_krr.catalogue import SOLVERS; print(*SOLVERS)"
    done = python(code, package | paths, tmp_path)
    assert "steepest_descent" in done.stdout
    assert "skipped the entry point bad of the group icl_krr" in done.stderr
