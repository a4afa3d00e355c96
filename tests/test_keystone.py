"""The keystone: after every step the model's slots hold the solver's iterates."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import CONSTRUCTIONS, cg, cg_oracle, draw, numpy_exact, relative

import icl_krr as ik

SIZES = list(itertools.product((1, 4, 16), (1, 7, 64), (1, 3)))
SETTINGS = ((0, 1e-2), (1, 0.1), (2, 3.0))


@pytest.mark.parametrize("case", CONSTRUCTIONS, ids=lambda case: case.name)
@pytest.mark.parametrize(("p", "n", "r"), SIZES)
def test_slots_equal_the_oracle_after_every_step(x64, case, p, n, r):
    """To 1e-9 of the slot's largest value, wherever the residual is above 1e-8 of y."""
    for seed, ridge in SETTINGS:
        task = draw(seed, p, n, r=r)
        oracle = case.oracle(task, ridge, 16)
        _, cache = ik.run_with_cache(case.build(task, ridge, 16), task)
        going = np.ones(oracle.prediction.shape[0], bool)
        if "r" in case.states:
            norms = np.linalg.norm(oracle.r, axis=1).max(axis=1)
            going = norms > 1e-8 * norms[0]
        for state in case.states:
            ours, theirs = cache[state], getattr(oracle, state)
            assert relative(ours[going], theirs[going]) < 1e-9, (state, seed, ridge)


@pytest.mark.parametrize(("p", "n", "r"), SIZES)
def test_every_iterate_before_rounding_takes_over(x64, p, n, r):
    """To 1e-9 of the iterate itself, over the steps on which float64 can be trusted that far.

    Conjugate gradient amplifies its own rounding: at p = 16 any float64 run is off by more
    than 1e-9 of r after 16 steps. An extended-precision run says where that begins.
    """
    compared = 0
    for seed, ridge in SETTINGS:
        task = draw(seed, p, n, r=r)
        oracle = cg_oracle(task, ridge, 16)
        exact = [value.astype(float) for value in extended(task, ridge, 16)]
        _, cache = ik.run_with_cache(cg(task, ridge, 16), task)
        trusted = [True] * r
        for t, o in itertools.product(range(1, 17), range(r)):
            sizes = [np.linalg.norm(true[t, :, o]) for true in exact]
            pairs = [(cache[s][t, :, o], getattr(oracle, s)[t, :, o]) for s in ("alpha", "r", "p")]
            off = [np.linalg.norm(b - a[t, :, o]) for a, (_, b) in zip(exact, pairs, strict=True)]
            trusted[o] &= all(e <= 1e-11 * size for e, size in zip(off, sizes, strict=True))
            if not trusted[o]:
                continue
            for size, (ours, theirs) in zip(sizes, pairs, strict=True):
                assert np.linalg.norm(ours - theirs) <= 1e-9 * size, (seed, ridge, t)
            compared += 1
    assert compared >= 2 * r * (min(p, n, 8) - 1)


def extended(task, ridge, steps):
    """Textbook conjugate gradient in NumPy's long double: [steps + 1, n, r] each."""
    x, y = (np.asarray(a).astype(np.longdouble) for a in (task.x, task.y))
    alpha, r, p = np.zeros_like(y), y, y
    path = [(alpha, r, p)]
    with np.errstate(divide="ignore", invalid="ignore"):  # 0 / 0 past convergence: not compared
        for _ in range(steps):
            Ap = x @ (x.T @ p) + np.longdouble(ridge) * p
            gamma = (r * r).sum(0) / (p * Ap).sum(0)
            alpha, last, r = alpha + gamma * p, r, r - gamma * Ap
            p = r + (r * r).sum(0) / (last * last).sum(0) * p
            path.append((alpha, r, p))
    return [np.nan_to_num(np.stack(values)) for values in zip(*path, strict=True)]


def test_float64_itself_departs_from_exact_arithmetic(x64):
    """The finding behind the tolerance above: the oracle's r is off by > 1e-9 after 16 steps."""
    task = draw(0, 16, 64, r=1)
    exact = extended(task, 0.1, 16)[1]
    oracle = cg_oracle(task, 0.1, 16)
    error = np.linalg.norm(oracle.r[16] - exact[16].astype(float))
    assert error > 1e-9 * np.linalg.norm(exact[16].astype(float))
    assert np.linalg.norm(exact[16].astype(float)) > 1e-8 * np.linalg.norm(exact[0].astype(float))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize(("p", "n", "r"), SIZES)
