"""`python -m benchmarks.causal`: identify constructions of causal solvers, whose solver is known.

All candidates of `icl-krr identify` are fitted. This takes about 15 minutes on two cores. `--quick`
is a smoke test on small tasks; its figures are not meaningful.
"""

from __future__ import annotations

import dataclasses

import jax
from rich.progress import track

from benchmarks import records
from icl_krr.catalogue import SOLVERS, candidates
from icl_krr.experiments.identify import confusion

ADDED = (*(name for name in candidates() if SOLVERS[name].causal), "preconditioned_chebyshev")
QUICK = {"conditions": (1e2,), "tasks": 4, "num_features": 8, "num_supports": 8, "steps": 2}


def main() -> None:
    asked = records.options(__doc__, seed="first seed").parse_args()
    sizes = QUICK if asked.quick else {}
    config = confusion.ConfusionConfig(solvers=ADDED, seeds=1, seed=asked.seed, **sizes)
    jax.config.update("jax_enable_x64", True)
    count = len(confusion.cells(config))
    rows = [row for _, row in track(confusion.run(config), "identify", total=count)]
    table = confusion.markdown(rows)
    print(table)
    if asked.quick:
        return
    facts = {"config": dataclasses.asdict(config), "dtype": "float64", "seed": asked.seed}
    meta = records.meta("causal", **facts)
    records.save("confusion-causal", {"meta": meta, "rows": rows}, table)


if __name__ == "__main__":
    main()
