"""`icl-krr ablate`: remove each part of a model and measure the change of the predictions."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import jax
from rich.console import Console

from ...experiments.ablate.ablation import Ablation, examine, table
from ...experiments.ablate.targets import AblateConfig
from ...files import to_csv, to_markdown
from ...plots import ablation_figure, images
from ...text_tables import Table
from .. import output
from ..settings.ablate import Ablate


def run(settings: Ablate) -> int:
    names = [field.name for field in dataclasses.fields(AblateConfig)]
    config = AblateConfig(**{name: getattr(settings, name) for name in names})
    settings = dataclasses.replace(settings, model=config.model)
    folder = settings.out or Path(f"icl-krr-ablate-{Path(settings.model).name}")
    output.prepare(folder)
    with Console(stderr=True).status("") as status, jax.enable_x64(True):
        found = examine(config, lambda words: status.update(f"{settings.model}: {words}"))
    meta = {**output.surroundings(settings), "dtype": "float64", "losses": found.known}
    title = f"{settings.model}, seed {settings.seed}, float64"
    files = {
        "ablate.csv": to_csv(found.rows),
        "ablate.md": to_markdown(table(found)).encode(),
        "meta.json": (output.to_json(meta) + "\n").encode(),
        **images("ablate", ablation_figure(found, title)),
    }
    output.write(folder, files)
    if settings.json:
        print(output.to_json({"meta": meta, "rows": found.rows}))
    else:
        print_table(settings, found)
    return 0


def print_table(settings: Ablate, found: Ablation) -> None:
    by = "0" if settings.replace == "zero" else "its mean"
    title = f"{settings.model}: one part at a time replaced by {by}"
    header, lines = table(found)
    less_important = ("loss", "expected change", "slot")
    console = output.wide()
    console.print(Table(title, header, [lines], less_important, where="ablate.csv"))
    known = ", ".join(f"{name} {value:.3g}" for name, value in found.known.items())
    console.print(
        f"change: |f' - f| / |f| at the queries of {settings.tasks} tasks; f are the predictions "
        f"of the intact model, and f' are the predictions after the replacement.\n"
        f"loss: mean squared error of f'. Losses of other predictors: {known}.\n"
        f"{explain_columns(found)}Seed {settings.seed}, float64."
    )


def explain_columns(found: Ablation) -> str:
    """Explain the columns and rows that only some tables have."""
    words = {
        "expectation": "expectation: expected effect of the removal, in words.\n"
        "expected change: |g - f| / |f|, where g are the predictions of the algorithm without the "
        "operation of the part, computed from K and k(x) without a transformer.\n"
        "gap to expectation: |f' - g| / max(|f|, |g|).\n",
        "swap": "swapped: a constructed step between two fitted linear maps replaces the block.\n"
        "The other rows are controls. linear: one fitted linear map replaces the block. shuffled: "
        "the step uses another task. skipped: the block is removed.\n"
        "swapped nearer by: change of the control minus change of the swapped block.\n",
    }
    has = {key for row in found.rows for key in (*row, row["kind"])}
    return "".join(text for key, text in words.items() if key in has)
