"""A solver is a short file and a row, a kernel is one: a package of them is known everywhere.

Sweep, ablate and identify take the file alone. The solver is that of the README.
"""

import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from test_kernel_of_ones_own import Tilted
from test_sweep import ARGV, no_figure, small, task_of  # noqa: F401

import icl_krr as ik
from icl_krr import cli
from icl_krr.catalogue import SOLVERS, candidate, compared
from icl_krr.cli._user_solver import register_file
from icl_krr.experiments._sweep.grid import measure_all
from icl_krr.probes._naming.candidates import solve

README = (Path(__file__).parent.parent / "README.md").read_text()
SOLVER = "import icl_krr as ik\n\n\n" + re.findall("@ik.solver\n.*?, step\n", README, re.S)[0]

KERNEL = f"""\
from typing import Any

import jax.numpy as jnp

from icl_krr.kernels import LogBilinear, pytree_dataclass


{inspect.getsource(Tilted)}"""

ROWS = """\
from momenta.kernel import Tilted
from momenta.solver import nesterov

from icl_krr.catalogue import Box, KernelEntry, SolverEntry, register

register(KernelEntry("tilted", "positive", kernel=Tilted))
register(
    SolverEntry(
        "nesterov",
        "NAG",
        solver=nesterov,
        required_inputs=("ridge", "spectrum"),
        states=("alpha", "prediction"),
        blocks={"linear": 2, "softmax": 2},
        fitted={
            "ridge": Box(-5, 0.5, 1),
            "high": Box(-1, 0.5, 1),
            "low_over_high": Box(-5, 0, 0, True),
        },
    )
)
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A folder that holds what pip leaves of such a package; the environment of who has it."""
    site = tmp_path_factory.mktemp("site")
    (site / "momenta").mkdir()
    (site / "momenta-1.0.dist-info").mkdir()
    files = {
        "momenta/__init__.py": ROWS,
        "momenta/kernel.py": KERNEL,
        "momenta/solver.py": SOLVER,
        "momenta-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: momenta\nVersion: 1.0\n",
        "momenta-1.0.dist-info/entry_points.txt": "[icl_krr]\nmomenta = momenta\n",
    }
    for name, content in files.items():
        (site / name).write_text(content)
    here = os.path.dirname(__file__)
    paths = [str(site), here, os.path.dirname(here), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "JAX_ENABLE_X64": "1"}


def python(code, env, folder):
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.slow
def test_commands_conformance_suite_readme_and_identify_have_it(package, tmp_path):
    """In one process, so that all is imported once. Identify finds the linear case's oracle."""
    rows = "\n".join(f"{i},{(i * 7) % 11},{(i * 5) % 13}" for i in range(40))
    (tmp_path / "table.csv").write_text(f"a,b,y\n{rows}\n")
    predict = "predict table.csv --target y --solver nesterov --steps 3 --kernel"
    commands = {
        f"{predict} {kernel}": (f"nesterov, {kernel} kernel", "2 blocks per step")
        for kernel in ("linear", "tilted")
    }
    code = f"""
import helpers, test_keystone
from benchmarks import speed_solvers
from benchmarks.refresh import solver_table
from icl_krr.catalogue import compared
from icl_krr.experiments._sweep.config import SweepConfig
from icl_krr.cli import main
from test_identify import made_of
from icl_krr.probes import identify

for words in {[*commands]}:
    print("END" if main(words.split()) == 0 else "FAILED")
cases = [case for case in helpers.CONSTRUCTIONS if case.solver == "nesterov"]
print("cases:", *(case.name for case in cases))
test_keystone.test_slots_equal_the_oracle_after_every_step(None, cases[1], 4, 7, 3)
timed = (solver for _, _, solver, *_ in speed_solvers.cases())
print("compared:", *compared(), *SweepConfig("depth").lines, *timed)
print("table:", [line[:2] for line in solver_table()[1] if "momenta" in line[0]])
made = made_of("nesterov", "linear")
found = identify(
    made.answers, *made.halves, kernels=("linear",),
    candidates=("nesterov", "gradient_descent"),
)
print("found:", found.status, *found.remain)
"""
    *printed, rest = python(code, package, tmp_path).stdout.split("END\n")
    for out, expected in zip(printed, commands.values(), strict=True):
        for words in expected:
            assert words in out
    assert "cases: nag nag-exponential" in rest
    assert rest.split("compared:")[1].split("table:")[0].count("nesterov") == 4
    assert "found: identified nesterov" in rest
    assert "nesterov" in rest.split("table:")[1]