def test_steps_past_convergence_stay_finite_and_exact(x64, p, n, r, dtype):
    for seed, ridge in SETTINGS:
        task = jax.tree.map(lambda a: a.astype(dtype), draw(seed, p, n, r=r))
        prediction, cache = ik.run_with_cache(cg(task, ridge, p + 1 + 64, dtype=dtype), task)
        assert prediction.dtype == dtype
        assert all(bool(jnp.all(jnp.isfinite(value))) for value in cache.slots.values())
        if dtype == jnp.float64:
            expected = numpy_exact(task.x, task.y, task.x_query, ridge)
            assert relative(prediction, expected) < 1e-9


def test_a_logit_that_no_data_reaches(x64):
    """The aggregator stays out of the average where every support is far below it."""
    task = draw(0, p=2, n=5)
    task = task.replace(x=20 * jnp.abs(task.x), x_query=-20 * jnp.abs(task.x_query))
    kernel = ik.Exponential(temperature=0.5)
    model = ik.constructions.nadaraya_watson(kernel, num_features=2)
    expected = ik.solvers.nadaraya_watson(kernel, task).prediction
    assert jnp.all(jnp.abs(expected) > 1e-3)
    assert relative(ik.predict(model, task), expected) < 1e-9


def test_float32_underflow_shows_in_the_residual():
    """The finding: y of 1e-17 has an r.r that float32 cannot hold; alpha stays 0, r stays y."""
    task = draw(0)
    task = task.replace(y=task.y * 1e-17, y_query=None)
    prediction, cache = ik.run_with_cache(cg(task, 0.1, 8), task)
    assert not jnp.any(prediction)
    assert jnp.array_equal(cache["r"][-1], task.y)


@pytest.mark.parametrize("size", [1e-30, 1e-17, 1e18, 1e30])
def test_the_oracle_knows_no_scale(size):
    """So that where float32 under- or overflows in the model, the oracle says so."""
    task = draw(0)
    scaled = task.replace(y=task.y * size, y_query=None)
    ours = cg_oracle(scaled, 0.1, 8).prediction[-1] / size
    assert relative(ours, cg_oracle(task, 0.1, 8).prediction[-1]) < 1e-4
    if size > 1e20:
        assert jnp.all(jnp.isnan(ik.predict(cg(task, 0.1, 8), scaled)))


def test_zero_outputs_are_solved_by_zero():
    """Every division is 0 / 0 from the first step on."""
    task = draw(0).replace(y=jnp.zeros(7))
    prediction, cache = ik.run_with_cache(cg(task, 0.1, 8), task)
    assert not jnp.any(prediction)
    assert all(bool(jnp.all(jnp.isfinite(value))) for value in cache.slots.values())


@pytest.mark.parametrize("size", [1e-14, 1e-7, 1e7, 1e14])
def test_float32_does_not_depend_on_the_scale_of_y(size):
    task = draw(0)
    scaled = task.replace(y=task.y * size, y_query=None)
    assert (
        relative(ik.predict(cg(task, 0.1, 8), scaled) / size, ik.predict(cg(task, 0.1, 8), task))
        < 1e-4
    )


@pytest.mark.parametrize("seed", range(8))
def test_float32_prediction_at_moderate_condition(seed):
    """Within 1e-4 of exact KRR (in float64) at cond <= 1e3, in the arithmetic of run time."""
    task = draw(seed, p=6, n=40, q=8)
    low, high = ik.spectral_bounds(ik.Linear(), task, ridge=0.2)
    assert high / low <= 1e3
    prediction = ik.predict(cg(task, 0.2, 24), task)
    assert prediction.dtype == jnp.float32
    assert relative(prediction, numpy_exact(task.x, task.y, task.x_query, 0.2)) < 1e-4


@pytest.mark.parametrize("case", CONSTRUCTIONS, ids=lambda case: case.name)
def test_blocks_per_step_is_as_stated(case):
    model = case.build(draw(0), 0.1, 4)
    assert model.blocks_per_step == case.blocks_per_step
    assert model.depth == len(model.weights.prologue) + model.steps * case.blocks_per_step
