"""Probes of a solver's state: near 1 where it is, even rotated; low where it is not."""

from functools import partial

import jax
import numpy as np
import pytest
from helpers import dense, numpy

import icl_krr as ik
from icl_krr.probes import CandidateFit, probe_states, support_streams
from icl_krr.training.batches import draw

FAMILY = ik.tasks.LinearRegression(num_features=3, num_supports=8)
STEPS, RIDGE = 3, 0.3
VALUES = {"ridge": RIDGE, "high": 40.0, "low_over_high": 0.02}
init = jax.jit(ik.init, static_argnums=1)
FIT = CandidateFit("chebyshev", "linear", VALUES, (1, 2, 3), 0.0)


def batch(seed, count=64):
    return numpy(draw(jax.random.key(seed), FAMILY, count))


def model():
    return ik.constructions.chebyshev(
        ik.Linear(), num_features=3, ridge=RIDGE, steps=STEPS, spectrum=(0.8, 40.0)
    )


def rotated(model, q):
    """The merged model in other coordinates: streams h become h q, answers stay."""
    model = numpy(dense(model))
    weights = model.weights
    read = lambda r: r and r.replace(blocks={"stream": turn(q.T, r.blocks["stream"])})  # noqa: E731
    turn = lambda left, right: np.einsum("ij,...jk->...ik", left, right)  # noqa: E731
    write = lambda out: np.einsum("...ij,jk->...ik", out, q)  # noqa: E731

    def block(b):
        heads = [
            h.replace(
                query=read(h.query),
                key=read(h.key),
                writes=tuple(w.replace(value=read(w.value), out=write(w.out)) for w in h.writes),
            )
            for h in b.attention
        ]
        units = [u.replace(up=read(u.up), gate=read(u.gate), out=write(u.out)) for u in b.mlp]
        return b.replace(attention=tuple(heads), mlp=tuple(units))

    embedding = weights.embedding["stream"]
    return model.replace(
        weights=weights.replace(
            embedding={"stream": embedding @ q},
            prologue=tuple(map(block, weights.prologue)),
            steps=tuple(map(block, weights.steps)),
            readout=read(weights.readout),
        )
    )


@pytest.fixture(scope="module")
def found():
    with jax.enable_x64(True):
        width = dense(model()).layout.width
        q = np.linalg.qr(np.random.default_rng(3).normal(size=(width, width)))[0]
        turned = rotated(model(), q)
        one = jax.tree.map(lambda leaf: leaf[0], batch(2, 1))
        assert np.allclose(ik.predict(turned, one), ik.predict(model(), one))
        plain = support_streams(dense(model()), one)
        assert np.allclose(support_streams(turned, one), plain @ q)
        return {p.state: p for p in probe_states(turned, FIT, batch(0), batch(1))}


def test_the_state_of_the_true_solver_is_found_in_a_rotated_stream(found):
    assert set(found) == {"alpha", "r"}
    assert np.all(found["r"].found > 0.999)
    assert np.all(found["alpha"].found[1:] > 0.999)
    assert found["alpha"].found[0] == 0  # alpha_0 = 0 has no variance


def test_controls_are_lower(found):
    for probe in found.values():
        assert np.all(probe.controls["shuffled"] < 0.05)
        assert np.all(probe.controls["random"] < 0.5)
        assert set(probe.controls) == {"start", "shuffled", "random"}
    assert np.all(found["alpha"].selectivity[2:] > 0.03)
    assert np.all(found["r"].controls["start"][2:] < 0.5)
    assert np.isclose(found["r"].selectivity[0], 0)


@pytest.mark.slow
def test_states_of_another_solver_are_not_found():
    """Late iterates of conjugate gradient in a model that takes three gradient steps."""
    with jax.enable_x64(True):
        other = CandidateFit("conjugate_gradient", "linear", {"ridge": RIDGE}, (3, 3, 3), 0.0)
        slow = ik.constructions.gradient_descent(
            ik.Linear(), num_features=3, ridge=RIDGE, steps=STEPS, step_size=1e-3
        )
        _, r = probe_states(slow, other, batch(0), batch(1))
        assert np.all(r.found[1:] < 0.9)
        assert np.all(r.selectivity[1:] < 0.1)


@pytest.mark.slow
def test_an_untrained_model_is_a_control():
    architecture = ik.Architecture(num_features=3, width=16, depth=2, heads=2)
    one, other = (init(jax.random.key(i), architecture) for i in (0, 1))
    tasks, more = batch(0, 16), batch(1, 16)
    fit = FIT._replace(alignment=(1, 3))
    same = probe_states(one, fit, tasks, more, untrained=one)
    for probe in same:
        assert np.allclose(probe.found, probe.controls["untrained"])
        assert np.all(probe.selectivity <= 0)
    different = probe_states(one, fit, tasks, more, untrained=other)
    assert not np.allclose(different[0].found[1:], different[0].controls["untrained"][1:])


def test_interleaved_tokens_are_read_at_the_token_of_y(x64):
    spec = {"num_features": 1, "width": 8, "depth": 1, "heads": 1}
    decoder = ik.Architecture(**spec, causal=True, tokens="interleaved", max_tokens=16)
    drawn = init(jax.random.key(0), decoder)
    task = ik.Task(*map(np.asarray, ([[1.0], [2.0]], [3.0, 4.0], [[0.5]])))
    changed = task.replace(y=np.array([3.0, 5.0]))
    streams = partial(jax.jit(support_streams), drawn)
    gap = np.asarray(streams(changed)) - np.asarray(streams(task))
    assert np.all(gap[:, 0] == 0)
    assert np.any(gap[:, 1] != 0)
