"""Patterns of ablations, and the nearest of them."""

import re
import sys

import jax
import numpy as np
import pytest

from benchmarks import ablations

MAIN, PARTS = ablations.MAIN, ablations.SETS["heads, MLP, whole layers"]
TASKS = 12


def row(solver, variant, changes, layers=4, seed=0):
    """A model whose parts change the predictions by `changes` [parts, L], a little by the task."""
    noise = np.exp(0.05 * np.random.default_rng(seed).normal(size=TASKS))
    squares = (np.broadcast_to(changes, (3, layers))[..., None] * noise) ** 2
    names = ("change", "target", "exact")
    return {
        "family": "linear",
        "variant": variant,
        "solver": solver,
        "intact": {name: np.ones(TASKS) for name in names},
        "removed": {kind: dict.fromkeys(names, squares) for kind in ("zero", "mean")},
        "exact error": np.ones(TASKS),
    }


def scored(rows):
    effects = [ablations.effects_of(one, 50, 0) for one in rows]
    patterns = [ablations.pattern(one, MAIN, PARTS) for one in effects]
    return ablations.confusion(rows, patterns, names=("a", "b"))


def test_solvers_with_patterns_of_their_own_are_told_apart_and_equal_ones_are_not():
    falling, rising = 0.5 ** np.arange(4.0), 0.5 ** np.arange(4.0)[::-1]
    distinct = [row(*each) for v in "xy" for each in (("a", v, falling), ("b", v, rising))]
    result = scored(distinct)
    assert result["right"] == result["lone"] == [4, 4]
    assert result["within"] < 1e-6 < result["between"]
    equal = [row(name, v, falling, seed=i) for i, (name, v) in enumerate(["ax", "bx", "ay", "by"])]
    result = scored(equal)
    assert (result["lone"][0], result["among"][0]) == (0, 4)


def test_a_name_has_the_distance_of_its_nearest_pattern():
    one = np.zeros((11, 2))
    result = ablations.nearest(one, {"a": [one + 1, one + 0.1], "b": [one + 0.5]})
    assert result.name == "a"
    assert result.tied == ["a"]
    assert result.distance == pytest.approx(0.1)


def test_patterns_of_other_depths_are_compared_at_relative_depths():
    np.testing.assert_allclose(ablations.at_places(np.arange(6.0)), np.arange(6.0))
    half = ablations.at_places((np.arange(12.0) + 0.5) / 12)
    np.testing.assert_allclose(half, (np.arange(ablations.PLACES) + 0.5) / ablations.PLACES)


@pytest.mark.slow
def test_a_few_models_are_measured_and_compared(monkeypatch, capsys, x64):
    monkeypatch.setattr(sys, "argv", ["ablations", "--quick"])
    monkeypatch.setattr(jax.config, "update", lambda *_: None)  # the tests after it have their own
    ablations.main()
    output = capsys.readouterr().out
    assert re.findall(r"^\| (gp-encoder) \|", output, re.M)
    changes = re.findall(r"^\| gradient descent \| linear \| .* \| (.*) \|$", output, re.M)
    assert len({*changes[0].split()}) == 1, "every step of gradient descent is the same map"
