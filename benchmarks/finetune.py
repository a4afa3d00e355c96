"""`python -m benchmarks.finetune`: fine-tune constructed gradient descent.

This takes about an hour on two cores. `--quick` is a smoke test; its figures are not meaningful.
"""

from __future__ import annotations

import dataclasses

from rich.console import Console

from benchmarks import records
from icl_krr.experiments.finetune.comparison import compare, loss_table, most_moved_table
from icl_krr.experiments.finetune.problem import FinetuneConfig
from icl_krr.files import replace, to_csv, to_markdown
from icl_krr.plots import finetune_depth_figure, finetune_path_figure

QUICK = {"depths": (1, 2), "depth": 2, "updates": 20, "every": 10, "seeds": 1, "tasks": 64}


def main() -> None:
    asked = records.options(__doc__, seed="first seed").parse_args()
    config = FinetuneConfig(seed=asked.seed, **(QUICK if asked.quick else {}))
    with Console(stderr=True).status("") as status:
        found = compare(config, status.update)
    tables = "\n".join(map(to_markdown, (loss_table(found), most_moved_table(found))))
    print(tables)
    if asked.quick:
        return
    facts = {"config": dataclasses.asdict(config), "dtype": "float32", "losses": found.losses}
    records.save("learning", records.meta("finetune", "optax", **facts), tables)
    replace(records.RESULTS / "learning-path.csv", to_csv(found.path))
    replace(records.RESULTS / "learning-moved.csv", to_csv(found.moved))
    records.draw("learning", finetune_depth_figure(found))
    records.draw("learning-path", finetune_path_figure(found))


if __name__ == "__main__":
    main()
