"""The keystone: after every step the model's slots hold the solver's iterates."""

import itertools
import re
from functools import partial
from pathlib import Path

import helpers
import jax
import numpy as np
import pytest
from helpers import CASES, KINDS, cg, draw, gaussian, linear, numpy, relative
from slots import Slots

import icl_krr as ik
from icl_krr import theory
from icl_krr.residual import ROLES

SIZES = list(itertools.product((1, 4, 16), (1, 7, 64), (1, 3)))
ONE, ORDINARY, LONG = (1, 1, 1), (4, 7, 3), (1, 64, 3)
# every kind and one attention of each solver; in the other one, only Jacobi's diagonal is new
OFTEN = {case.solver: name for name, case in reversed(CASES.items()) if not case.tables}
OFTEN = [name for name in CASES if name in (*KINDS, *OFTEN.values(), "jcg-exponential")]
RARELY = [name for name in CASES if name not in OFTEN]
# tables are slow to build: test_tables measures them
OTHERS = [name for name in CASES if name not in KINDS and not CASES[name].tables]
FEW = [
    pytest.param(CASES[name], *size, id=f"{name}-{size}", marks=[pytest.mark.slow] * slow)
    for size, names, slow in (
        (ORDINARY, OFTEN, False),
        (ORDINARY, RARELY, True),
        (ONE, ("ric-gaussian",), False),
        (ONE, [name for name in (*KINDS, *OTHERS) if name != "ric-gaussian"], True),
        (LONG, KINDS, True),
        *((size, ("cg",), True) for size in SIZES[::2] if size != ONE),
    )
    for name in names
]
SETTINGS = ((0, 1e-2), (1, 0.1), (2, 3.0))


@pytest.mark.parametrize(("case", "p", "n", "r"), FEW)
def test_slots_equal_the_oracle_after_every_step(x64, case, p, n, r):
    """To the tolerance, of the slot's largest value; for conjugate gradient, of the iterate's own.

    Inner products amplify rounding from step to step, on spectra that decay fast most of all:
    there only those steps are compared that a change of y by its last digit leaves alone.
    """
    compared = 0
    for seed, ridge in SETTINGS:
        task = draw(seed, p, n, r=r)
        oracle, model = case.oracle(task, ridge, 16), case.build(task, ridge, 16)
        _, cache = numpy(ik.run_with_cache(model, task))
        steps = len(oracle.prediction) - 1
        slots, going = Slots(case, task, ridge, oracle, steps), np.ones(steps + 1, bool)
        if case.sums:
            nudged = task.replace(y=task.y * (1 + 4e-16 * np.sign(np.sin(np.arange(n)))[:, None]))
            other = case.oracle(nudged, ridge, 16)
            for t, state in itertools.product(range(17), case.states):
                going[t:] &= relative(getattr(other, state)[t], getattr(oracle, state)[t]) < 1e-11
        for name in case.states if case.tables else model.layout.states:
            ours = np.asarray(cache[name]).reshape(steps + 1, len(cache[name][0]), -1)
            theirs = slots[name]
            if ours.shape[1] == 1 + n + task.num_queries:
                ours = ours[:, 1:]  # an oracle has no aggregator
                if model.layout[name].at == ROLES and theirs.shape[1] == 1:  # the mean of a sum
                    theirs = np.broadcast_to(theirs / (n + 1), ours.shape)
                elif theirs.shape[1] == n:  # nor features of queries that it changes
                    ours = ours[:, :n]
            theirs = np.broadcast_to(theirs, (steps + 1, *theirs.shape[1:]))
            pairs, least = [(ours[going], theirs[going])], 1e-12 * np.max(np.abs(theirs))
            if case.solver == "conjugate_gradient":  # below the least, exact arithmetic has 0
                pairs += [(a, b) for a, b in zip(*pairs[0], strict=True) if np.any(abs(b) > least)]
            for a, b in pairs:
                assert relative(a, b) < case.tolerance, (name, seed, ridge)
        assert all(np.all(np.isfinite(value)) for value in cache.slots.values())
        if case.tables:
            assert not np.any(cache["overrun"])
        compared += going.sum()
    assert compared >= (2 * min(p, n, 8) + 1 if case.sums else 3)


W = np.array([0.1, 0.2, 0.1])
"""What a token reads of x, with this vector, in place of a number for all tokens."""


