"""The work of one step: against counts by hand and against the compiler's own count."""

import re

import jax
import numpy as np
import pytest
from helpers import CASES, draw, equations, of_random_weights
from jax.extend.core import jaxpr_as_fun
from jax.sharding import AbstractMesh

import icl_krr as ik
from icl_krr._core.devices import Placement
from icl_krr.transformer import step_cost, step_sent
from icl_krr.transformer._evaluate import evaluate_task
from icl_krr.transformer._run_plan import prepare_run

T, K, P = 11, 8, 4  # tokens, tokens before the queries, and features of `draw(0)`
STEPS = 13  # the length of no other loop
ENCODER = {"num_features": P, "width": 8, "depth": STEPS, "heads": 2}


def by_hand_gradient_descent():
    head = 2 * P + 1 + 4 * P + 1  # reads of x, x and r; K r = X (X^T r); the sum with K_r
    units = 2 + 2 + 6  # alpha, prediction, r (a product); that K_r becomes 0 is free
    channels = (P + 6) + 4 - 1  # all but y are read, and four of them are written
    return T * (head + units), 4 * (T * channels + 8), 0


def by_hand_nadaraya_watson():
    """The pattern is computed before the step: values, their weighted sums, and one addition."""
    weights = 2 * (P + 2) ** 2 + 1  # queries and keys have P + 2 channels
    return 2 * T + 2 * T * K, 4 * (3 * T + T * K + weights), 0


def by_hand_encoder():
    d, hidden = 8, 32
    biased = lambda rows, columns: (2 * rows + 3) * columns  # noqa: E731
    token = 3 * biased(d, d) + biased(d, hidden) + (2 * d + 1) * d + (2 * hidden + 1) * d + 3 * d
    weights = 4 * d * d + 3 * d + 2 * hidden * d + hidden + d + 4 * d
    return T * token + 4 * d * T * K, 4 * (T * (d + d) + 1 + weights), 2 * T * K


@pytest.mark.parametrize(
    ("model", "by_hand"),
    [
        (lambda task: CASES["gd"].build(task, 0.5, STEPS), by_hand_gradient_descent),
        (lambda task: CASES["nw-gaussian"].build(task, 0.5, 1), by_hand_nadaraya_watson),
        (lambda task: of_random_weights(**ENCODER), by_hand_encoder),
    ],
    ids=["gd", "nw", "encoder"],
)
def test_counts_by_hand(model, by_hand):
    task = draw(0)
    assert step_cost(model(task), task) == by_hand()


PLACE = Placement(AbstractMesh((4,), ("context",)), context=("context",))


def test_each_device_does_the_work_of_its_supports_for_the_keys_of_all_and_sends_them():
    task, part = draw(0, n=12, q=2), draw(0, n=3, q=2)
    linear, encoder = CASES["gd"].build(task, 0.5, STEPS), of_random_weights(**ENCODER)
    assert step_cost(linear, task, PLACE) == step_cost(linear, part)
    tokens, keys_of_others = 1 + 3 + 2, 3 * (1 + 3)
    more = step_cost(encoder, task, PLACE).flops - step_cost(encoder, part).flops
    assert more == 4 * 8 * tokens * keys_of_others
    assert step_sent(linear, task, PLACE) == (4 * P, 1)  # the state X^T r
    keys, both_heads = 1 + 3, 2 * (4 + 4 + 1)  # keys, values and ones
    passed = 4 * keys * both_heads + keys
    assert step_sent(encoder, task, PLACE) == (4 * 8 + 4 * passed, 1 + 4 * 3)
    assert step_sent(encoder, task, None) == (0, 0)


def compilers_count(model, task):
    """FLOPs and bytes of the body of the loop over the steps."""
    program = jax.make_jaxpr(lambda model, task: evaluate_task(model, task)[0])(model, task)
    loops = equations(program.jaxpr, "scan")
    (steps,) = (loop for loop in loops if loop.params["length"] == STEPS)
    body = steps.params["jaxpr"]
    shapes = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in body.in_avals]
    lowered = jax.jit(jaxpr_as_fun(body)).lower(*shapes)
    return lowered.cost_analysis()["flops"], lowered.compile().cost_analysis()["bytes accessed"]


@pytest.mark.parametrize("name", ["cg", "cg-exponential", "ric-gaussian", "encoder"])
def test_counts_are_those_of_the_compiler(name):
    """It also counts functions of one number, and every value between two of its operations."""
    task = draw(0, n=64, p=8)
    if name == "encoder":
        model = of_random_weights(num_features=8, width=32, depth=STEPS)
    else:
        model = CASES[name].build(task, 0.5, STEPS)
    flops, moved = compilers_count(model, task)
    ours = step_cost(model, task)
    assert 0.97 <= flops / ours.flops < 1.4
    assert 0.97 <= moved / ours.bytes < 20


def test_a_long_run_is_announced_before_it_starts(caplog):
    x = np.zeros((300_000, 1), "f4")
    model = ik.constructions.conjugate_gradient(ik.Gaussian(), num_features=1, ridge=1.0, steps=8)
    for task in (long := ik.Task(x, x[:, 0], x[:1])), ik.Task(x[:9000], x[:9000, 0], x[:1]):
        prepare_run(model, task)
    jax.eval_shape(lambda task: ik.predict(model, task), long)
    [record] = caplog.records
    said = re.match(r"this run takes about (\d+) minutes on two .*: 8 steps", record.getMessage())
    assert 600 / 60 < int(said[1]) < 12_000 / 60


def test_the_compiler_counts_each_loop_once():
    task = draw(0)
    few, many = (ik.memory(CASES["gd"].build(task, 0.5, steps), task) for steps in (3, 300))
    assert 0 < few.flops == many.flops
    assert few.moved > few.arguments + few.results
