"""What `icl-krr identify --protocol error-profile` computes, writes and prints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from ..experiments.identify import profile_of_run, profile_tables as tables
from ..experiments.identify.settings import IdentifyConfig
from ..experiments.shared.runs import load
from ..files import to_csv, to_markdown
from ..plots import curves_figure, images
from . import output


def identify_profile(settings: Any, configs: Sequence[IdentifyConfig], folder: Path) -> int:
    """Compare the errors of a model, layer by layer, with those of every candidate."""
    trained = load(settings.model)
    output.prepare(folder)
    with output.status() as status, jax.enable_x64(True):
        every = [
            profile_of_run.examine(
                trained, one, lambda words, seed=one.seed: status.update(f"seed {seed}, {words}")
            )
            for one in configs
        ]
    first = every[0]
    known = {"kernel": repr(first.kernel), "ridge": first.ridge, "errors": first.known}
    seeds = [
        {
            "seed": config.seed,
            "model": tables.record(one.profile),
            "untrained": one.untrained and tables.record(one.untrained),
        }
        for config, one in zip(configs, every, strict=True)
    ]
    record = {"meta": output.surroundings(settings, dtype="float64", **known), "seeds": seeds}
    figure = curves_figure(
        tables.panels(first, "error"),
        "mean squared error at the queries",
        f"{settings.model}, seed {settings.seed}, float64",
        log="y",
        lines=first.known,
        dots=("model",),
    )
    pages = [tables.verdict_table(first), *map(tables.reading_table, first.profile.readings)]
    files = {
        "identify.json": output.json_file(record),
        "layers.csv": to_csv(tables.layer_rows(first)),
        "identify.md": "\n".join(map(to_markdown, pages)).encode(),
        **images("profile", figure),
    }
    output.write(folder, files)
    if settings.json:
        print(output.to_json(record))
    else:
        output.wide().print(*tables.printed(settings.model, every), sep="\n")
    return 0
