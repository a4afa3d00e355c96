"""Contests: what agrees is timed, what does not is refused; and what a run needs of memory."""

import dataclasses
import json
import os
import re
import runpy
import subprocess
import sys
import time
import typing

import jax
import numpy as np
import pytest
from helpers import CASES, draw, numpy, often, stacked

import icl_krr as ik
from benchmarks import records, speed, speed_networks as networks, speed_plain as plain
from benchmarks.contests import Contest, Disagreement, compete, markdown
from benchmarks.speed_solvers import against_plain, cases, linear
from icl_krr.catalogue import SOLVERS, taken
from icl_krr.kernels import name_of
from icl_krr.tasks import batch
from icl_krr.transformer import step_cost


def slow(seconds, value=1.0):
    return lambda: time.sleep(seconds) or np.full(3, value)


def contest(**changes):
    competitors = {"slow": slow(0.12), "fast": slow(0.02)}
    base = Contest(suite="s", name="n", ours=slow(0.05), competitors=competitors)
    return dataclasses.replace(base, **changes)


def test_ratios_are_to_the_best_rival_and_goals_are_judged():
    ours, slowest, best = compete(contest(target=4.0), repeats=5)
    assert best.ratio == 1
    assert 1.3 < ours.ratio < 4 < slowest.ratio
    assert ours.met is True
    assert best.met is None
    assert ours.lower_ms <= ours.median_ms <= ours.upper_ms
    assert compete(contest(target=1.1), repeats=3)[0].met is False
    assert "| n |" in markdown([ours, slowest, best])


def test_a_program_that_disagrees_is_not_timed():
    with pytest.raises(ValueError, match="icl_krr must agree with slow on n to"):
        compete(contest(ours=slow(0.0, 1.5)), repeats=1)
    with pytest.raises(ValueError, match="got nan"):
        compete(contest(ours=slow(0.0, np.nan)), repeats=1)


def test_every_array_of_a_result_must_agree():
    """A wrong array is refused, even if all its entries are small beside those of another one."""

    def program(small):
        return lambda: {"large": np.full(3, 100.0), "small": np.full(2, small)}

    competitors = {"one": program(2.0)}
    assert compete(contest(ours=program(2.0), competitors=competitors), repeats=1)[0].error == 0
    with pytest.raises(Disagreement, match=r"relative error of 0.001, got 0.01$|got 0.01;"):
        compete(contest(ours=program(2.02), competitors=competitors), repeats=1)

    def halve(result):
        return {**result, "small": result["small"] / 2}

    halved = contest(ours=program(4.0), competitors=competitors, like_competitors=halve)
    assert compete(halved, repeats=1)[0].error == 0


def test_short_programs_have_more_turns():
    calls = []

    def program():
        calls.append(1)
        return np.ones(3)

    compete(contest(ours=program), repeats=1)
    assert len(calls) == 2
    calls.clear()
    compete(contest(ours=program, competitors={"same": lambda: np.ones(3)}), repeats=2)
    assert len(calls) == 1 + 15 * 2


def plain_and_oracle(kernel, task, ridge, steps):
    """Predictions of every solver for the kernel, by plain code in all forms and by the oracle."""
    A = np.asarray(kernel(task.x, task.x)) + ridge * np.eye(task.num_supports)
    low, *_, high = np.linalg.eigvalsh(A).tolist()
    forms = [plain.formed, plain.factored] if isinstance(kernel, ik.Linear) else [plain.formed]

    def run(task):
        predictions = {}
        for name, solve in plain.SOLVERS.items():
            row = SOLVERS[name]
            if name_of(kernel) in taken(name) and not row.options:
                numbers = {"spectrum": (low, high)} if "spectrum" in row.required_inputs else {}
                numbers |= {"ridge": ridge, "steps": steps}
                oracle = ik.solvers.lookup(row)(kernel, task, **numbers).prediction[-1]
                predictions[name] = [solve(form(kernel, task), **numbers) for form in forms], oracle
        assert predictions
        return predictions

    return numpy(jax.jit(run)(task))


KERNELS = {"linear": ik.Linear(), "exponential": ik.Exponential(0.5), "gaussian": ik.Gaussian(0.7)}


