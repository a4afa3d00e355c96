"""`icl-krr solverbench`: write models of known algorithm, identify them, and score verdicts."""

from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from ..._core.text_tables import TextTable
from .._options import Command, refuse_unused
from .._output import Outcome, working

WRITE, IDENTIFY, SCORE = "write", "identify", "score"
OUT = Path("icl-krr-solverbench")


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

    float64 = True

    @property
    def folder(self) -> Path:
        return self.out or (OUT if self.action == WRITE else Path(f"{OUT}-{self.action}"))

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


def run(settings: Solverbench) -> Outcome:
    return {WRITE: write, IDENTIFY: identify, SCORE: score_table}[settings.action](settings)


def write(settings: Solverbench) -> Outcome:
    from ...experiments.solverbench._folder import LABELS, MODELS, write_bench
    from ...experiments.solverbench._settings import QUICK, BenchConfig

    sizes: dict[str, Any] = {"quick": True, **QUICK} if settings.quick else {}
    folder = settings.folder
    with working(settings) as show:
        labels = write_bench(folder, BenchConfig(seed=settings.seed, **sizes), show)
    counts = dict(Counter(label["variant"] for label in labels["models"].values()))
    title = f"SolverBench, seed {settings.seed}, float64; see {folder / MODELS}, {folder / LABELS}"
    lines = [[name, str(count)] for name, count in counts.items()]
    return Outcome({"models": counts}, [TextTable(title, ["variant", "models"], [lines])])


def identify(settings: Solverbench) -> Outcome:
    import jax

    from ...experiments import _study
    from ...experiments.solverbench._load import read_models
    from ...experiments.solverbench._verdicts import identification_study

    with jax.enable_x64(True):
        manifest, models = read_models(settings.models)
    study = identification_study(manifest, models, settings.seed)
    with working(settings) as show:
        results = _study.run(study, settings.folder, show)
    rows = [cell | row for cell, row in results.cells]
    header = list(dict.fromkeys(name for row in rows for name in row))
    lines = [[cell(row.get(name, "")) for name in header] for row in rows]
    table = TextTable("Verdicts of identify", header, [lines])
    files = {"verdicts.json": {"rows": rows}, "verdicts.csv": rows}
    return Outcome({"rows": rows}, [table], files, {"dtype": manifest["dtype"], **study.settings})


def cell(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def score_table(settings: Solverbench) -> Outcome:
    from ...experiments.solverbench._folder import TRUTHS
    from ...experiments.solverbench._load import read_labels
    from ...experiments.solverbench._score import markdown, open_table, score, variant_table
    from ...experiments.solverbench._verdicts import read_verdicts

    labels = read_labels(settings.labels / TRUTHS)
    assert settings.table is not None
    verdicts = read_verdicts(settings.table, labels["models"])
    with working(settings):
        scores = score(labels["models"], verdicts)
    record = {"config": asdict(labels["config"]), **scores}
    tables = {
        "Models that run a candidate: share of each outcome (95 %)": variant_table(scores),
        "Models that run no candidate: share of each verdict (95 %)": open_table(scores),
    }
    parts = [TextTable.of(title, table) for title, table in tables.items()]
    files = {"score.json": record, "score.md": markdown(scores)}
    return Outcome(record, parts, files, {"dtype": labels["dtype"]})
