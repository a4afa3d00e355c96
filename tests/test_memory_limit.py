"""What does not fit into memory is refused from its shapes, before anything is compiled."""

import dataclasses
import logging
import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import in_tiles, often
from jax.sharding import AbstractMesh

import icl_krr as ik
from icl_krr import cli
from icl_krr._core import memory_limit
from icl_krr._core.devices import Placement
from icl_krr.cli import _program
from icl_krr.experiments import draw_tasks  # noqa: F401
from icl_krr.tabular import build_model  # noqa: F401
from icl_krr.transformer._hook_points import Request
from icl_krr.transformer._run_plan import prepare_run

GAUSSIAN, KEY = ik.Gaussian(), jax.random.key(0)
N = 200_000
"""Supports whose kernel matrix has 160 GB."""


def empty(n=N, q=1, p=1):
    return ik.Task(x=np.zeros((n, p), "f"), y=np.zeros(n, "f"), x_query=np.zeros((q, p), "f"))


TASK, SHORT, TINY = empty(), empty(1000), empty(4)
ARGUMENTS = GAUSSIAN, TASK
BATCH = jax.tree.map(lambda leaf: leaf[None], TASK)
TRAINED = ik.init(KEY, ik.Architecture(num_features=1, width=4, heads=2, depth=2, streaming=False))
CG = ik.constructions.conjugate_gradient(ik.Linear(), num_features=1, ridge=0.1, steps=4)
whole = partial(in_tiles, streaming=False)
RICHARDSON = whole(ik.constructions.richardson(GAUSSIAN, num_features=1, ridge=0.1, steps=2))
LONG = CG.replace(steps=10**9)
STREAM = {"stream": np.zeros((N + 2, 4), "f"), "one": np.zeros((N + 2, 1), "f")}

solvers, probes = ik.solvers, ik.probes
FAMILY, training = ik.tasks.LinearRegression(num_features=1, num_supports=8), ik.training
CALLS = {
    "solvers.exact(*ARGUMENTS, ridge=0.1)": "regression 480",
    "solvers.log_marginal_likelihood(*ARGUMENTS, ridge=0.1)": "regression 320",
    "solvers.conjugate_gradient(*ARGUMENTS, ridge=0.1, steps=1)": "regression 160",
    "solvers.richardson(GAUSSIAN, SHORT, ridge=0.1, steps=10**9)": "regression 1.2e+04",
    "solvers.delta_rule(ik.Linear(), SHORT, step_size=0.1, steps=10**6)": "causal regression 12",
    "solvers.momentum_delta_rule(ik.Linear(), SHORT, step_size=1, momentum=0, steps=10**9)": (
        "causal regression 12"
    ),
    "solvers.prefix_conjugate_gradient(ik.Linear(), SHORT, ridge=0.1, steps=10**6)": (
        "causal regression 12"
    ),
    "ik.init(KEY, ik.Architecture(num_features=1, width=10**6, depth=3, heads=1))": (
        "weights 1.44e+05"
    ),
    "solvers.nadaraya_watson(GAUSSIAN, empty(q=N))": "regression 160",
    "solvers.derivative_in_supports(*ARGUMENTS, ridge=0.1)": "regression 480",
    "ik.check(CG, TASK)": "regression 960",
    "GAUSSIAN(TASK.x, TASK.x)": "kernel matrix 320",
    "ik.Gaussian.typical_bandwidth(TASK.x)": "kernel matrix 320",
    "ik.spectral_bounds(*ARGUMENTS, ridge=0.1)": "kernel matrix 320",
    "ik.nystrom(GAUSSIAN, TASK.x, ridge=0.1, rank=N)": "kernel matrix 320",
    "ik.constructions.conjugate_gradient(ik.Polynomial(4), num_features=64, ridge=0.1, steps=2)": (
        "weights of the features 12.8"
    ),
    "training.check(TRAINED, FAMILY, training.Training(batch=10**9))": "1000000000 tasks 72",
    "training.check(TRAINED, FAMILY, training.Training(validation=10**9))": "1000000000 tasks 72",
    "training.reference(FAMILY, KEY, 10**9)": "1000000000 tasks 72",
    "build_model('richardson', GAUSSIAN, SHORT, 0.1, 10**9)": "a run of 1000000000 steps 1.2e+04",
    "draw_tasks(KEY, 10**9, FAMILY)": "1000000000 tasks 72",
    "ik.predict(TRAINED, TASK)": "run 160",
    "ik.predict(RICHARDSON, TASK)": "run 160",
    "ik.predict_batch(TRAINED, BATCH)": "run 160",
    "jax.grad(lambda m: ik.predict(m, TASK).sum())(TRAINED)": "run 160",
    "ik.run_with_cache(whole(LONG), TINY)": "run 52",
    "ik.run_with_cache(LONG, TINY)": "run 52",
    "ik.run_with_cache(LONG, TINY, everything=True)": "run 6.32e+03",
    "ik.run_with_hooks(CG, TASK, {'blocks.*.heads.0.pattern': lambda v, at: v})": "run 160",
    "ik.resume(TRAINED, TASK, STREAM, 1)": "run 160",
    "ik.operand_bounds(RICHARDSON, TASK)": "run 160",
    "probes.influence(CG, TASK)": "run 160",
    "probes.streams(TRAINED, TASK)": "run 160",
    "probes.ablate(TRAINED, BATCH, probes.sites(TRAINED)[:1])": "run 160",
}
"""Calls, and what is too large in them where 1 GB is free, with its size in GB."""

