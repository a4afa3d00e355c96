"""Tables in narrow and wide terminals."""

import numpy as np
import pytest
from rich.console import Console

from benchmarks.records import read
from icl_krr._core.files import from_csv
from icl_krr._core.text_tables import LONGEST_WORD, TextTable, as_text
from icl_krr.cli import _identification as tables, _output
from icl_krr.cli._commands import ablate, sweep, train, verify
from icl_krr.experiments import RUNS, AblateConfig, SweepConfig, claims
from icl_krr.experiments._ablate.ablation import Ablation
from icl_krr.experiments._sweep.grid import BASELINES
from icl_krr.experiments.identify._trained_model import Findings
from icl_krr.kernels import Gaussian
from icl_krr.probes import CandidateFit, Identification
from icl_krr.probes._naming.distances import CandidateResult, Distance

CLAIMS, FOUND = read("claims")["claims"], read("identify-gp-encoder")


def of_ablation():
    record = read("ablate-conjugate-gradient")
    config = AblateConfig("conjugate-gradient")
    return ablate.printed(config, Ablation(record["rows"], record["meta"]["losses"]))


def of_claims(long):
    place = {"counterexample": {"seed": 3, "draw": 14}}
    results = [row | {"tightness": row["tightness"] or float("inf")} | place for row in CLAIMS]
    return verify.summary(results, claims(), long)


def distances(entries):
    matrix = np.zeros((6, 193))
    return {space: Distance(**entries[space], matrix=matrix) for space in ("prediction", "hat")}


def identification():
    candidates = [
        CandidateResult(
            CandidateFit(c["candidate"], c["kernel"], c["values"], tuple(c["alignment"]), 0.0),
            distances(c),
            c["ruled out"],
        )
        for c in FOUND["candidates"]
    ]
    baselines = {name: distances(spaces) for name, spaces in FOUND["baselines"].items()}
    edges, remain = (tuple(FOUND[name]) for name in ("strata of the condition number", "remain"))
    return Identification(FOUND["status"], remain, tuple(candidates), baselines, edges, ())


def of_identification():
    findings = Findings(identification(), FOUND["layers"], None, Gaussian(0.4), 0.05)
    return tables.printed_findings("gp-encoder", findings)


def of_sweep():
    config = SweepConfig("depth", seeds=1)
    gaps = {f"{name} gap": 0.85123 for name in BASELINES} | dict.fromkeys(("d_eff", "tail"), np.nan)
    return sweep.summary(
        config,
        [
            {"axis": "depth", "line": line, "seed": 0, "value": t, "step": t, "gap": 1.2e-7, **gaps}
            for line in config.lines
            for t in config.values
        ],
    )


COMMANDS = {
    "ablate": of_ablation,
    "verify": lambda: of_claims(False),
    "verify --long": lambda: of_claims(True),
    "identify": of_identification,
    "sweep": of_sweep,
    "train": lambda: train.summary(from_csv(RUNS / "gp-encoder" / "metrics.csv"), 0, "y"),
}


@pytest.mark.parametrize("width", [80, 140])
@pytest.mark.parametrize("command", COMMANDS)
def test_tables_fit_the_terminal_and_break_no_word(command, width, monkeypatch, capsys):
    words, console = set(), TextTable.__rich_console__

    def remembered(table, *rest):
        for line in (table.header, *(line for group in table.groups for line in group)):
            words.update(word for word in " ".join(line).split() if len(word) <= LONGEST_WORD)
        return console(table, *rest)

    monkeypatch.setattr(TextTable, "__rich_console__", remembered)
    monkeypatch.setenv("COLUMNS", str(width))
    _output.print_parts(COMMANDS[command]())
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= width
    lines = [line for line in printed.splitlines() if line[:1] in ("│", "┃")]
    assert len(lines) >= 10
    assert words <= {word for line in lines for word in line.split()}


def test_an_identification_is_short_by_default():
    verdict, distance, control = tables.summary("gp-encoder", identification())
    assert verdict.startswith("gp-encoder: none is close")
    assert distance.startswith("distance: preconditioned_chebyshev, ")
    nearest = min(
        identification().baselines.values(), key=lambda one: sum(d.mean for d in one.values())
    )
    assert all(f"{d.mean:.3g} in " in control for d in nearest.values())
    assert max(map(len, (distance, control))) <= 100


def test_claims_are_short_by_default(monkeypatch, capsys):
    texts = {}
    for long, width in ((False, 80), (False, 140), (True, 80)):
        monkeypatch.setenv("COLUMNS", str(width))
        _output.print_parts(of_claims(long))
        texts[long, width] = capsys.readouterr().out
    short, wide, whole = texts.values()
    assert len(short.splitlines()) <= 2.5 * len(CLAIMS)
    for words, columns, left_out in (
        ("tightness", whole, short),
        ("│ this task ", wide, short),
        ("│ Cawley 2025 ", wide, short),
    ):
        assert words in columns
        assert words not in left_out
    for result in CLAIMS:
        assert f"│ {result['id']}: " in short
        assert f"│ {result['id']} " in whole


def test_columns_that_do_not_fit_continue_and_numbers_are_on_the_right():
    header = ["name", *(f"column{i}" for i in range(6))]
    printed = as_text(TextTable("t", header, [[["first", *"123456"]]]), width=40)
    assert printed.count("┃ name ") == printed.count("│ first ") == 2
    for i in range(6):
        assert f"┃ column{i} ┃" in printed
        assert f"│       {i + 1} │" in printed


def test_an_identification_prints_the_table_of_the_command(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "100")
    _output.print_parts(of_identification())
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    result = identification()
    assert " ".join(str(result).split()).endswith(result.verdict)
    assert {*as_text(*result.tables).splitlines()} <= {*printed}


def test_without_a_terminal_tables_are_wide_unless_the_user_says_so(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert _output.table_console().width == 160
    monkeypatch.setenv("COLUMNS", "72")
    assert _output.table_console().width == Console().width == 72
