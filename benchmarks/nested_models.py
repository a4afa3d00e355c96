"""`python -m benchmarks.nested_models FOLDER...`: nested models of `icl-krr identify` runs.

Every folder is named after its model. The table has a line for each model and seed.
"""

import json
from pathlib import Path
from typing import Any

from benchmarks.records import options, save
from icl_krr.experiments import to_markdown


def main() -> None:
    args = options(__doc__, quick="", folders={"type": Path, "nargs": "+"})
    records = {path.name: json.loads((path / "identify.json").read_text()) for path in args.folders}
    summaries = {name: short(record) for name, record in records.items()}
    save("nested-models", summaries, table(summaries))


def short(record: dict[str, Any]) -> dict[str, Any]:
    """Meta data, the verdict of all seeds; of each seed its nested models and nearest solver."""
    seeds = []
    for result in record["seeds"]:
        best = result["candidates"][0]
        solver = {"name": best["candidate"], "kernel": best["kernel"], **intervals(best)}
        models = [
            {"name": model["name"], "kernel": model["kernel"], **intervals(model)}
            for model in result["nested models"]
        ]
        about = {name: result[name] for name in ("seed", "status")}
        seeds.append({**about, "nested models": models, **solver})
    meta = {name: record["meta"][name] for name in ("seed", "dtype", "versions", "device")}
    sizes = {name: record["meta"]["settings"][name] for name in ("tasks", "probe_tasks", "kernels")}
    return {"meta": {**meta, **sizes}, "together": record["together"], "seeds": seeds}


def intervals(fit: dict[str, Any]) -> dict[str, Any]:
    spaces = [space for space in ("prediction", "hat") if space in fit]
    return {space: {name: fit[space][name] for name in ("mean", "interval")} for space in spaces}


def table(records: dict[str, dict[str, Any]]) -> str:
    first = next(iter(records.values()))["seeds"][0]
    names = [model["name"] for model in first["nested models"]]
    header = ["model", "seed", *names, "nearest solver", "verdict of all seeds"]
    lines = []
    for name, record in records.items():
        for result in record["seeds"]:
            models = {model["name"]: cell(model) for model in result["nested models"]}
            cells = [models[key] for key in names]
            nearest = f"{result['name']}, {result['kernel']}: {cell(result)}"
            lines.append([name, str(result["seed"]), *cells, nearest, record["together"]["status"]])
    return to_markdown((header, lines))


def cell(model: dict[str, Any]) -> str:
    distance = model["hat"] if "hat" in model else model["prediction"]
    low, high = distance["interval"]
    return f"{distance['mean']:.2g} ({low:.2g}, {high:.2g})"


if __name__ == "__main__":
    main()