@often("name", ("linear",), KERNELS)
def test_plain_code_takes_the_steps_of_the_oracles_and_converges(name, x64):
    """The steps are compared after three, before anything has converged."""
    kernel, task = KERNELS[name], draw(0, n=12)
    task = task.replace(x=task.x / 2, x_query=task.x_query / 2)
    ridge = float(np.mean(kernel.diagonal(task.x)))
    exact = ik.solvers.exact(kernel, task, ridge=ridge).prediction
    for solver, (predictions, oracle) in plain_and_oracle(kernel, task, ridge, 3).items():
        for prediction in predictions:
            np.testing.assert_allclose(prediction, oracle, rtol=1e-10, err_msg=solver)
        assert np.max(np.abs(oracle - exact)) > 1e-9, solver
    for solver, (predictions, _) in plain_and_oracle(kernel, task, ridge, 400).items():
        for prediction in predictions:
            np.testing.assert_allclose(prediction, exact, atol=1e-8, err_msg=solver)


def test_a_wrong_floor_is_refused(monkeypatch):
    """Without plain code, the floor is the oracle."""

    def of(options):
        return against_plain("forward", "linear", linear(n=8, p=2), "chebyshev", options, 2, 3, 0)

    options, right = {"spectrum": (0.1, 30.0)}, plain.chebyshev

    def wrong(system, ridge, **rest):
        return right(system, 1.1 * ridge, **rest)

    monkeypatch.setitem(plain.SOLVERS, "chebyshev", wrong)
    with pytest.raises(Disagreement, match="icl_krr must agree with plain, K v = X"):
        compete(of(options), repeats=1)
    monkeypatch.delitem(plain.SOLVERS, "chebyshev")
    assert next(iter(of(options).competitors)) == "oracle, vmap"
    assert compete(of(options), repeats=1)[0].error < 1e-4


def test_every_solver_of_a_batch_is_timed_but_for_variants_without_plain_code():
    timed = {solver for _, _, solver, *_ in cases()}
    assert {*plain.SOLVERS} <= timed
    for row in (SOLVERS[name] for name in {*SOLVERS} - timed):
        assert row.variant_of or row.causal or row.one_task or not row.iterates, row.name


@pytest.mark.slow
def test_gradients_of_all_weights_of_a_trained_model_are_compared():
    """With a plain transformer; the gradient of one small table, 1 % off, is refused."""
    first = next(iter(networks.training(True, 0)))
    scan = {"plain JAX, scan": first.competitors["plain JAX, scan"]}
    fair = dataclasses.replace(first, competitors=scan)
    with jax.numpy_rank_promotion("allow"):  # as a plain h + bias does it
        assert compete(fair, repeats=1)[0].error < 1e-4
    loss, slopes = first.like_competitors(first.ours())
    model = first.ours()[1]

    def entries(tree):
        return sum(leaf.size for leaf in jax.tree.leaves(tree))

    assert entries(slopes) == entries(model) - 1  # the slot `one` is no weight of a transformer
    off = loss, {**slopes, "positions": 1.01 * slopes["positions"]}
    with jax.numpy_rank_promotion("allow"), pytest.raises(Disagreement):
        compete(dataclasses.replace(fair, ours=lambda: off, like_competitors=lambda r: r), 1)


def test_every_suite_that_settings_offer_exists():
    assert typing.get_args(speed.Kind) == tuple(speed.SUITES)