OURS = (
    "solve condition leave_one_out_errors evidence iterate descend smooth evaluate evaluate_batch"
)


@pytest.fixture
def little(monkeypatch):
    """A machine on which 1 GB is free."""
    monkeypatch.setattr(memory_limit, "free_bytes", lambda: 10**9)


@pytest.mark.parametrize("call", CALLS)
def test_what_does_not_fit_is_refused_before_it_is_compiled(call, little, caplog):
    what, size = CALLS[call].rsplit(" ", 1)
    message = f"{what} must fit into memory, but needs {size} GB and only 1 GB are free; use "
    message += "fewer tokens, tasks or outputs at once" if what == "run" else ""
    with (
        caplog.at_level(logging.WARNING),
        jax.log_compiles(),
        pytest.raises(MemoryError, match=f"(?m)^{re.escape(message)}"),
    ):
        eval(call, globals())
    messages = [record.getMessage().replace("jit(_", "jit(") for record in caplog.records]
    assert not [line for line in messages for name in OURS.split() if f"jit({name})" in line]


def test_a_program_that_may_never_run_is_not_refused(little):
    solve = lambda task: solvers.exact(GAUSSIAN, task, ridge=0.1).alpha  # noqa: E731
    assert jax.eval_shape(solve, TASK).shape == (N,)
    assert jax.eval_shape(ik.predict, TRAINED, TASK).shape == (1,)


def test_each_device_needs_memory_for_its_own_supports_and_for_no_pattern(little):
    place = Placement(AbstractMesh((64,), ("context",)), context=("context",))

    def divided(*run):
        return dataclasses.replace(prepare_run(*run, copies=0), place=place)

    divided(TRAINED, TASK).check_memory()
    with pytest.raises(MemoryError, match=r"needs 125 GB .* over devices \(mesh=\)"):
        divided(CG.replace(steps=10**7), TASK, Request(names=("alpha",))).check_memory()


@pytest.mark.slow
@pytest.mark.parametrize("model", [TRAINED, RICHARDSON, CG], ids=["trained", "richardson", "cg"])
@pytest.mark.parametrize("everything", [False, True])
def test_the_estimate_of_a_run_is_a_lower_bound_of_its_size(model, everything, monkeypatch):
    task, estimates = empty(1200), []
    monkeypatch.setattr(memory_limit, "check", lambda _, size, *rest: estimates.append(4 * size))
    prepare_run(model, task, Request(keep=everything))
    assert 0.05 < estimates[0] / ik.memory(model, task, everything=everything).peak < 1.01


SOLVED = {"exact": {}, "leave_one_out": {}, "gradient_descent": {"steps": 256, "step_size": 0.1}}


@often("name", {*SOLVED} - {"leave_one_out"}, SOLVED)
def test_an_estimate_is_of_the_size_of_what_is_allocated(name, monkeypatch):
    estimates, task = [], jax.tree.map(jnp.asarray, empty(256))
    monkeypatch.setattr(memory_limit, "check", lambda _, size, *rest: estimates.append(4 * size))
    solve = partial(getattr(solvers, name), GAUSSIAN, ridge=0.1, **SOLVED[name])
    solve(task)
    m = jax.jit(solve).lower(task).compile().memory_analysis()
    allocated = m.temp_size_in_bytes + m.output_size_in_bytes + m.argument_size_in_bytes
    assert 0.6 < max(estimates) / allocated < 2.1


def test_errors_of_the_device_are_one_line_at_the_command_line(monkeypatch, capsys):
    words = {
        "RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.\nmore": "memory is exhausted (",
        "INTERNAL: Error dispatching computation: Out of memory": "memory is exhausted (",
        "INTERNAL: no device": "the device failed (INTERNAL: no device); try again",
    }
    for message, start in words.items():

        def fail(settings, message=message):
            raise jax.errors.JaxRuntimeError(message)

        monkeypatch.setattr(_program, "run", fail)
        assert cli.main(["demo"]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("icl-krr: error: " + start)


def test_a_table_that_does_not_fit_is_refused_in_one_line(tmp_path, little, capsys):
    table = tmp_path / "t.csv"
    table.write_text("a,y\n" + "1,2\n" * 8001)
    assert cli.main(["predict", str(table), "--target", "y", "--supports", "8000"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "exact KRR must fit into memory, but needs 1.54 GB and only 1 GB" in line
