"""`icl-krr solverbench`: write models of known algorithm, identify them, and score verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from ...files import to_csv
from ...text_tables import Table
from .. import output
from ..options import Command, refuse_unused

WRITE, IDENTIFY, SCORE = "write", "identify", "score"
OUT = Path("icl-krr-solverbench")

Show = Callable[[str], None]
Results = tuple[dict[str, Any], list[Table]]


@dataclass(frozen=True)
class Solverbench(Command):
    """Test a method that says which solver a model runs, on models of known algorithm. The ACTION
    write writes the models, their tasks and answers to the folder models, and the truth to the
    folder labels. Some models run no known solver: the open set. The ACTION identify writes the
    verdicts of icl_krr.probes.identify on these models to verdicts.csv. The ACTION score scores
    TABLE, such as verdicts.csv."""

    action: tyro.conf.Positional[
        Annotated[Literal["write", "identify", "score"], tyro.conf.arg(metavar="ACTION")]
    ]
    """One of write, identify and score (see above)."""
    table: tyro.conf.Positional[Annotated[Path | None, tyro.conf.arg(metavar="[TABLE.csv]")]] = None
    """Table of verdicts, with the columns model, status and names. A status is "identified",
    "not distinguishable", "close to" or "none". Names of several solvers are separated by spaces.
    Only for score."""
    models: Path = OUT / "models"
    """Folder of the models, for identify."""
    labels: Path = OUT / "labels"
    """Folder of the labels, for score."""
    seed: int = 0
    """Seed of every random choice."""
    quick: bool = False
    """Use few and small models."""
    json: bool = False
    """Print JSON instead of tables."""
    out: Path | None = None
    """Folder for the results.
    If None, icl-krr-solverbench for write, and icl-krr-solverbench-ACTION otherwise."""

    def refuse_options_without_effect(self) -> None:
        if self.action == SCORE and self.table is None:
            raise ValueError("TABLE.csv must be given for score, got none; give verdicts.csv")
        if self.action != SCORE and self.table is not None:
            raise ValueError(
                f"TABLE.csv must not be given for {self.action}, got {self.table}; remove it"
            )
        unused = {
            WRITE: ("models", "labels"),
            IDENTIFY: ("labels", "quick"),
            SCORE: ("models", "seed", "quick"),
        }[self.action]
        refuse_unused(self, unused, f"for {self.action}")


def run(settings: Solverbench) -> int:
    import jax

    action = {WRITE: write, IDENTIFY: identify, SCORE: score_table}[settings.action]
    own = OUT if settings.action == WRITE else Path(f"{OUT}-{settings.action}")
    folder = settings.out or own
    meta = output.surroundings(settings, dtype="float64")
    with output.status() as status, jax.enable_x64(True):
        record, tables = action(
            settings, folder, lambda words: status.update(f"{settings.action}: {words}")
        )
    if settings.json:
        print(output.to_json({"meta": meta, **record}))
    else:
        for table in tables:
            output.wide().print(table)
    return 0


def write(settings: Solverbench, folder: Path, show: Show) -> Results:
    from ...experiments.solverbench.folder import LABELS, MODELS, write_bench
    from ...experiments.solverbench.settings import QUICK, BenchConfig

    sizes: dict[str, Any] = {"quick": True, **QUICK} if settings.quick else {}
    output.prepare(folder)
    labels = write_bench(folder, BenchConfig(seed=settings.seed, **sizes), show)
    counts = dict(Counter(label["variant"] for label in labels["models"].values()))
    title = f"SolverBench, seed {settings.seed}, float64; see {folder / MODELS}, {folder / LABELS}"
    lines = [[name, str(count)] for name, count in counts.items()]
    return {"models": counts}, [Table(title, ["variant", "models"], [lines])]


def identify(settings: Solverbench, folder: Path, show: Show) -> Results:
    from ...experiments import study
    from ...experiments.solverbench.reading import read_models
    from ...experiments.solverbench.verdicts import identification

    manifest, models = read_models(settings.models)
    output.prepare(folder)
    asked = identification(manifest, models, settings.seed)
    found = study.run(
        asked, folder, lambda words, done, total: show(f"{done} of {total} models, {words}")
    )
    meta = output.surroundings(settings, dtype=manifest["dtype"], **asked.settings)
    rows = [cell | row for cell, row in found.cells]
    record = output.json_file({"meta": meta, "rows": rows})
    output.save(folder, {"verdicts.json": record, "verdicts.csv": to_csv(rows)})
    header = list(dict.fromkeys(name for row in rows for name in row))
    lines = [[cell(row.get(name, "")) for name in header] for row in rows]
    table = Table("Verdicts of identify", header, [lines])
    return {"rows": rows}, [table]


def cell(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def score_table(settings: Solverbench, folder: Path, show: Show) -> Results:
    from ...experiments.solverbench.folder import TRUTHS
    from ...experiments.solverbench.reading import read_labels
    from ...experiments.solverbench.score import markdown, open_table, score, variant_table
    from ...experiments.solverbench.verdicts import read_verdicts

    labels = read_labels(settings.labels / TRUTHS)
    assert settings.table is not None
    found = score(labels["models"], read_verdicts(settings.table, labels["models"]))
    output.prepare(folder)
    record = {"config": asdict(labels["config"]), **found}
    meta = output.surroundings(settings, dtype=labels["dtype"])
    files = {
        "score.json": output.json_file({"meta": meta, **record}),
        "score.md": markdown(found).encode(),
    }
    output.write(folder, files)
    tables = (
        ("Models that run a candidate: share of each outcome (95 %)", variant_table(found)),
        ("Models that run no candidate: share of each verdict (95 %)", open_table(found)),
    )
    return record, [Table(title, header, [lines]) for title, (header, lines) in tables]
