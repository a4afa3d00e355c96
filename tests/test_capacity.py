"""What does not fit into memory is refused from its shapes, before anything is compiled."""

import dataclasses
import logging
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import often
from jax.sharding import AbstractMesh

import icl_krr as ik
from icl_krr import capacity, cli
from icl_krr.cli import program
from icl_krr.devices import Placement
from icl_krr.experiments.shared.draws import draw_tasks  # noqa: F401
from icl_krr.kernels.algebra import outer  # noqa: F401
from icl_krr.transformer import memory
from icl_krr.transformer.admission import admit
from icl_krr.transformer.evaluate import Request

GAUSSIAN, KEY = ik.Gaussian(), jax.random.key(0)
N = 200_000
"""Supports whose kernel matrix has 160 GB."""


def empty(n=N, q=1, p=1):
    return ik.Task(x=np.zeros((n, p), "f"), y=np.zeros(n, "f"), x_query=np.zeros((q, p), "f"))


def whole(model):
    return model.replace(spec=dataclasses.replace(model.spec, streaming=False))


TASK, SHORT, TINY = empty(), empty(1000), empty(4)
ARGUMENTS = GAUSSIAN, TASK
BATCH = jax.tree.map(lambda leaf: leaf[None], TASK)
TRAINED = ik.init(KEY, ik.Architecture(num_features=1, width=4, heads=2, depth=2, streaming=False))
CG = ik.constructions.conjugate_gradient(ik.Linear(), num_features=1, ridge=0.1, steps=4)
RICHARDSON = whole(ik.constructions.richardson(GAUSSIAN, num_features=1, ridge=0.1, steps=2))
LONG = CG.replace(steps=10**9)
STREAM = {"stream": np.zeros((N + 2, 4), "f"), "one": np.zeros((N + 2, 1), "f")}

solvers, theory, sketches, tasks = ik.solvers, ik.theory, ik.sketches, ik.tasks
FAMILY, training = tasks.LinearRegression(num_features=1, num_supports=8), ik.training
TABLE = [
    line.rsplit(" => ", 1) for line in Path(__file__).with_suffix(".txt").read_text().splitlines()
]
"""Calls, and how they are refused where 1 GB is free."""

OURS = "solve condition held_out_errors evidence iterate descend smooth evaluate evaluate_batch"


@pytest.fixture
def little(monkeypatch):
    """A machine on which 1 GB is free."""
    monkeypatch.setattr(capacity, "free", lambda device: 10**9)


@pytest.mark.parametrize(("call", "sentence"), TABLE)
def test_what_does_not_fit_is_refused_before_it_is_compiled(call, sentence, little, caplog):
    with (
        caplog.at_level(logging.WARNING),
        jax.log_compiles(),
        pytest.raises(MemoryError, match=f"(?m)^{re.escape(sentence)}$"),
    ):
        eval(call, globals())
    compiled = [record.getMessage() for record in caplog.records]
    assert not [line for line in compiled for own in OURS.split() if f"jit({own})" in line]


def test_a_program_that_may_never_run_is_not_refused(little):
    solve = lambda task: solvers.exact(GAUSSIAN, task, ridge=0.1).alpha  # noqa: E731
    assert jax.eval_shape(solve, TASK).shape == (N,)
    assert jax.eval_shape(ik.predict, TRAINED, TASK).shape == (1,)


def test_copies_and_derivatives_are_seen_through_transformations():
    seen = []

    def look(x):
        seen.append(capacity.reach(x))
        return jnp.sum(x)

    x = jnp.ones((3, 2))
    for transformed in (
        look,
        jax.grad(look),
        jax.vmap(look),
        jax.vmap(jax.grad(look)),
        jax.jit(look),
        jax.jit(jax.grad(look)),
    ):
        transformed(x)
    assert [tuple(each) for each in seen] == [
        (1, False),
        (1, True),
        (3, False),
        (3, True),
        (0, False),
        (0, True),
    ]


