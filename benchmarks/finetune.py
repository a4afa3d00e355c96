"""`python -m benchmarks.finetune`: fine-tune constructed gradient descent.

This takes about an hour on two cores. `--quick` is a smoke test; its figures are not meaningful.
"""

from __future__ import annotations

import argparse
import dataclasses
from importlib.metadata import version
from pathlib import Path

import jax
from rich.console import Console

from icl_krr.cli.output import to_json
from icl_krr.experiments.finetune.comparison import compare, loss_table, most_moved_table
from icl_krr.experiments.finetune.problem import FinetuneConfig
from icl_krr.files import replace, to_csv, to_markdown
from icl_krr.plots import finetune_depth_figure, finetune_path_figure, images

HERE = Path(__file__).parent
QUICK = {"depths": (1, 2), "depth": 2, "updates": 20, "every": 10, "seeds": 1, "tasks": 64}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smoke test; writes no files")
    parser.add_argument("--seed", type=int, default=0, help="first seed")
    asked = parser.parse_args()
    config = FinetuneConfig(seed=asked.seed, **(QUICK if asked.quick else {}))
    with Console(stderr=True).status("") as status:
        found = compare(config, status.update)
    tables = "\n".join(map(to_markdown, (loss_table(found), most_moved_table(found))))
    print(tables)
    if asked.quick:
        return
    device = jax.devices()[0]
    record = {
        "config": dataclasses.asdict(config),
        "device": f"{device.platform}: {device.device_kind}",
        "dtype": "float32",
        "versions": {name: version(name) for name in ("icl_krr", "jax", "jaxlib", "optax")},
        "losses": found.losses,
    }
    files = {
        "results/learning.json": (to_json(record) + "\n").encode(),
        "results/learning.md": tables.encode(),
        "results/learning-path.csv": to_csv(found.path),
        "results/learning-moved.csv": to_csv(found.moved),
        **{
            f"figures/{name}": content
            for stem, figure in (
                ("learning", finetune_depth_figure(found)),
                ("learning-path", finetune_path_figure(found)),
            )
            for name, content in images(stem, figure).items()
        },
    }
    for name, content in files.items():
        replace(HERE / name, content)


if __name__ == "__main__":
    main()
