"""Tables in narrow and wide terminals: no word is broken, no line is longer than the terminal."""

import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from benchmarks.refresh import claim_result
from icl_krr.cli import identification as tables, output
from icl_krr.cli.commands import ablate, sweep, train, verify
from icl_krr.cli.commands.ablate import Ablate
from icl_krr.experiments.ablate.ablation import Ablation
from icl_krr.experiments.claims.verify import claims
from icl_krr.experiments.identify.trained_model import Findings, distance_table
from icl_krr.experiments.shared.recipe import RUNS
from icl_krr.experiments.sweep.config import SweepConfig
from icl_krr.experiments.sweep.grid import BASELINES
from icl_krr.files import from_csv
from icl_krr.kernels import Gaussian
from icl_krr.probes import CandidateFit, Identification
from icl_krr.probes.naming.distances import Distance
from icl_krr.probes.naming.identification_tables import candidate_table
from icl_krr.probes.naming.suspect import Suspect
from icl_krr.text_tables import Table, as_text, wrap

RESULTS = Path(__file__).parent.parent / "benchmarks" / "results"


def record(name):
    return json.loads((RESULTS / f"{name}.json").read_text())


def of_ablation(name):
    found = record(f"ablate-{name}")
    ablate.print_table(Ablate(name), Ablation(found["rows"], found["meta"]["losses"]))


def of_claims(long):
    found = [claim_result(entry, seed=3, draw=14) for entry in record("claims")["claims"]]
    verify.print_claims(found, claims(), long)


def distances(entries):
    return {
        space: Distance(**entries[space], matrix=np.zeros((6, 193)))
        for space in ("prediction", "hat")
    }


def identification():
    found = record("identify-gp-encoder")
    suspects = [
        Suspect(
            CandidateFit(c["candidate"], c["kernel"], c["values"], tuple(c["alignment"]), 0.0),
            distances(c),
            c["ruled out"],
        )
        for c in found["candidates"]
    ]
    known = {name: distances(spaces) for name, spaces in found["baselines"].items()}
    edges = tuple(found["strata of the condition number"])
    return Identification(
        found["status"], tuple(found["remain"]), tuple(suspects), known, edges, ()
    )


def of_identification():
    layers = record("identify-gp-encoder")["layers"]
    tables.print_findings(
        "gp-encoder", Findings(identification(), layers, None, Gaussian(0.4), 0.05)
    )


def of_sweep():
    config = SweepConfig("depth", seeds=1)
    gaps = {f"{name} gap": 0.85123 for name in BASELINES} | dict.fromkeys(("d_eff", "tail"), np.nan)
    sweep.print_medians(
        config,
        [
            {"axis": "depth", "line": line, "seed": 0, "value": t, "step": t, "gap": 1.2e-7, **gaps}
            for line in config.lines
            for t in config.values
        ],
    )


COMMANDS = {
    "ablate": lambda: of_ablation("conjugate-gradient"),
    "ablate, trained": lambda: of_ablation("gp-encoder"),
    "verify": lambda: of_claims(False),
    "verify --long": lambda: of_claims(True),
    "identify": of_identification,
    "sweep": of_sweep,
    "train": lambda: train.print_metrics(from_csv(RUNS / "gp-encoder" / "metrics.csv"), 0),
}


def cells_of(printed):
    """The text in each cell of the printed tables, a piece for every line."""
    lines = (line.replace("┃", "│") for line in printed.splitlines() if line[:1] in ("│", "┃"))
    return [cell for line in lines for cell in line.split("│")[1:-1]]


@pytest.fixture
def words_of_tables(monkeypatch):
    """The words of all cells of the tables that are printed."""
    words = set()
    console = Table.__rich_console__

    def remembered(table, *rest):
        for cells in (table.header, *(line for group in table.groups for line in group)):
            words.update(word for cell in cells for word in cell.split())
        return console(table, *rest)

    monkeypatch.setattr(Table, "__rich_console__", remembered)
    return words


@pytest.mark.parametrize("width", [80, 140])
@pytest.mark.parametrize("command", COMMANDS)
def test_tables_fit_the_terminal(command, width, monkeypatch, capsys, words_of_tables):
    monkeypatch.setenv("COLUMNS", str(width))
    COMMANDS[command]()
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= width
    found = cells_of(printed)
    assert len(found) > 20
    assert {word for cell in found for word in cell.split()} <= words_of_tables
    if width == 140 and command != "identify":
        assert words_of_tables == {word for cell in found for word in cell.split()}
        assert "Not shown" not in printed


def test_a_column_that_wraps_has_room():
    """Columns that would be narrower continue below."""
    lines = [["a", *["b c d e " * 9] * 3]]
    table = Table("t", ["name", "first", "second", "third"], [lines])
    for width in (24, 40, 60, 90):
        cells = cells_of(as_text(table, width=width))
        assert min(len(cell) - 2 for cell in cells if "b" in cell) >= 12


def test_claims_are_short_by_default(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    of_claims(False)
    short = capsys.readouterr().out
    assert len(short.splitlines()) <= 2.5 * len(record("claims")["claims"])
    assert "tightness" not in short
    assert "│ this task " not in short
    monkeypatch.setenv("COLUMNS", "140")
    of_claims(False)
    wide = capsys.readouterr().out
    assert "│ Cawley 2025 " in wide
    assert "│ this task " in wide
    monkeypatch.setenv("COLUMNS", "80")
    of_claims(True)
    whole = capsys.readouterr().out
    assert "tightness" in whole
    for result in record("claims")["claims"]:
        assert f"│ {result['id']}: " in short
        assert f"│ {result['id']} " in whole


def test_columns_that_do_not_fit_are_named_or_continued():
    header = ["name", *(f"column{i}" for i in range(6))]
    lines = [["first", *"123456"], ["last", *[""] * 6]]
    continued = as_text(Table("t", header, [lines]), width=40)
    assert continued.count("name") > 1
    assert continued.count("last") == 1  # a line without numbers is not repeated
    for name in header:
        assert name in continued
    dropped = as_text(Table("t", header, [lines], ("column1", "column0"), "results.csv"), width=60)
    assert dropped.count("┃ name") == 1
    assert dropped.endswith("Not shown in 60 columns: column1. See results.csv.")


def test_intervals_stay_together_where_there_is_room():
    assert wrap("0.31 (0.27, 0.35)", 12) == ["0.31", "(0.27, 0.35)"]
    assert wrap("0.31 (0.27, 0.35)", 11) == ["0.31 (0.27,", "0.35)"]
    assert wrap("d / d (temperature, ridge), 32 steps", 40) == [
        "d / d (temperature, ridge), 32 steps"
    ]
    assert wrap("", 5) == []


def test_an_identification_prints_the_table_of_the_command(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "100")
    of_identification()
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    found = identification()
    table = candidate_table(found.suspects, found.baselines, found.strata)
    assert str(found).startswith(as_text(table, width=100))
    assert " ".join(str(found).split()).endswith(found.verdict)
    assert set(str(found).splitlines()) <= set(printed)
    assert distance_table(found, "hat")[1][-1][0] == "gradient flow"


def test_without_a_terminal_tables_are_wide_unless_the_user_says_so(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert output.wide().width == 160
    monkeypatch.setenv("COLUMNS", "72")
    assert output.wide().width == Console().width == 72