def test_each_device_needs_memory_for_its_own_supports_and_for_no_pattern(little):
    place = Placement(AbstractMesh((64,), ("context",)), context=("context",))

    def divided(*run):
        return dataclasses.replace(admit(*run), place=place)

    with pytest.raises(MemoryError, match="320 GB"):
        admit(TRAINED, TASK).check_memory()
    divided(TRAINED, TASK).check_memory()
    one, each = admit(CG, TASK).least_numbers(), divided(CG, TASK).least_numbers()
    assert abs(each * 64 / one - 1) < 1e-3
    with pytest.raises(MemoryError, match=r"125 GB .* over more devices \(mesh=\)"):
        divided(CG.replace(steps=10**7), TASK, Request(names=("alpha",))).check_memory()


@pytest.mark.slow
@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("model", [TRAINED, RICHARDSON, CG], ids=["trained", "richardson", "cg"])
def test_the_estimate_of_a_run_is_a_lower_bound_of_the_right_size(model, gradient):
    task = empty(1200)
    least = 4 * admit(model, task).least_numbers(gradient)
    assert 0.4 < least / memory(model, task, gradient=gradient).peak < 1.01


ALLOCATING = {
    "exact": lambda task: solvers.exact(GAUSSIAN, task, ridge=0.1),
    "leave_one_out": lambda task: solvers.leave_one_out(GAUSSIAN, task, ridge=0.1),
    "likelihood": lambda task: solvers.log_marginal_likelihood(GAUSSIAN, task, ridge=0.1),
    "gradient_descent": lambda task: solvers.gradient_descent(
        GAUSSIAN, task, ridge=0.1, steps=256, spectrum=(1.0, 10.0)
    ),
    "gradient_descent_plus_plus": lambda task: solvers.gradient_descent_plus_plus(
        ik.Linear(), task, steps=16, step_size=0.1, curvature=0.1
    ),
    "newton_schulz": lambda task: solvers.newton_schulz(
        ik.Linear(), task.replace(x=task.x.T, y=task.y[:1], x_query=task.x.T),
        ridge=0.1, steps=5, spectrum=(0.1, 1.0),
    ),
    "derivative": lambda task: solvers.derivative_in_supports(GAUSSIAN, task, ridge=0.1),
    "derivative of a kernel": lambda task: GAUSSIAN.derivative_in_x(task.x, task.x),
    "rank_correlation": lambda task: theory.rank_correlation(task.y, task.x[:, 0]),
    "nystrom": lambda task: ik.nystrom(GAUSSIAN, task.x, ridge=0.1, rank=256),
}  # fmt: skip


@often("name", {*ALLOCATING} - {"derivative"}, ALLOCATING)
def test_an_estimate_is_of_the_size_of_what_is_allocated(name, monkeypatch):
    seen, task = [], jax.tree.map(jnp.asarray, empty(256))

    def check(what, numbers, like, mend=""):
        seen.append(4 * numbers * capacity.reach(like).copies)  # 0 inside of a jitted function

    monkeypatch.setattr(capacity, "check", check)
    ALLOCATING[name](task)
    found = jax.jit(ALLOCATING[name]).lower(task).compile().memory_analysis()
    allocated = found.temp_size_in_bytes + found.output_size_in_bytes + found.argument_size_in_bytes
    assert 0.6 < max(seen) / allocated < 2.1


def test_errors_of_the_device_are_one_line_at_the_command_line(monkeypatch, capsys):
    words = {
        "RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.\nmore": "memory is exhausted (",
        "INTERNAL: Error dispatching computation: Out of memory": "memory is exhausted (",
        "INTERNAL: no device": "the device failed (INTERNAL: no device); try again",
    }
    for message, start in words.items():

        def fail(settings, message=message):
            raise jax.errors.JaxRuntimeError(message)

        monkeypatch.setattr(program, "run", fail)
        assert cli.main(["demo"]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("icl-krr: error: " + start)


def test_a_table_that_does_not_fit_is_refused_in_one_line(tmp_path, little, capsys):
    table = tmp_path / "t.csv"
    table.write_text("a,y\n" + "1,2\n" * 8001)
    assert cli.main(["predict", str(table), "--target", "y", "--supports", "8000"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "exact KRR must fit into memory, but needs 1.54 GB and only 1 GB" in line
