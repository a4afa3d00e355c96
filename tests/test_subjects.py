"""The grid of trained subjects: its recipes, its tables, and a run from training to verdicts."""

import json
import re
import sys

import pytest

from benchmarks import subjects, subjects_tables
from benchmarks.subjects_tables import of_seed, subjects_figure, verdict_of

ROWS = json.loads((subjects.RESULTS / "subjects.json").read_text())["rows"]


def seeds(*found):
    return [{"status": status, "remain": names, "as near": []} for status, names in found]


def test_two_training_seeds_that_name_two_solvers_name_none():
    """A verdict holds for all seeds, and so is the weakest."""
    one, other = ("identified", ["richardson"]), ("identified", ["chebyshev"])
    assert verdict_of(seeds(one, one)) == "identified: richardson"
    assert verdict_of(seeds(one, ("close to", ["richardson"]))) == "close to: richardson"
    assert verdict_of(seeds(one, other)) == "not distinguishable: richardson, chebyshev"
    assert verdict_of(seeds(one, ("none is close", ["chebyshev"]))) == "none is close"
    assert verdict_of(seeds(one, ("not identified", []))) == "not identified"


def test_a_null_that_is_as_near_is_named():
    row = {"status": "not identified", "remain": [], "as near": ["ridge path", "zero"]}
    assert of_seed(row) == "not identified (as near: ridge path)"
    assert of_seed(row | {"status": "close to", "remain": ["richardson"], "as near": []}) == (
        "close to: richardson"
    )


def test_the_grid_crosses_families_styles_attentions_and_depths():
    made = subjects.recipes()
    assert len(made) == 16
    shapes = {
        (r.task.family, r.model.style, r.model.attention, r.model.depth) for r in made.values()
    }
    assert len(shapes) == 16
    assert all(r.task.num_features > 1 for r in made.values())
    assert {r.training.loss for r in made.values() if r.model.style == "decoder"} == {"every"}


def test_the_figure_has_a_mark_for_every_model_and_null():
    figure = subjects_figure(ROWS[:2], {"training seeds": [0, 1, 2], "seed": 0, "dtype": "float64"})
    for axis, space in zip(figure.axes, ("prediction", "hat"), strict=True):
        marks = [line for line in axis.lines if line.get_marker() in tuple(subjects_tables.MARKS)]
        shown = {round(float(line.get_xdata()[0]), 9) for line in marks}
        nulls = [row["nulls"][row["nearest null"]] for row in ROWS[:2]]
        wanted = [*nulls, *(row["nearest"] for row in ROWS[:2])]
        assert shown == {round(one[space]["mean"], 9) for one in wanted}


@pytest.mark.slow
def test_a_small_grid_is_trained_and_identified(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["subjects", "--quick"])
    subjects.main()
    verdicts, distances, ladder = capsys.readouterr().out.strip().split("\n\n")
    for table in (verdicts, distances, ladder):
        lines = re.findall(r"^\| ([\w-]+-\d) \|", table, re.M)
        assert lines == ["linear-encoder-softmax-2", "gp-decoder-linear-2"]
