"""The published error profile: exact where it can be, and modest where it says nothing."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import icl_krr as ik
from benchmarks.records import RUNS
from icl_krr.cli import main
from icl_krr.experiments.identify import _error_profile, _profile_paths, _profile_tables
from icl_krr.probes import CandidateFit, layerwise
from icl_krr.tasks import map_tasks

KERNEL, RIDGE, STEPS = ik.Gaussian(0.8), 0.1, 3
NAMES = ("gradient_descent", "conjugate_gradient")
FAMILY = ik.tasks.GaussianProcess(KERNEL, RIDGE, num_features=1, num_supports=6, num_queries=3)
SIZE = {"num_features": 1, "ridge": RIDGE, "steps": STEPS}


@pytest.fixture(scope="module")
def protocol():
    with jax.enable_x64(True), pytest.MonkeyPatch.context() as patch:
        patch.setattr(_profile_paths, "VALUES", 48)
        for null in ("gradient flow", "falling ridge"):  # the slow test has them
            patch.delitem(_profile_paths.NULLS, null)
        keys = jax.random.split(jax.random.key(0), (2, 12))
        both = [jax.vmap(ik.tasks.sample, in_axes=(0, None))(key, FAMILY) for key in keys]
        both = [_error_profile.profile_targets(tasks, KERNEL, RIDGE) for tasks in both]
        exact_values = _error_profile.exact_hyperparameters(KERNEL, RIDGE)
        less = {"candidates": NAMES, "search": _error_profile.Search(16, 2)}
        yield _error_profile.Protocol(both, ("gaussian",), STEPS + 1, exact_values, **less)


def read(protocol, function):
    with jax.enable_x64(True):
        answers = jax.jit(partial(map_tasks, function))
        both = protocol.fitted, protocol.scored
        return protocol.read([answers(one.tasks) for one in both])


def exact(share, task):
    """Shares of exact regression: no solver runs."""
    return share[:, None] * ik.solvers.exact(KERNEL, task, ridge=RIDGE).prediction[None]


@pytest.mark.parametrize("name", NAMES)
def test_the_solver_that_runs_is_named_from_its_own_prediction(protocol, name):
    """Without a probe or noise its errors are exactly its own, for every measure and alignment."""
    size = {"step_size": 0.3} if name == "gradient_descent" else {}
    model = getattr(ik.constructions, name)(KERNEL, **SIZE, **size)
    for reading in read(protocol, partial(layerwise, model)).readings:
        assert reading.nearest.name == name
        assert reading.nearest.distance < 1e-4
        assert not reading.tied
        assert reading.nearest.fit.alignment == (1, 2, 3)


@pytest.fixture(scope="module")
def shares(protocol):
    return read(protocol, partial(exact, jnp.array([0.0, 0.4, 0.7, 0.9])))


def test_a_model_that_runs_no_solver_is_nearest_to_a_null(shares):
    for reading in shares.readings:
        assert reading.candidates[0].name == "growing share"
        assert "growing share" in reading.tied
        assert "not distinguishable" in reading.verdict


def test_curves_are_errors_and_distances_in_log10(protocol, shares):
    with jax.enable_x64(True):
        truth = np.asarray(protocol.scored.truth)
    np.testing.assert_allclose(10 ** shares.curves["error"][0], np.mean(truth**2), rtol=1e-9)
    np.testing.assert_allclose(10 ** shares.curves["gap"], [1, 0.6, 0.3, 0.1], rtol=1e-9)


def test_tables_and_record_have_every_candidate(shares):
    every = {*NAMES, *_profile_paths.NULLS}
    records = _profile_tables.record(shares)["readings"]
    for reading, record in zip(shares.readings, records, strict=True):
        _, lines = _profile_tables.reading_table(reading)
        assert {line[0] for line in lines} == every
        assert {one["candidate"] for one in record["candidates"]} == every
    findings = _error_profile.ProfileFindings(shares, None, {"exact": 1.0}, KERNEL, RIDGE)
    assert [row["layer"] for row in _profile_tables.layer_rows(findings)] == [0, 1, 2, 3]
    assert set(_profile_tables.panels(findings, "error")) == {"layer (1:1)", "layer (monotone)"}


def test_a_special_case_that_is_as_near_is_named():
    """Heavy ball without momentum is gradient descent."""
    rival = _error_profile.ProfileCandidate(
        CandidateFit("heavy_ball", "gaussian", {}, (1,), 0.0),
        0.01, (0.0, 1.0), 1.0, True, np.zeros(1),
    )  # fmt: skip
    special = rival._replace(fit=rival.fit._replace(candidate="gradient_descent"), distance=0.0105)
    reading = _error_profile.ErrorReading("error", "1:1", (rival, special))
    assert reading.nearest.name == "gradient_descent"
    assert reading.tied == ()
    apart = _error_profile.ErrorReading("error", "1:1", (rival, special._replace(distance=0.02)))
    assert apart.nearest.name == "heavy_ball"


@pytest.mark.slow
def test_the_command_writes_tables_and_a_figure(tmp_path, monkeypatch):
    small = partial(_error_profile.Protocol, candidates=NAMES, search=_error_profile.Search(32, 2))
    monkeypatch.setattr(_error_profile, "Protocol", small)
    sizes = ["--tasks", "4", "--probe-tasks", "16", "--num-queries", "2", "--seeds", "1"]
    argv = ["identify", str(RUNS / "linear-encoder"), "--protocol", "error-profile", *sizes]
    assert main([*argv, "--out", str(tmp_path)]) == 0
    expected = {"identify.json", "identify.md", "layers.csv", "profile.png", "profile.svg"}
    assert {path.name for path in tmp_path.iterdir()} == expected
