"""`python -m benchmarks.ladders FOLDER...`: the ladders of finished `icl-krr identify` runs.

Every folder is named after its model. The table has a line for each model and seed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.records import options, save
from icl_krr.experiments import to_markdown


def main() -> None:
    asked = options(__doc__, quick="", folders={"type": Path, "nargs": "+"})
    records = {
        folder.name: json.loads((folder / "identify.json").read_text()) for folder in asked.folders
    }
    kept = {name: short(record) for name, record in records.items()}
    save("ladders", kept, table(kept))


def short(record: dict[str, Any]) -> dict[str, Any]:
    """The meta data, the verdict of all seeds, and of each seed the ladder and nearest solver."""
    seeds = []
    for found in record["seeds"]:
        best = found["candidates"][0]
        solver = {"name": best["candidate"], "kernel": best["kernel"]}
        solver |= {space: near(best[space]) for space in ("prediction", "hat")}
        rungs = [
            {"name": rung["name"], "kernel": rung["kernel"]}
            | {space: near(rung[space]) for space in ("prediction", "hat") if space in rung}
            for rung in found["ladder"]
        ]
        seeds.append({"seed": found["seed"], "status": found["status"], "ladder": rungs, **solver})
    meta = {name: record["meta"][name] for name in ("seed", "dtype", "versions", "device")}
    settings = {
        name: record["meta"]["settings"][name] for name in ("tasks", "probe_tasks", "kernels")
    }
    return {"meta": {**meta, **settings}, "together": record["together"], "seeds": seeds}


def near(distance: dict[str, Any]) -> dict[str, Any]:
    return {name: distance[name] for name in ("mean", "interval")}


def table(records: dict[str, dict[str, Any]]) -> str:
    first = next(iter(records.values()))["seeds"][0]
    names = [rung["name"] for rung in first["ladder"]]
    header = ["model", "seed", *names, "nearest solver", "verdict of all seeds"]
    lines = []
    for name, record in records.items():
        for found in record["seeds"]:
            rungs = {rung["name"]: cell(rung) for rung in found["ladder"]}
            cells = [rungs[key] for key in names]
            nearest = f"{found['name']}, {found['kernel']}: {cell(found)}"
            status = record["together"]["status"]
            lines.append([name, str(found["seed"]), *cells, nearest, status])
    return to_markdown((header, lines))


def cell(rung: dict[str, Any]) -> str:
    found = rung["hat"] if "hat" in rung else rung["prediction"]
    low, high = found["interval"]
    return f"{found['mean']:.2g} ({low:.2g}, {high:.2g})"


if __name__ == "__main__":
    main()
