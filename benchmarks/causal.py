"""`python -m benchmarks.causal`: identify constructions of causal solvers, whose solver is known.

All candidates of `icl-krr identify` are fitted. This takes about 15 minutes on two cores. `--quick`
is a smoke test on small tasks; its figures are not meaningful.
"""

from __future__ import annotations

import argparse
import dataclasses
from importlib.metadata import version
from pathlib import Path

import jax
from rich.progress import track

from icl_krr.catalogue import SOLVERS, candidates
from icl_krr.cli.output import to_json
from icl_krr.experiments.identify import confusion
from icl_krr.files import replace

HERE = Path(__file__).parent
ADDED = (*(name for name in candidates() if SOLVERS[name].causal), "preconditioned_chebyshev")
QUICK = {"conditions": (1e2,), "tasks": 4, "num_features": 8, "num_supports": 8, "steps": 2}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smoke test; writes no files")
    parser.add_argument("--seed", type=int, default=0, help="first seed")
    asked = parser.parse_args()
    sizes = QUICK if asked.quick else {}
    config = confusion.ConfusionConfig(solvers=ADDED, seeds=1, seed=asked.seed, **sizes)
    jax.config.update("jax_enable_x64", True)
    count = len(confusion.cells(config))
    rows = [row for _, row in track(confusion.run(config), "identify", total=count)]
    table = confusion.markdown(rows)
    print(table)
    if asked.quick:
        return
    device = jax.devices()[0]
    meta = {
        "command": "python -m benchmarks.causal",
        "config": dataclasses.asdict(config),
        "device": f"{device.platform}: {device.device_kind}",
        "dtype": "float64",
        "versions": {name: version(name) for name in ("icl_krr", "jax", "jaxlib")},
        "seed": asked.seed,
    }
    record = (to_json({"meta": meta, "rows": rows}) + "\n").encode()
    results = HERE / "results"
    replace(results / "confusion-causal.json", record)
    replace(results / "confusion-causal.md", table.encode())


if __name__ == "__main__":
    main()