def models_with_options(task):
    """Models, with what those of their slots hold that no case has."""
    x, own, C = task.x, task.x @ W, ik.constructions
    steps, ridge, exponential = {"num_features": 3, "steps": 1}, {"ridge": 0.1}, ik.Exponential(3.0)
    numbers = dict.fromkeys(("strength", "step_size", "momentum", "decay"), W)
    yield (
        C.momentum_delta_rule(ik.Linear(), **steps, **numbers, log_gate=-W),
        dict.fromkeys(numbers, own) | {"log_gate": np.cumsum(-own)},
    )
    yield (
        C.kalman_delta_rule(ik.Linear(), **steps, **ridge, process_noise=W, log_gate=-W),
        {"process_noise": own, "squared_gate": np.repeat(np.exp(-2 * own)[:, None], 3, 1)},
    )
    C_i = np.cumsum(np.insert(x[:-1, :, None] * x[:-1, None], 0, 0, axis=0), axis=0).reshape(7, 9)
    prefix = partial(C.prefix_conjugate_gradient, ik.Linear(), **steps, **ridge)
    yield prefix(stores_sums=True), {"C": C_i}
    yield prefix(tokens="interleaved", max_supports=7), {"x_before": x}
    posterior = C.prefix_posterior(ik.Linear(), **steps, **ridge, approximates=exponential)
    squares = np.sum(x**2, axis=1)
    yield posterior, {"missing": np.exp(squares / 3) - squares}
    mixture = ik.Matern52(2.0).mixture(float)
    Z = [helpers.kernel_matrix(kernel, x, x).sum(axis=1) + 0.1 for kernel in mixture.kernels]
    shares = mixture.weights * np.transpose(Z)
    total = shares.sum(axis=1)
    expected = {f"share_{k}": share / total for k, share in enumerate(shares.T)}
    yield C.richardson(ik.Matern52(2.0), **steps, **ridge), {"sink": 0.1 / total, **expected}
    yield ik.compile(cubic, exponential, **steps), {"share": np.full(7, 1 / 8)}


@ik.solver
def cubic(K, y):
    def step(alpha, prediction):
        return {"alpha": alpha + (y @ y) * y, "prediction": prediction + K @ y}

    return {"alpha": 0, "prediction": 0}, step


def test_slots_that_only_options_add(x64, monkeypatch):
    monkeypatch.setattr(ik.Matern52, "nodes", ((0.5, 1.5), (0.3, 0.7)))  # two heads, not six
    task = draw(0, 3, 7)
    task = task.replace(x=np.abs(task.x) / 2)
    for model, expected in models_with_options(task):
        _, cache = ik.run_with_cache(model, task, names=tuple(expected))
        for name, value in expected.items():
            ours = np.asarray(cache[name][-1]).reshape(-1, *value.shape[1:])
            assert relative(ours[len(ours) // 8 :][:7], value) < 1e-12, name


def test_steps_have_as_many_blocks_as_their_row_says_and_no_slot_is_compared_with_nothing(x64):
    compared = {"overrun", "bins"}  # in test_tables and test_posteriors
    declares = r"\b(?:state|share|keep|per_support|accumulate)"
    for _, slots in models_with_options(draw(0, 3)):
        compared |= {*slots}
    for case in helpers.CONSTRUCTIONS:
        if not case.tables:
            build = partial(case.build, draw(0), 0.1, 4)
            # nothing but the structure is asked for; landmarks and features are drawn as numbers
            model = jax.eval_shape(build) if case.sketch is None else build()
            assert model.blocks_per_step == case.blocks_per_step, case.name
            assert model.depth == len(model.weights.prologue) + model.steps * case.blocks_per_step
            compared |= {*model.layout.states}
    for path in Path(ik.__file__).with_name("constructions").rglob("*.py"):
        names = re.findall(declares + r'\((?:m, )?(?:self\.named\()?"(\w+)"', path.read_text())
        assert {*names} <= {*compared}, path


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(c.name, marks=[pytest.mark.slow] * (c.name != "cg"))
        for c in helpers.CONSTRUCTIONS
        if c.solver.endswith("conjugate_gradient") and "alpha" in c.states
    ],
)
def test_the_first_eight_steps_on_the_default_task(x64, name):
    """And after them two correct runs differ, but their errors lag by at most two steps.

    In the A-norm, in which they fall. The error of the prediction may rest and jump: there
    three steps have been seen between two correct runs.
    """
    case, ridge = CASES[name], 0.1 * np.exp(2.0)
    if case.kernel is gaussian:
        case, ridge = case._replace(kernel=lambda task: ik.Gaussian(0.5**0.5)), 0.1
    elif case.kernel is not linear:
        projection = np.eye(2) if case.kernel is helpers.projected else None
        case = case._replace(kernel=lambda task: ik.Exponential(0.5, projection))
    config = ik.tasks.GaussianProcess(ik.Exponential(0.5), inputs="sphere", num_queries=16)
    for seed in range(2):
        task = numpy(ik.tasks.sample(jax.random.key(seed), config))
        oracle = case.oracle(task, ridge, 36)
        _, cache = numpy(ik.run_with_cache(case.build(task, ridge, 36), task))
        steps = 1 + (2 if case.kernel is linear else 8)
        for state in case.states:
            assert relative(cache[state][:steps], getattr(oracle, state)[:steps]) < 1e-9, state
        A = helpers.kernel_matrix(case.sketched_kernel(task), task.x, task.x) + ridge * np.eye(64)
        ours, theirs = (
            np.asarray(theory.energy_norm(A, alpha - np.linalg.solve(A, task.y)[None]))
            for alpha in (cache["alpha"], oracle.alpha)
        )
        assert theirs[-1] < 1e-12 * theirs[0]
        assert np.all(ours[2:] < 1.1 * theirs[:-2] + 1e-12 * theirs[0])
        exact = np.asarray(case.exact(task, ridge))
        assert relative(cache["prediction"][-1], exact) < 1e-12


