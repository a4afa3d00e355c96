"""The grid of trained subjects: its recipes, and a small run."""

import re
import sys

import pytest

from benchmarks import subjects


def test_the_grid_crosses_families_styles_attentions_and_depths():
    made = subjects.recipes()
    assert len(made) == 16
    shapes = {
        (r.task.family, r.model.style, r.model.attention, r.model.depth) for r in made.values()
    }
    assert len(shapes) == 16
    assert all(r.task.num_features > 1 for r in made.values())
    assert {r.training.loss for r in made.values() if r.model.style == "decoder"} == {"every"}


@pytest.mark.slow
def test_a_small_grid_is_trained(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["subjects", "--quick"])
    subjects.main()
    lines = re.findall(r"^\| ([\w-]+-\d) \|", capsys.readouterr().out, re.M)
    assert lines == ["gp-decoder-linear-2", "linear-encoder-softmax-2"]
