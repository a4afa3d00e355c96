"""Decoders that are trained stage by stage, the optimiser SOAP, and what ships of them."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import icl_krr as ik
from benchmarks import converged, optimisers
from benchmarks.soap import soap
from icl_krr import experiments
from icl_krr.training import loss_and_gradient

SMALL = {"FIRST": 2, "STAGE": 4, "CHUNK": 2, "GROWTH": 8, "SMALL": 2, "LARGE": 3, "VALIDATION": 16}


def descended(optimiser, weights, slope, steps):
    """The weights after some steps along the gradients of a loss."""

    def step(state, _):
        weights, moments = state
        change, moments = optimiser.update(slope(weights), moments, weights)
        return (optax.apply_updates(weights, change), moments), None

    return jax.lax.scan(step, (weights, optimiser.init(weights)), length=steps)[0][0]


def test_soap_is_adam_in_the_bases_of_the_gradients(x64):
    """In the bases of a gradient of rank one, Adam changes one entry, by the learning rate."""
    rng = np.random.default_rng(0)
    left, right = (rng.standard_normal((2, k)) for k in (4, 3))
    left, right = (each / np.linalg.norm(each, axis=1)[:, None] for each in (left, right))
    outer = jnp.einsum("bi,bj->bij", left, right)
    start = {"matrix": jnp.zeros((2, 4, 3)), "bias": jnp.ones(5), "row": jnp.ones((2, 1, 3))}

    def slope(weights):
        return {"matrix": 5 * outer, "bias": weights["bias"] ** 3, "row": weights["row"] / 7}

    rate = optax.constant_schedule(0.01)
    ours = descended(soap(rate), start, slope, 30)
    adam = descended(optax.adam(rate, b1=0.95, b2=0.95), start, slope, 30)
    for name in ("bias", "row"):
        np.testing.assert_allclose(ours[name], adam[name], atol=1e-12)
    np.testing.assert_allclose(ours["matrix"], -0.3 * outer, atol=1e-6)


def test_the_bases_of_soap_come_nearer_to_the_eigenvectors(x64):
    G = jnp.asarray(np.random.default_rng(1).standard_normal((1, 5, 4)))
    rows, weights, outside = G[0] @ G[0].T, {"w": jnp.zeros_like(G)}, []
    optimiser = soap(optax.constant_schedule(0.1))
    state, update = optimiser.init(weights), jax.jit(optimiser.update)
    for count in range(1, 102):
        _, state = update({"w": G}, state)
        if count in (1, 11, 101):
            turned = state[1][0].left[0].T @ rows @ state[1][0].left[0]
            outside.append(np.linalg.norm(turned - np.diag(np.diag(turned))))
    assert outside[0] > 2 * outside[1] > 20 * outside[2]


def test_the_changes_of_muon_are_orthogonal_and_as_large_as_those_of_adam(x64):
    G = np.random.default_rng(1).standard_normal((2, 8, 4))
    weights = {"stack": jnp.zeros_like(G)}
    optimiser = optimisers.muon(optax.constant_schedule(1.0))
    with jax.numpy_dtype_promotion("standard"):
        change, _ = optimiser.update({"stack": G}, optimiser.init(weights), weights)
    values = np.linalg.svd(change["stack"], compute_uv=False)
    assert np.all(values[:, 0] < 2 * values[:, -1])
    np.testing.assert_allclose(np.mean(np.square(change["stack"]), axis=(1, 2)), 0.04, rtol=0.6)


def test_the_best_rate_of_each_optimiser_is_trained_for_longer(monkeypatch, tmp_path):
    """The excess falls as a power of the CPU time, fastest with the second rate of each."""
    best = {name: rates[1] for name, (_, rates) in optimisers.OPTIMISERS.items()}

    def trained(recipe, folder, minutes, chosen):
        power = -1 if chosen.peak == best[folder.name.partition("-")[0]] else -0.5
        spent = np.array([1.0, 2, 3, minutes + 1])
        both = zip(60 * np.diff(spent, prepend=0), spent**power, strict=True)
        return [{"cpu_seconds": seconds, "excess": excess} for seconds, excess in both]

    monkeypatch.setattr(converged, "trained", trained)
    rows = optimisers.measured(tmp_path)
    last = [optimisers.excess_after(row["stages"], optimisers.LONG) for row in rows]
    assert [row["rate"] for row, end in zip(rows, last, strict=True) if end > 0] == [*best.values()]
    assert np.nanmax(last) == pytest.approx(1 / optimisers.LONG)
    assert optimisers.excess_after(rows[0]["stages"], 2.5) == pytest.approx(2.5**-0.5)


@pytest.fixture
def small(monkeypatch):
    """A decoder of one block, and stages of few updates."""
    for name, value in (SMALL | {"KEPT": (4,)}).items():
        monkeypatch.setattr(converged, name, value)
    jax.clear_caches()  # the program of a chunk holds these numbers
    recipe = converged.recipes()["converged-linear"]
    yield dataclasses.replace(recipe, model=experiments.ModelRecipe("decoder", width=8, depth=1))
    jax.clear_caches()


def test_a_run_goes_on_as_if_it_had_not_stopped(small, tmp_path, monkeypatch):
    def run(folder, last, *chosen):
        with monkeypatch.context() as patch:
            patch.setattr(converged, "ended", lambda _, rows, __: rows and rows[-1]["step"] >= last)
            return converged.trained(small, tmp_path / folder, 1.0, *chosen)

    whole = run("whole", 12)
    assert [row["step"] for row in run("parts", 8)] == [2, 4, 8]
    parts = run("parts", 12)
    assert [(row["step"], row["batch"]) for row in parts] == [(2, 2), (4, 2), (8, 2), (12, 3)]
    assert [row["excess"] for row in whole] == [row["excess"] for row in parts]
    for file in ("model.msgpack", "weights.msgpack"):
        assert (tmp_path / "whole" / file).read_bytes() == (tmp_path / "parts" / file).read_bytes()
    adam = run("adam", 4, converged.Optimiser(optax.adam, 0.01))
    assert abs(adam[0]["excess"] / whole[0]["excess"] - 1) > 1e-3
    # what is read: kept stages, and the last one of a model that needs no further stage
    for name, value in {"RUNS": tmp_path, "GROWTH": 12, "LIMITED": {"parts": 1}}.items():
        monkeypatch.setattr(converged, name, value)
    monkeypatch.setattr(converged, "recipes", lambda: dict.fromkeys(("whole", "parts", "none")))
    kept, last = tmp_path / "whole" / "4", tmp_path / "parts"
    assert [*converged.stages().values()] == [kept, last / "4", last]
    assert [*converged.stages(limited=False)] == ["whole, 4 updates"]
    assert converged.last_stages() == {"whole": kept, "parts": last}
    for place, steps in ((kept, [2, 4]), (last, [2, 4, 8, 12])):
        rows = experiments.from_csv(place / "metrics.csv")
        assert [row["step"] for row in rows] == steps
        assert experiments.load(place).recipe.training.steps == steps[-1]


def test_training_ends_when_a_doubling_helps_by_less_than_a_tenth():
    before = (0, 1024, 8192, 16384, 49152, 65536, 81920, 98304)
    after = [1024, 2048, 16384, 32768, 65536, 81920, 98304, 114688]
    assert [*map(converged.next_end, before)] == after
    rows = [{"step": at, "excess": e} for at, e in ((32768, 2.0), (65536, 1.0), (98304, 0.95))]
    for last, step, ended in ((0.89, 131072, False), (0.91, 131072, True), (0.91, 147456, True)):
        assert converged.converged([*rows, {"step": step, "excess": last}]) == ended
    assert not converged.converged(rows)
    rows = [{"step": 4, "excess": 1.0, "cpu_seconds": seconds} for seconds in (30.0, 36.0)]
    assert [converged.ended("one", rows, minutes) for minutes in (1.1, 1.2)] == [True, False]
    slow = [{"step": step, "excess": 1.0, "cpu_seconds": 0.0} for step in (65536, 131072)]
    assert converged.ended("one", slow)


def test_the_excess_is_the_mean_square_of_the_difference_from_exact_regression(small):
    family = dataclasses.replace(experiments.family(small.task), num_queries=3)
    model = experiments.blank(small, family)
    row, sampling = converged.errors(model, family)
    tasks = experiments.draw_tasks(jax.random.key(51), 16, family)
    kernel, ridge = family.optimal()
    exact = ik.map_tasks(lambda t: ik.solvers.exact(kernel, t, ridge=ridge).prediction, tasks)
    gaps, squares = (
        np.mean(np.asarray(one) ** 2, axis=1)
        for one in (ik.predict_batch(model, tasks) - exact, exact - tasks.y_query)
    )
    assert row["excess"] == pytest.approx(np.mean(gaps) / np.mean(squares), rel=1e-3)
    each = gaps - row["excess"] * squares  # of a ratio, by the delta method
    assert sampling == pytest.approx(1.96 * np.std(each) / 4 / np.mean(squares), rel=1e-3)


@pytest.mark.parametrize(("span", "share"), [(1.0, 0.5), (2 / 3, 0.75)])
def test_the_average_is_that_of_the_last_updates(small, monkeypatch, span, share):
    """With the span 1, of all: here after two chunks of one update each."""
    monkeypatch.setattr(converged, "CHUNK", 1)
    monkeypatch.setattr(converged, "SPAN", span)
    family = experiments.family(small.task)
    first = experiments.blank(small, family)
    once, _ = converged.stage((first, first), family, 0, 0, 1)
    twice, row = converged.stage((first, first), family, 0, 0, 2)
    keys = (jax.random.fold_in(jax.random.key(0), count) for count in (0, 1))
    drawn = (experiments.draw_tasks(key, 2, family) for key in keys)
    losses = map(loss_and_gradient, (first, once[0]), drawn, ("every", "every"))
    assert row["loss"] == pytest.approx(np.mean([loss for loss, _ in losses]), rel=1e-5)
    for one, two, mean in zip(*map(jax.tree.leaves, (once[0], *twice)), strict=True):
        np.testing.assert_allclose(mean, one + share * (two - one), atol=1e-7)


def test_the_learning_rate_rises_and_then_falls_as_an_inverse_root():
    for before, count, part in ((0, 50, 0.5), (0, 100, 1), (converged.FLAT * 4 - 200, 200, 0.5)):
        np.testing.assert_allclose(converged.rate_of(2.0, before, count), part * 2)


def test_a_stage_clips_gradients_and_has_the_learning_rate_of_its_updates():
    before, weights = 4 * converged.FLAT, {"w": jnp.zeros(4)}
    optimiser = converged.Optimiser(optax.sgd, 2.0).start(before)
    state = optimiser.init(weights)
    slopes = ([0.0, 0, 0, 0], [6.0, 8, 0, 0], [0.25, 0, 0, 0])
    for count, (slope, size) in enumerate(zip(slopes, (1, 10, 1), strict=True)):
        change, state = optimiser.update({"w": jnp.asarray(slope)}, state, weights)
        step = converged.rate_of(2.0, before, count) * np.divide(slope, size)
        np.testing.assert_allclose(change["w"], -step, rtol=1e-6)


@pytest.mark.parametrize(("target", "name"), converged.SHIPPED.items())
def test_what_ships_is_the_last_stage(target, name):
    place = converged.last_stages()[name]
    for file in ("recipe.json", "model.msgpack", "metrics.csv"):
        assert (experiments.RUNS / target / file).read_bytes() == (place / file).read_bytes()
