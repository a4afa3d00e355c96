"""Contests: what agrees is timed, what does not is refused; and what a run needs of memory."""

import json
import os
import subprocess
import sys
import time
import typing

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import CASES, draw

import icl_krr as ik
from icl_krr import capacity, cli
from icl_krr.bench import SUITES, Contest, compete, markdown
from icl_krr.cli.settings.bench import Bench


def slow(seconds, value=1.0):
    def program():
        time.sleep(seconds)
        return np.full(3, value)

    return program


def contest(**changes):
    rivals = {"slow": slow(0.12), "fast": slow(0.02)}
    return Contest(**{"suite": "s", "name": "n", "ours": slow(0.05), "rivals": rivals, **changes})


def test_ratios_are_to_the_best_rival_and_goals_are_judged():
    ours, slowest, best = compete(contest(target=4.0), repeats=5)
    assert best.ratio == 1
    assert 1.3 < ours.ratio < 4 < slowest.ratio
    assert ours.met is True
    assert best.met is None
    assert ours.lower_ms <= ours.median_ms <= ours.upper_ms
    assert compete(contest(target=1.1), repeats=3)[0].met is False
    assert compete(contest(limit_ms=1.0), repeats=1)[0].met is False
    assert "| n |" in markdown([ours, slowest, best])


def test_a_program_that_disagrees_is_not_timed():
    with pytest.raises(ValueError, match="icl_krr must agree with slow on n to"):
        compete(contest(ours=slow(0.0, 1.5)), repeats=1)
    with pytest.raises(ValueError, match="got nan"):
        compete(contest(ours=slow(0.0, np.nan)), repeats=1)


def test_every_suite_that_settings_offer_exists():
    choice, _ = typing.get_args(Bench.__annotations__["suite"]) or typing.get_args(
        typing.get_type_hints(Bench)["suite"]
    )
    assert set(typing.get_args(choice)) == set(SUITES)


def test_the_command_writes_what_it_prints(tmp_path, capsys):
    argv = ["bench", "--quick", "--suite", "exact", "--json", "--out", str(tmp_path)]
    assert cli.main(argv) == 0
    printed = json.loads(capsys.readouterr().out)
    saved = json.loads((tmp_path / "bench.json").read_text())
    assert saved == printed
    row = printed["rows"][0]
    assert (row["suite"], row["program"], row["dtype"]) == ("exact", "icl_krr", "float32")
    assert row["error"] < 1e-3
    assert {"device", "machine", "versions", "seed", "cores"} <= set(printed["meta"])
    assert "exact KRR" in (tmp_path / "bench.md").read_text()


def test_bad_settings_are_one_line(capsys):
    assert cli.main(["bench", "--repeats", "0"]) == 2
    assert capsys.readouterr().err == "icl-krr: error: repeats must be >= 1, got 0\n"


def test_memory_counts_what_is_kept(compiled_as_users_do):
    task = draw(0, n=64)
    model = CASES["cg"].build(task, 0.5, 8)
    bare, alpha, everything = (
        ik.memory(model, task, **options)
        for options in ({}, {"names": ("alpha",)}, {"everything": True})
    )
    kept = alpha.results - bare.results
    assert 0.9 < kept / (9 * 64 * 4) < 1.2
    assert everything.peak > 10 * alpha.peak
    assert bare.free > bare.peak


def test_a_run_that_does_not_fit_is_refused_with_the_numbers(monkeypatch):
    """The device is said to have 1 MB; the run would keep every pattern."""
    monkeypatch.setattr(capacity, "free", lambda device: 10**6)
    task = draw(0, n=1000)
    model = CASES["cg"].build(task, 0.5, 8)
    with pytest.raises(
        MemoryError, match=r"needs .* GB .* only 0.001 GB are free; keep fewer slots"
    ):
        ik.run_with_cache(model, task, everything=True)
    assert np.all(np.isfinite(ik.predict(model, task)))
    jax.jit(lambda task: ik.predict(model, task))(task)


def test_map_tasks_is_vmap_in_chunks():
    keys = jax.random.split(jax.random.key(0), 7)
    config = ik.tasks.LinearRegression(num_features=2, num_supports=4)
    tasks = jax.vmap(ik.tasks.sample, in_axes=(0, None))(keys, config)
    solve = lambda task: ik.solvers.exact(ik.Linear(), task, ridge=0.1)  # noqa: E731
    whole = jax.vmap(solve)(tasks)
    for chunk in (None, 1, 3):
        ours = ik.map_tasks(solve, tasks, chunk=chunk)
        assert jax.tree.all(jax.tree.map(lambda a, b: jnp.allclose(a, b, atol=1e-5), ours, whole))
    with pytest.raises(ValueError, match="chunk must be >= 1, got 0"):
        ik.map_tasks(solve, tasks, chunk=0)
    with pytest.raises(ValueError, match="task must be a batch of tasks"):
        ik.map_tasks(solve, jax.tree.map(lambda leaf: leaf[0], tasks))


@pytest.mark.slow
def test_compiled_programs_are_kept_between_commands(compiled_as_users_do, tmp_path):
    """The second process finds on disk what the first one compiled."""
    table = tmp_path / "t.csv"
    table.write_text("a,y\n" + "".join(f"{i},{i % 3}\n" for i in range(12)))
    argv = ["predict", str(table), "--target", "y", "--steps", "2", "--kernel", "linear"]
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    env.pop("JAX_COMPILATION_CACHE_DIR", None)
    code = f"import sys; from icl_krr.cli import main; sys.exit(main({argv!r}))"
    written = []
    for _ in range(2):
        subprocess.run([sys.executable, "-c", code], check=True, env=env, capture_output=True)
        written.append(sorted(p.name for p in (tmp_path / "cache").rglob("*-cache")))
    assert written[0]
    assert written[0] == written[1]