@pytest.mark.parametrize("call", ["ik.solvers.lookup('cg')", "ik.Gaussian()", "ik.tasks.Sinusoids"])
def test_it_is_loaded_whatever_is_imported_first(package, tmp_path, call):
    code = f"import icl_krr as ik; {call}; print(ik.constructions.nesterov, *ik.catalogue.KERNELS)"
    done = python(code, package, tmp_path)
    assert "tilted" in done.stdout, done.stderr
    assert "skipped" not in done.stderr


def test_a_package_that_fails_is_left_out_and_named(package, tmp_path):
    (tmp_path / "bad.py").write_text("raise RuntimeError('boom')")
    (tmp_path / "bad-1.0.dist-info").mkdir()
    for name, content in (("METADATA", "Name: bad\nVersion: 1.0\n"),
                          ("entry_points.txt", "[icl_krr]\nbad = bad\n")):  # fmt: skip
        (tmp_path / "bad-1.0.dist-info" / name).write_text(content)
    paths = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{package['PYTHONPATH']}"}
    code = "from icl_krr.catalogue import SOLVERS; print(*SOLVERS)"
    done = python(code, package | paths, tmp_path)
    assert "nesterov" in done.stdout
    assert "skipped the entry point bad of the group icl_krr" in done.stderr


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.py").write_text(SOLVER)
    yield tmp_path / "my.py"
    SOLVERS.pop("nesterov", None)


def test_a_sweep_has_its_line_and_runs_it_again_when_the_file_changes(x64, file, no_figure, capsys):  # noqa: F811
    task, kernel = task_of(small("ridge")), ik.Exponential(0.5)
    exact = np.asarray(ik.solvers.exact(kernel, task, ridge=2.5).prediction)
    numbers = {"ridge": 2.5, "spectrum": ik.spectral_bounds(kernel, task, ridge=2.5)}
    words, results = "sweep ridge --lines my.py:nesterov cg --values 2.5 --seeds 1 --json", []
    for over, done in ((1, 0), (1, 2), (3, 1)):
        file.write_text("print(1)\n" + SOLVER.replace("/ high", f"/ ({over} * high)"))
        SOLVERS.pop("nesterov", None)
        measure_all.clear_cache()
        assert cli.main([*words.split(), *ARGV]) == 0
        out, err = capsys.readouterr()
        printed = json.loads(out)
        assert f"{done} of 2 cells" in err
        assert printed["meta"]["own_solvers"] == {"nesterov": file.read_text()}
        results.append([row["gap"] for row in printed["rows"] if row["line"] == "nesterov"])
        path = ik.run(SOLVERS["nesterov"].solver, kernel, task, steps=4, **numbers)
        distances = np.linalg.norm(np.asarray(path.prediction) - exact, axis=1)
        assert np.allclose(results[-1], distances / np.linalg.norm(exact), atol=1e-7)
    assert results[0] == results[1] != results[2]
    del SOLVERS["nesterov"]
    assert cli.main([*words.replace("my.py:nesterov", "").split(), *ARGV]) == 0
    meta = json.loads(capsys.readouterr().out)["meta"]
    assert meta["own_solvers"]["nesterov"] == file.read_text()


def test_ablate_removes_its_slots(file, capsys):
    words = "ablate my.py:nesterov --tasks 2 --num-queries 2 --steps 3 --kinds slot --json"
    assert cli.main(words.split()) == 0
    printed = json.loads(capsys.readouterr().out)
    changes = {row["slot"]: row["change"] for row in printed["rows"]}
    assert changes["prediction"] == 1 > changes["last"] > 0
    assert printed["meta"]["own_solvers"] == {"nesterov": SOLVER}


PRODUCTS = {
    "K @ y": "any",
    "K @ (K.normalised(1.0) @ y)": "positive",
    "K.average @ y": "positive",
    "K.inner(K.features, y) @ y": "featured",
}


@pytest.mark.parametrize("product", PRODUCTS)
def test_its_kernels_are_those_that_have_what_it_asks_for(file, product):
    text = "import icl_krr as ik\nnesterov = ik.solver(lambda K, y: {'prediction': PRODUCT})"
    file.write_text(text.replace("PRODUCT", product))
    assert SOLVERS[register_file("my.py:nesterov")].kernels == PRODUCTS[product]


def test_identify_fits_it(x64, file):
    """Its ridge, the upper end of the spectrum, and the lower end over the upper one."""
    row, task = candidate(register_file("my.py:nesterov")), task_of(small("ridge"))
    assert row.name in compared("linear")
    assert [*row.fitted] == ["ridge", "high", "low_over_high"]
    numbers = {"ridge": 2.0, "spectrum": (5.0, 20.0), "steps": 4}
    path = ik.run(row.solver, ik.Linear(), task, **numbers).prediction
    assert np.allclose(solve(row, "linear", np.log([2.0, 20.0, 0.25]), task, 4), path, atol=1e-12)
