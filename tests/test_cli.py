"""The command line, as a person meets it."""

import csv
import dataclasses
import itertools
import json
import re
import signal
import subprocess
import sys
import typing
from typing import Any

import numpy as np
import pytest
from helpers import numpy_exact

import icl_krr as ik
from icl_krr import cli
from icl_krr.catalogue import AXES, KERNELS, SOLVERS
from icl_krr.cli._commands import COMMANDS
from icl_krr.cli._commands.demo import Demo, demo_config, demo_tasks
from icl_krr.cli._commands.predict import Predict
from icl_krr.cli._commands.train import Train, target_of, words_of
from icl_krr.cli._depth_tables import depth_config
from icl_krr.cli._options import Construction
from icl_krr.cli._program import parse
from icl_krr.experiments import AblateConfig, ModelRecipe, Recipe, run_names

TABLE = "a,b,y\n" + "".join(
    f"{i % 5},{(i * 7) % 11},{(i % 5) - 0.3 * ((i * 7) % 11) + 0.1 * (i % 3)}\n" for i in range(40)
)


@pytest.fixture
def table(tmp_path, monkeypatch):
    """The table t.csv in the working directory."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "t.csv"
    path.write_text(TABLE)
    return path


def refusal(words, capsys):
    """The one line with which a command refuses its arguments."""
    assert cli.main(words.split()) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert re.fullmatch("icl-krr: error: [^│─╭]*\n", captured.err)
    return captured.err


def test_help_needs_no_jax():
    code = (
        "import sys; from icl_krr.cli import main\n"
        "assert main(['--help']) == 0\n"
        "assert 'jax' not in sys.modules, 'help imported jax'"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "predict" in run.stdout
    assert "demo" in run.stdout


@pytest.mark.parametrize("command", ["", *COMMANDS, "solverbench write"])
def test_help_fits_the_terminal_and_cuts_no_word(command, capsys, monkeypatch):
    """tyro cut long descriptions anywhere, kept the line breaks of the source, and wrote white."""
    help_texts = {}
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for width in (80, 400):
        monkeypatch.setenv("COLUMNS", str(width))
        assert cli.main([*command.split(), "--help"]) == 0
        help_texts[width] = capsys.readouterr().out
        assert max(map(len, help_texts[width].splitlines())) <= width
        assert "\x1b" not in help_texts[width]
    words, whole = ({*re.split(r"[\s,]+|-{9,}", text)} for text in help_texts.values())
    assert words == whole
    for line, after in itertools.pairwise(help_texts[80].splitlines()):
        if all(re.match(r"( {8})?\S", one) for one in (line, after)):  # one paragraph
            assert len(f"{line} {after.split()[0]}") > 80, f"{line} has room for {after}"


def test_the_help_of_train_lists_the_recipes(capsys):
    assert cli.main(["train", "--help"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert all(f" {name} (" in printed for name in run_names())
    facts = "gaussian_process, p = 1, n = 24 encoder, softmax attention, depth 6, width 64"
    assert f"gp-encoder (30 min): the usual subject of identify, fit and ablate {facts}" in printed


def test_loss_and_validation_are_named_for_what_they_are():
    row = {"step": 1, "loss": 0.006, "validation": 0.04, "ratio": 1.0, "steps_per_second": 9.0}
    words = words_of(row, target_of(ik.training.Training(target="exact")))
    assert "loss 0.006 (against exact KRR), validation 0.04 (against y), " in words


def test_version(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("icl-krr 0.")


def test_predict_prints_json_that_agrees_with_numpy(table, capsys):
    words = f"{PREDICT} --supports 25 --seed 3 --kernel linear --ridge 0.5 --steps 6 --json"
    assert cli.main(words.split()) == 0
    printed = json.loads(capsys.readouterr().out)
    facts = printed["meta"]["tasks"]["t.csv"]
    assert (facts["n"], facts["q"], facts["p"], facts["blocks_per_step"]) == (25, 15, 2, 5)
    assert (facts["ridge"], facts["dtype"], printed["meta"]["seed"]) == (0.5, "float32", 3)
    assert facts["chosen"] == []
    assert (facts["attention"], facts["heads"]) == ("linear", 3)
    task = ik.tasks.split(ik.tasks.read_table(table, "y"), 25, seed=3)
    exact = numpy_exact(task.x, task.y, task.x_query, 0.5)
    K = np.asarray(task.x, np.float64) @ np.asarray(task.x, np.float64).T
    sigma = np.linalg.eigvalsh(K)
    assert np.isclose(facts["d_eff"], np.sum(sigma / (sigma + 0.5)), rtol=1e-4)
    assert np.isclose(facts["cond"], (sigma[-1] + 0.5) / 0.5, rtol=1e-4)
    rows = {(row["predictor"], row["step"]): row for row in printed["results"]["t.csv"]["rows"]}
    y = np.asarray(task.y_query, np.float64)
    rmse = lambda f: np.sqrt(np.mean((f - y) ** 2))  # noqa: E731
    assert np.isclose(rows["exact", 0]["rmse"], rmse(exact), rtol=1e-4)
    assert np.isclose(rows["zero", 0]["rmse"], rmse(0), rtol=1e-4)
    assert np.isclose(rows["mean", 0]["rmse"], rmse(0), rtol=1e-4)
    assert rows["transformer", 0]["gap"] == 1.0
    assert rows["transformer", 6]["gap"] < 1e-5
    assert rows["transformer", 6]["blocks"] == 31
    assert all(rows["transformer", t]["oracle_gap"] < 1e-4 for t in range(7))


PRINTED = ("gap to", "bound", "zero", "mean", "exact", "d_eff", "cond", "float32")


def test_a_solver_prints_a_table(table, capsys):
    assert cli.main(f"{PREDICT} --solver gradient-descent --kernel linear --steps 4".split()) == 0
    out = capsys.readouterr().out
    for word in ("gradient_descent", *PRINTED, "seed = 0", "blocks per step"):
        assert word in out


@pytest.mark.slow
def test_demo_writes_its_files(tmp_path, capsys, monkeypatch, programs):
    monkeypatch.setenv("COLUMNS", "80")
    out = tmp_path / "deep" / "demo"
    assert cli.main(["demo", "--out", str(out), "--steps", "3", "--seed", "1"]) == 0
    assert len(programs) <= 30, programs  # 58 before
    printed = capsys.readouterr().out
    assert printed.count("┏") == 2  # a table for each task, with all columns
    for word in (*PRINTED, "blocks per step"):
        assert word in " ".join(printed.split())
    assert max(map(len, printed.splitlines())) <= 80
    names = ["depth.png", "depth.svg", "meta.json", "results.csv"]
    assert sorted(path.name for path in out.iterdir()) == names
    assert (out / "depth.png").read_bytes().startswith(b"\x89PNG")
    meta = json.loads((out / "meta.json").read_text())
    assert meta["seed"] == 1
    assert meta["command"][:2] == ["icl-krr", "demo"]
    process = meta["tasks"]["Gaussian process"]
    assert process["chosen"] == []
    assert (process["temperature"], process["ridge"]) == (1.0, pytest.approx(0.03 * np.e))
    rows = list(csv.DictReader((out / "results.csv").read_text().splitlines()))
    model_rows = [row for row in rows if row["predictor"] == "transformer"]
    assert (len(rows), len(model_rows)) == (2 * (4 + 4), 8)
    for before, after in itertools.pairwise(model_rows):
        if before["task"] == after["task"]:
            assert float(after["alpha_error"]) < float(before["alpha_error"])
            assert float(after["alpha_error"]) < float(after["bound"])
    assert {"jax", "jaxlib", "numpy", "icl_krr"} <= set(meta["versions"])
    assert {row["task"] for row in rows} == {"diabetes.csv", "Gaussian process"}
    others = {"zero", "mean", "nadaraya_watson", "exact"}
    assert {row["predictor"] for row in rows} == {"transformer", *others}


@pytest.mark.slow
def test_predict_compiles_few_programs(programs):
    table = f"{ik.__path__[0]}/tasks/data/diabetes.csv"
    assert cli.main(["predict", table, "--target", "progression"]) == 0
    assert len(programs) <= 30, programs  # 46 before


MY = """import icl_krr as ik
branch = ik.solver(lambda K, y, *, ridge: {"prediction": y if y @ y else y})
number = ik.solver(lambda K, y, *, ridge: {"prediction": y if ridge > 1 else y})
weight, plain = ik.solver(lambda K, y, *, momentum: {}), branch.function
"""
FAULTY = "\ndef f(): {}['a']\nf()"
FILES = {"one.csv": "a,y\n1,2\n", "my.py": MY, "bad.py": FAULTY, "open.py": "x = ("}
PREDICT, SWEEP, FIT = "predict t.csv --target y", "sweep width", "fit t.csv --target y"
REFUSALS = {
    "": "",
    "fly": "command must be one of",
    "identfy gp-encoder": "command must be one of 'demo', .*; did you mean 'identify'\\?\n$",
    "identify x --positions 1 x": "--positions must be an integer, got 'x'",
    "train --training.decay x": "--training.decay must be a number, got 'x'",
    "predict": "Missing from icl-krr predict: TABLE.csv, --target COLUMN\n",
    "predict t.csv --target z": "target must be a column of",
    "predict one.csv --target y": "must hold at least 2 rows, got 1",
    "predict missing.csv --target y": "missing.csv: No such file",
    f"{PREDICT} --out one.csv": "File exists",
    f"{PREDICT} --ridge nan": "ridge must be > 0, got nan",
    f"{PREDICT} --ridge 1e39": r"ridge must be in the range of float32, got 1e\+39",
    f"{PREDICT} --temperature 0": "temperature must be > 0, got 0.0",
    f"{PREDICT} --kernel linear --temperature 2": "must be None for kernel 'linear', which has",
    f"{PREDICT} --solver nadaraya-watson --steps 3": "--steps must not be given for solver",
    f"{PREDICT} --steps 0": "steps must be >= 1, got 0",
    f"{PREDICT} --seed -1": "seed must be >= 0, got -1",
    f"{PREDICT} --seed 99999999999999999999": r"seed must be < 2\^31",
    f"{PREDICT} --supports 1": "supports must be >= 2, got 1",
    f"{PREDICT} --kernel exponential --solver newton-schulz": "kernel must be 'linear' or "
    "'polynomial' for solver 'newton_schulz', got 'exponential'",
    f"{PREDICT} --kernel linear --solver richardson": "'matern32' or 'matern52' for solver "
    "'richardson', got 'linear'",
    f"{PREDICT} --solver chebishev": r"--solver must be one of .*, got 'cheb.*\?\n$",
    "identify x --kernels linear gausian": r"--kernels must be one of .*mean 'gaussian'\?\n$",
    "identify gp-enconder": r"model must be .*; did you mean 'gp-encoder'\?\n$",
    "identify gp-encoder --seeds 0": "seeds must be >= 1, got 0",
    "identify gp-encoder --candidates chebychev": "candidate must .*; did you mean 'chebyshev'",
    "identify a.npz --tasks 9": "--tasks must not be given for a file",
    "identify a.npz": "a.npz does not exist; write tasks to it with --tasks-of RUN",
    "identify a --tasks-of linear": "MODEL must be a file .npz with --tasks-of, got 'a'",
    "identify a.npz --tasks-of linear --steps 3": "--steps must not be given with --tasks-of",
    "identify gp-encoder --protocol error-profile --positions 3": "--positions must not be given "
    "with --protocol error-profile",
    "solverbench score": "TABLE.csv must be given for score",
    "solverbench write table.csv": "TABLE.csv must not be given for write",
    "solverbench identify --quick": "--quick must not be given for identify",
    "solverbench identify --models nowhere": "nowhere/manifest.json must exist",
    "solverbench score nowhere.csv --labels nowhere": "nowhere/labels.json must exist",
    "solverbench judge": "judge",
    "ablate . --out .": "model must be a run's folder or one of gp-decoder-12, ",
    "ablate richardson --kernel linear --out .": "kernel of richardson must be one of",
    "ablate gp-encoder --kernel linear --out .": "kernel must be None for a run",
    "ablate x --kinds heads": r"--kinds must be one of 'head', .*, got 'heads'; .* 'head'\?\n$",
    "ablate conjugate-gradeint": r"model must be .*; did you mean 'conjugate_gradient'\?\n$",
    "ablate gp-encoder --each-step": "--each-step must not be given for a trained model",
    "ablate my.py:branch --each-step": "my.py, line 2: TypeError: a value has no truth value: we",
    "ablate my.py:number": "my.py, line 3: TracerBoolConversionError: Attempted boolean .*]\\.\n$",
    "ablate my.py:weight": "my.py: keyword without a default of weight must be one of 'rid",
    "ablate bad.py:x": "bad.py, line 2: KeyError: 'a'\n$",
    "ablate open.py:x": r"open.py: '\(' was never closed \(open.py, line 1\)\n$",
    "sweep ridge --lines no.py:x": "no.py: No such file or directory",
    "sweep ridge --lines my.py:brnch": "my.py: brnch must be a function with the mark icl",
    "identify gp-encoder --solver my.py:plain": "my.py: plain must be a function with the mark icl",
    "identify gp-encoder --solver cgg": "candidate must be one of 'nadaraya_watson'",
    "sweep wdth": r"error: value must be one of 'depth', .*; did you mean 'width'\?\n$",
    "sweep ridge --ridge 3": "--ridge must not be given along the axis 'ridge'",
    f"{SWEEP} --temperature 2": "--temperature must not be given along the axis 'width'",
    f"{SWEEP} --values": "must have at least one value, got none; remove --",
    f"{SWEEP} --lines --values 3": "must have at least one value, got none; remove --",
    "train --task.family linear --task.lengthscale 3": "--task.lengthscale must not be given for",
    "train --task.kernel exponential --task.lengthscale 3": "and kernel 'exponential', got",
    "train --model.start chebyshev --model.heads 7": "--model.heads must not be given for start",
    "fit t.csv": "target must be given for the table",
    "fit nothing": "or one of .* a table with --target COLUMN; got 'nothing'",
    "fit gp-nothing": "data must be a run's folder or one of",
    "fit gp-encoder --target y": "--target must not be given for a trained model, got 'y' for gp",
    "fit gp-encoder --solver nadaraya_watson --objective marginal-likelihood": "objective must be "
    "'held-out' for solver 'nadaraya_watson'",
    f"{FIT} --tasks 3": "--tasks must not be given for a table",
    f"{FIT} --supports 1": "supports must be >= 2, because the fit",
    f"{FIT} --solver nystrom_conjugate_gradient": "solver must have weights that fit several tasks",
    f"{FIT} --fit-spectrum": "if fit_spectrum is given",
    "verify C99": "claim must be one of 'C1', 'C2',",
    "verify C1 C4 --set num_features=3": "setting of C4 must be one of 'draws',",
    "verify C1 --set draws": "set must be NAME=VALUE, such as draws=4, got 'draws'",
    "verify C1 --set draws=0": "draws must be >= 1, got 0",
    "verify C1 --set temperatures=warm": "temperatures must be a number, got 'warm'",
    "verify C8 --set solvers=jacobi": "solvers must be one of 'textbook',",
    "verify C28 --set steps=3": "steps must have 2 values, got '3'",
    "verify --set draws=3": "set needs the names of claims, such as C16 --set draws=4",
} | {
    f"sweep {axis} --values {value}": " must "
    for axis in AXES
    for value in ("abc", "nan", "inf", "-1", "1.5x")
}
AT_WORK = {
    f"{FIT} --kernel exponential --temperature 0.01 --ridge 1 --steps 2": "raise the temperature",
    f"{PREDICT} --kernel exponential --temperature 0.001 --ridge 1 --steps 2": "raise the temper",
    "identify gp-encoder --protocol error-profile --steps 2": r"steps must be >= the .*, 6, got 2",
    "verify C16 --set spectrum=foo --quick": "spectrum must be one of '1/sqrt i', '1/i',",
    "verify C16 --set width=21 --quick": "C16 cannot run with these settings: width must be <= p",
}
"""What is found out once the folder of the results is there, or a program has run."""


@pytest.mark.parametrize("words", REFUSALS | AT_WORK)
def test_bad_arguments_are_refused_by_one_line(table, words, capsys, programs):
    for name, text in FILES.items():
        table.with_name(name).write_text(text)
    assert re.search((REFUSALS | AT_WORK)[words], refusal(words, capsys))
    if words in REFUSALS:
        assert programs == []
        assert {path.name for path in table.parent.iterdir()} == {"t.csv", *FILES}


def test_a_table_that_says_nothing_is_still_answered(table, capsys):
    table.write_text("a,b,y\n" + "1,3,2\n" * 40)
    assert cli.main(f"{PREDICT} --kernel linear --supports 25 --steps 6".split()) == 0
    assert "exact KRR is not finite" not in capsys.readouterr().out


@pytest.mark.usefixtures("table")
def test_overflow_is_said(capsys):
    words = f"{PREDICT} --kernel exponential --ridge 1 --temperature 0.001 --solver nadaraya-watson"
    assert cli.main(words.split()) == 0
    assert "exact KRR is not finite: the kernel overflows float64" in capsys.readouterr().out


def test_the_command_line_has_every_solver_and_kernel():
    hints = typing.get_type_hints(Construction)
    assert typing.get_args(hints["solver"]) == tuple(SOLVERS)
    assert typing.get_args(typing.get_args(hints["kernel"])[0]) == tuple(KERNELS)


def test_demo_prefers_the_exponential_kernel_and_predict_compares_all():
    assert demo_config(Demo()).kernel == "exponential"
    assert demo_config(Demo(solver="newton_schulz")).kernel == "linear"
    assert demo_config(Demo(kernel="gaussian")).kernel == "gaussian"
    assert depth_config(Predict()).kernels == ("linear", "exponential", "gaussian")
    assert depth_config(Predict(solver="richardson")).kernels == ("exponential", "gaussian")
    assert depth_config(Predict(lengthscale=1.0)).kernels == ("gaussian",)


def test_the_seed_draws_the_task():
    first, second = (demo_tasks(demo_config(Demo()), seed) for seed in (0, 1))
    for name in first:
        assert not np.allclose(first[name][0].x, second[name][0].x)


@pytest.mark.parametrize("kernel", ["linear", "exponential", "gaussian"])
def test_the_demo_solves_a_process_with_its_own_kernel_and_noise(kernel):
    """Those that are given, it keeps."""
    for ridge in (None, 2.0):
        config = demo_config(Demo(kernel=kernel, ridge=ridge))
        tasks = demo_tasks(config, 0)
        assert tasks["diabetes.csv"][1] == dataclasses.replace(config, centred=True)
        _, process_config = tasks["Gaussian process"]
        unit = np.e if kernel == "exponential" else 1.0
        assert process_config.ridge == pytest.approx(ridge or 0.03 * unit)
        bandwidths = {"exponential": (1.0, None), "gaussian": (None, 1.0), "linear": (None, None)}
        assert (process_config.temperature, process_config.lengthscale) == bandwidths[kernel]


@pytest.mark.parametrize("word", ["conjugate-gradient", "conjugate_gradient", "cg", "CG"])
def test_a_solver_may_be_spelled_in_several_ways(word, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for argv in (["--solver", word], [f"--solver={word}", "--kernel", "rbf"]):
        settings = parse(["predict", "t.csv", "--target", "y", *argv])
        assert settings.solver == "conjugate_gradient"
        assert settings.kernel in (None, "gaussian")
    assert AblateConfig(word).model == ModelRecipe(start=word).start == "conjugate_gradient"
    assert parse(["ablate", word, "--each-step"]).refuse_options_without_effect() is None
    (tmp_path / word).mkdir()
    (tmp_path / word / "recipe.json").write_text("{}")
    assert AblateConfig(word).constructed == (word == "conjugate_gradient")  # else the run's folder


def test_words_are_read_only_where_a_name_is_asked_for():
    """A column or a folder may have the name of a solver."""
    settings = parse(["predict", "t.csv", "--target", "heavy-ball", "--out", "cg"])
    assert settings.target == "heavy-ball"
    assert str(settings.out) == "cg"
    settings = parse(["ablate", "x", "--kinds", "Head", "slot", "--kernel", "None"])
    assert (settings.kinds, settings.kernel) == (("head", "slot"), None)
    assert parse(["fit", "x", "--objective", "held_out"]).objective == "held-out"


def test_every_recipe_that_ships_has_only_settings_with_an_effect():
    for name in run_names():
        Train(name, **vars(Recipe.read(name))).refuse_options_without_effect()


SLOW = """
import signal
from icl_krr.cli import _program as program, console

def slow(argv):
    print("started", flush=True)
    input()
    print("words " * 100_000)
    return 0

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background
program.main = slow
console()
"""


@pytest.fixture
def process():
    pipes: Any = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen([sys.executable, "-c", SLOW], **pipes) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"started\n"
        yield process


def test_ctrl_c_leaves_no_traceback(process):
    process.send_signal(signal.SIGINT)
    assert (process.wait(30), process.stderr.read()) == (130, b"")


def test_a_reader_that_leaves_is_no_error(process):
    process.stdout.close()
    process.stdin.write(b"go on\n")
    process.stdin.flush()
    assert (process.wait(30), process.stderr.read()) == (141, b"")