def test_the_command_writes_what_it_prints(tmp_path, capsys):
    speed.main(("exact",), quick=True, out=tmp_path)
    text = (tmp_path / "bench.md").read_text()
    assert text == capsys.readouterr().out.removesuffix("\n")
    assert text.endswith("these times judge no goal\n")
    saved = json.loads((tmp_path / "bench.json").read_text())
    row = saved["rows"][0]
    assert (row["suite"], row["program"], row["dtype"]) == ("exact", "icl_krr", "float32")
    assert row["error"] < 1e-3
    assert row["met"] is None
    assert {"device", "machine", "seed", "cores", "matmul_precision"} <= set(saved["meta"])
    assert {"icl_krr", "jax", "flax", "numpy", "scipy"} <= set(saved["meta"]["versions"])
    options = "--suite exact --quick --repeats 7 --seed 0"
    assert saved["meta"]["command"] == f"python -m benchmarks speed {options}"


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("speed --repeats 0", "repeats must be >= 1, got 0"),
        ("refresh --claim C99", "claim must be one of 'C1', .*, got 'C99'"),
        ("refresh --claim", "Missing value for argument '--claim'"),
        ("refresh", r"damaged\.json must be a JSON file: "),
    ],
)
def test_commands_refuse_what_they_cannot_do(tmp_path, monkeypatch, capsys, typed, message):
    """Before anything is written."""
    monkeypatch.setattr(records, "RESULTS", tmp_path)
    monkeypatch.setattr(sys, "argv", ["benchmarks", *typed.split()])
    (tmp_path / "sound.json").write_text(" {}")
    (tmp_path / "damaged.json").write_text("{")
    with pytest.raises(SystemExit, match=r"^2$"):
        runpy.run_module("benchmarks", run_name="__main__")
    assert re.search(message, capsys.readouterr().err)
    assert (tmp_path / "sound.json").read_text() == " {}"


def test_the_roofline_does_the_work_that_it_names():
    calls, task = [], draw(0)
    model = CASES["cg"].build(task, 0.5, 8)

    def run(*_):
        calls.append(1)
        return np.zeros(1)

    products, memory = networks.against_machine("n", run, model, task, quick=True, passes=3)
    step = step_cost(model, task)
    work = {"flops": 3 * 8 * step.flops, "bytes": 3 * 8 * step.bytes}
    assert products.size == memory.size == work
    assert (products.name, memory.name) == ("products: n", "memory: n")
    rows = 5
    assert networks.product(2 * rows * networks.SIDE**2)().shape == (rows, networks.SIDE)
    add = networks.sum_of_vectors(12 * rows * networks.ROW)
    assert [float(add()[-1, -1]) for _ in range(2)] == [1.5, 1.75]
    assert add().shape == (rows, networks.ROW)
    networks.repeated(run, 4)()
    assert len(calls) == 4


def test_memory_counts_what_is_kept():
    task = draw(0, n=64)
    model = CASES["cg"].build(task, 0.5, 8)
    kept = {}, {"names": ("alpha",)}, {"everything": True}
    bare, alpha, everything = (ik.memory(model, task, **options) for options in kept)
    assert 0.9 < (alpha.results - bare.results) / (9 * 64 * 4) < 1.2
    assert everything.peak > 10 * alpha.peak
    assert bare.free > bare.peak
    tasks = stacked(task, task)
    assert ik.memory(model, tasks, gradient=True).scratch > ik.memory(model, tasks).scratch


def test_map_tasks_is_a_loop_in_chunks_over_tasks_that_are_padded_and_masked():
    tasks = [draw(seed, n=n) for seed, n in enumerate((4, 7, 5))]

    def solve(task):
        return ik.solvers.exact(ik.Linear(), task, ridge=0.1)

    alone = np.stack([solve(task).prediction for task in tasks])
    for chunk in (None, 2):
        chunked = jax.jit(lambda tasks: ik.map_tasks(solve, tasks, chunk=chunk))  # noqa: B023
        result = chunked(batch(tasks))
        np.testing.assert_allclose(result.prediction, alone, atol=1e-5)
    assert batch(tasks[:1]).mask is None
    with pytest.raises(ValueError, match="task must be a batch of tasks"):
        ik.map_tasks(solve, tasks[0])


@pytest.mark.slow
def test_compiled_programs_are_kept_between_commands(tmp_path):
    """The second process finds on disk what the first one compiled."""
    argv = ["sweep", "width", "--values", "4", "--seeds", "1", "--steps", "2"]
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    for name in ("JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"):
        env.pop(name, None)
    code = f"import sys; from icl_krr.cli import main; sys.exit(main({argv!r}))"
    written = []
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
        assert (done.returncode, "cpu_aot_loader" in done.stderr) == (0, False)
        written.append(sorted(p.name for p in (tmp_path / "cache").rglob("*-cache")))
    assert written[0]
    assert written[0] == written[1]
