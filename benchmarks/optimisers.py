"""`python -m benchmarks.optimisers`: which optimiser has the least excess after the same CPU time?

It takes 2 hours of one core; `--folder` keeps the runs.
"""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
from optax import contrib

from benchmarks import converged, records
from benchmarks.records import Row
from benchmarks.soap import is_stack, soap
from icl_krr.experiments import to_markdown

MODEL, SHORT, LONG = "converged-gp-2d", 4, 20
MARKS = (1, 2, SHORT, 8, LONG)
"""CPU minutes after which the excess is shown."""


def muon(rate: optax.Schedule) -> optax.GradientTransformation:
    """Muon for stacks of matrices, with changes as large as those of Adam; Adam for the rest."""

    def matrices(weights: Any) -> Any:
        numbers = contrib.MuonDimensionNumbers(1, 2)
        return jax.tree.map(lambda weight: numbers if is_stack(weight) else None, weights)

    return contrib.muon(rate, muon_weight_dimension_numbers=matrices, consistent_rms=0.2)


OPTIMISERS = {
    "AdamW": (optax.adamw, (5e-4, 1e-3, 2e-3)),
    "Muon": (muon, (6.25e-4, 1.25e-3, 2.5e-3, 5e-3)),
    "SOAP": (soap, (5e-4, 1e-3, 2e-3, 4e-3)),
}
"""Each with the largest learning rates that are tried."""


def excess_after(stages: list[Row], minutes: float) -> float:
    """The excess after so many CPU minutes, by a power law between the ends of two stages."""
    spent = np.cumsum([row["cpu_seconds"] for row in stages]) / 60
    logs = np.log([row["excess"] for row in stages])
    return float(np.exp(np.interp(np.log(minutes), np.log(spent), logs, np.nan, np.nan)))


def measured(folder: Path) -> list[Row]:
    """Train with every rate for `SHORT` minutes, and with the best of an optimiser for `LONG`."""
    recipe, rows = converged.recipes()[MODEL], []

    def run(name: str, rate: float, minutes: float) -> Row:
        place, chosen = folder / f"{name}-{rate:g}", converged.Optimiser(OPTIMISERS[name][0], rate)
        stages = converged.trained(recipe, place, minutes, chosen)
        return {"optimiser": name, "rate": rate, "stages": stages}

    for name, (_, rates) in OPTIMISERS.items():
        tried = [run(name, rate, SHORT) for rate in rates]
        best = tried[np.nanargmin([excess_after(row["stages"], SHORT) for row in tried])]
        rows += [run(name, row["rate"], LONG) if row is best else row for row in tried]
    return rows


def markdown(record: Row) -> str:
    columns: Row = {"optimiser": "optimiser", "largest learning rate": "rate"}
    columns["updates a second"] = lambda row: f"{row['stages'][0]['steps_per_second']:.0f}"
    for minutes in MARKS:
        columns[f"excess after {minutes} CPU minutes"] = lambda row, minutes=minutes: (
            f"{after:.3g}" if (after := excess_after(row["stages"], minutes)) > 0 else "-"
        )
    return f"{ABOUT}\n{to_markdown(records.table(record['runs'], columns))}"


ABOUT = f"""\
`python -m benchmarks.optimisers` trains the decoder `{MODEL}` of [converged](converged.md)
with each optimiser and rate for {SHORT} CPU minutes, without compilation, and with the best of each
for {LONG}. Weights at first, tasks (one seed), schedule of the rate and running average, which is
measured, are the same. SOAP with 0.002 is that decoder itself. AdamW has the weight decay 1e-4.
"""


def main() -> None:
    args = records.options(__doc__, quick="", folder=True)
    meta = records.meta("optimisers", "optax", dtype="float32", seed=0)
    record = {"meta": meta, "runs": measured(args.folder)}
    records.finish("optimisers", records.rounded(record), markdown, False)


if __name__ == "__main__":
    main()