def test_the_gap_of_conjugate_gradient_falls_at_the_rate_of_theory(x64):
    """In the A-norm of alpha's error, for a condition number of 1e6."""
    case, task = CASES["cg-exponential"], draw(5, 2, 24, q=4)
    sigma = numpy(theory.eigenvalues(case.sketched_kernel(task), task))
    ridge = float((sigma[-1] - 1e6 * sigma[0]) / (1e6 - 1))
    _, cache = numpy(ik.run_with_cache(case.build(task, ridge, 200), task))
    A = helpers.kernel_matrix(case.sketched_kernel(task), task.x, task.x) + ridge * np.eye(24)
    error = np.asarray(cache["alpha"]) - np.linalg.solve(A, task.y)
    norms = np.sqrt(np.einsum("ti,ij,tj->t", error, A, error))
    bound = 2 * ((1e3 - 1) / (1e3 + 1)) ** np.arange(201)
    assert np.all(norms <= norms[0] * bound * (1 + 1e-9) + 1e-9 * norms[0])


def test_a_logit_that_no_data_reaches(x64):
    """The aggregator stays out of the average where every support is far below it."""
    task = draw(0, p=2, n=5)
    task = task.replace(x=20 * np.abs(task.x), x_query=-20 * np.abs(task.x_query))
    kernel = ik.Exponential(temperature=0.5)
    model = ik.constructions.nadaraya_watson(kernel, num_features=2)
    expected = numpy(ik.solvers.nadaraya_watson(kernel, task).prediction)
    assert np.all(np.abs(expected) > 1e-3)
    assert relative(ik.predict(model, task), expected) < 1e-9


def test_float32_underflow_shows_in_the_residual():
    """The finding: y of 1e-17 has an r.r that float32 cannot hold; alpha stays 0, r stays y.

    A model whose slots are merged into one stream has no units of y in which it could run.
    """
    task = draw(0)
    task = task.replace(y=task.y * 1e-17, y_query=None)
    prediction, cache = numpy(ik.run_with_cache(helpers.dense(cg(task, 0.1, 8)), task))
    assert not np.any(prediction)
    assert np.array_equal(cache["r"][-1], task.y)


@pytest.mark.parametrize("seed", range(8))
def test_float32_prediction_at_moderate_condition(seed):
    """Within 1e-4 of exact KRR (in float64) at cond <= 1e3, in the arithmetic of run time."""
    task = draw(seed, p=6, n=40, q=8)
    low, high = numpy(ik.spectral_bounds(ik.Linear(), task, ridge=0.2))
    assert high / low <= 1e3
    prediction = numpy(ik.predict(cg(task, 0.2, 24), task))
    assert prediction.dtype == np.float32
    assert relative(prediction, helpers.numpy_exact(task.x, task.y, task.x_query, 0.2)) < 1e-4
