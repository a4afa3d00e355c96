"""The grids of trained subjects and decoders: their recipes, and what ships of them."""

import json
import re
import sys

import pytest

from benchmarks import decoders, subjects
from icl_krr.experiments import RUNS, Recipe


def test_the_grid_crosses_families_styles_attentions_and_depths():
    recipes = subjects.recipes()
    assert len(recipes) == 16
    models = [(r.task.family, r.model) for r in recipes.values()]
    shapes = {(family, m.style, m.attention, m.depth) for family, m in models}
    assert len(shapes) == 16
    assert all(r.task.num_features > 1 for r in recipes.values())
    assert {r.training.loss for r in recipes.values() if r.model.style == "decoder"} == {"every"}


@pytest.mark.slow
def test_a_small_grid_is_trained(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["subjects", "--quick"])
    subjects.main()
    lines = re.findall(r"^\| ([\w-]+-\d) \|", capsys.readouterr().out, re.M)
    assert lines == ["gp-decoder-linear-2", "linear-encoder-softmax-2"]


def rounds_of(name):
    return json.loads((RUNS / name / "meta.json").read_text())["updates of each round"]


@pytest.mark.parametrize("name", decoders.SHIPPED)
def test_decoders_that_ship_are_those_of_the_grid(name):
    updates = rounds_of(name)
    last = decoders.recipe_of(decoders.SHIPPED[name], updates[-1], seed=len(updates) - 1)
    assert Recipe.read(name) == last


def test_what_ships_of_a_decoder_is_its_last_round(monkeypatch, tmp_path):
    (name, cell), *_ = decoders.SHIPPED.items()
    monkeypatch.setattr(decoders.lab, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(decoders, "SHIPPED", {name: cell})
    (tmp_path / "runs").mkdir()
    for number, updates in enumerate((5, 10)):
        folder = tmp_path / cell.name / f"round-{number}"
        folder.mkdir(parents=True)
        recipe = decoders.recipe_of(cell, updates, number)
        folder.joinpath("recipe.json").write_text(recipe.to_json())
        for file in ("model.msgpack", "metrics.csv"):
            folder.joinpath(file).write_text(f"{file} of round {number}")
    decoders.ship(tmp_path)
    shipped = tmp_path / "runs" / name
    for file in ("model.msgpack", "metrics.csv"):
        assert shipped.joinpath(file).read_text() == f"{file} of round 1"
    meta = json.loads(shipped.joinpath("meta.json").read_text())
    assert meta["updates of each round"] == [5, 10]
    assert meta["recipe"]["training"]["steps"] == 10
