"""Train one model from a recipe, and keep it in a folder."""

from pathlib import Path
from typing import Any

from icl_krr import experiments
from icl_krr.experiments import Recipe, blank, family
from icl_krr.training import save_weights, train

ERRORS = ("validation", "ratio", "exact", "nadaraya_watson", "mean", "zero")
QUICK = {"steps": 4, "batch": 2, "warmup": 1, "log_every": 2, "validation": 8}


def fitted(recipe: Recipe, folder: Path) -> dict[str, Any]:
    """Train a model, keep it in a folder with its recipe and metrics, and return its errors."""
    folder.mkdir(parents=True, exist_ok=True)
    experiments.replace(folder / "recipe.json", recipe.to_json().encode())
    drawn = family(recipe.task)
    model, rows = train(blank(recipe, drawn), drawn, recipe.training, folder=folder)
    save_weights(folder / "model.msgpack", model)
    return {name: rows[-1][name] for name in ERRORS}
