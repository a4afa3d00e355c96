"""Layouts, reads, tokens."""

from functools import partial

import jax
import numpy as np
import pytest
from helpers import draw, numpy
from hypothesis import given, strategies as st

from icl_krr.residual import Layout, Read, Slot, embed, fields, join, key_mask
from icl_krr.residual._reads import one_hot

LAYOUT = Layout((Slot("x", 2, kind="data"), Slot("Kp", 2), Slot("p", 2), Slot("flag", 1)))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12))
def test_channels_follow_the_declared_order(widths):
    layout = Layout(tuple(Slot(f"s{i}", width) for i, width in enumerate(widths)))
    slices = [layout.channels(name) for name in layout.names]
    assert [channels.stop for channels in slices] == list(np.cumsum(widths))
    taken = [i for channels in slices for i in range(layout.width)[channels]]
    assert taken == list(range(layout.width))


def test_layout_is_hashable_and_prints_as_a_table():
    assert hash(LAYOUT) == hash(Layout(LAYOUT.slots))
    lines = str(LAYOUT).splitlines()
    assert len(lines) == 5
    assert lines[0].split() == ["slot", "channels", "width", "kind", "at", "holds"]
    assert lines[2].split()[:3] == ["Kp", "2:4", "2"]


def test_reads_add_scale_and_compose():
    rng = np.random.default_rng(0)
    h = {slot.name: rng.normal(size=(3, slot.width)).astype("f4") for slot in LAYOUT.slots}
    x, Kp, p, flag = map(LAYOUT.read, LAYOUT.names)
    matrix = np.asarray([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], "f4")
    cases = (
        (Kp + 0.5 * p, h["Kp"] + 0.5 * h["p"]),
        (Kp - p * 2, h["Kp"] - 2 * h["p"]),
        (-(Kp + Kp), -2 * h["Kp"]),
        ((Kp + p) @ matrix, (h["Kp"] + h["p"]) @ matrix),
        ((Kp @ matrix) @ matrix.T, h["Kp"] @ matrix @ matrix.T),
        (p + p @ np.eye(2) + p, 3 * h["p"]),
        (p @ np.eye(2) + p, 2 * h["p"]),
        (join(2.0 * x, flag), np.concatenate([2 * h["x"], h["flag"]], -1)),
        (join(p @ matrix, p), np.concatenate([h["p"] @ matrix, h["p"]], -1)),
        (Read({}, 2), np.zeros((3, 2))),
    )
    reads, values = zip(*cases, strict=True)
    results = jax.jit(lambda h: [read(h) for read in reads])(h)
    for result, value in zip(results, values, strict=True):
        np.testing.assert_allclose(result, value, rtol=1e-6)


def test_one_hot_places_channels():
    assert one_hot(1, 2, 4, float).tolist() == [[0, 1, 0, 0], [0, 0, 1, 0]]


def test_tokens_are_aggregator_supports_queries():
    task = draw(0, p=2, n=4, q=3, r=2)
    mask = np.array([True, False, True, True])
    masked = task.replace(mask=mask)
    tokens = numpy(jax.jit(fields)(masked))
    assert tokens["aggregator"][:, 0].tolist() == [1, 0, 0, 0, 0, 0, 0, 0]
    assert tokens["support"][:, 0].tolist() == [0, 1, 0, 1, 1, 0, 0, 0]
    assert tokens["query"][:, 0].tolist() == [0, 0, 0, 0, 0, 1, 1, 1]
    assert tokens["one"][:, 0].tolist() == [1] * 8
    np.testing.assert_array_equal(tokens["x"][1:5], np.where(mask[:, None], task.x, 0))
    np.testing.assert_array_equal(tokens["x"][5:], task.x_query)
    np.testing.assert_array_equal(tokens["y"][1:5], np.where(mask[:, None], task.y, 0))
    assert not np.any(tokens["y"][5:])
    assert not np.any(tokens["x"][0])
    assert key_mask(masked).tolist() == [True, True, False, True, True] + [False] * 3


@pytest.mark.parametrize("unmasked", [5, 1])
def test_centred_tokens_have_the_mean_of_the_unmasked_supports_as_origin(unmasked):
    task = draw(0, n=7)
    task = task.replace(mask=np.arange(7) >= 7 - unmasked)
    x = {"x": Read({"x": np.ones(())}, task.num_features)}
    x_tokens = numpy(jax.jit(partial(embed, x, centred=True))(task))["x"]
    mean = task.x[7 - unmasked :].mean(0)[None]
    expected = numpy(jax.jit(fields)(task.replace(x=task.x - mean)))["x"]
    assert np.allclose(x_tokens[1:-3], expected[1:-3], atol=1e-6)
    assert np.allclose(x_tokens[-3:], task.x_query - mean, atol=1e-6)
