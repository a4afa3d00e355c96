"""What a verdict is made of, and `icl-krr verify`."""

import csv
import dataclasses
import json
import subprocess
import sys
import time

import jax
import numpy as np
import psutil
import pytest

from icl_krr import cli, plots
from icl_krr.experiments import claims_to_markdown
from icl_krr.experiments._claims import claim as verdicts, verify
from icl_krr.experiments._claims.claim import FALSE, HOLDS, compare, headline, judge, readings
from icl_krr.experiments._claims.result import bootstrap, summarise
from icl_krr.experiments._claims.tables import table_of_sentences
from icl_krr.experiments._shared import spectra
from icl_krr.experiments._shared.rows import tidy

c01, c16 = (verify.modules()[name] for name in ("C1", "C16"))


def test_a_check_compares_entry_by_entry():
    check = compare("", [[1.0, 2.0], [3.0, 5.0], [9.0, 1.0]], [[2.0, 2.0], [4.0, 4.0], [3.0, 2.0]])
    assert (check.measured, check.bound, check.tightness) == (9.0, 3.0, 3.0)
    assert (check.violations, check.draw, check.holds) == (2 / 3, 1, False)
    assert np.isnan(check.vacuous)
    assert compare("", [1.0, 2.0], 2.0, trivial=[1.0, 4.0]).vacuous == 0.5
    assert compare("", 1.0 + 1e-10, 1.0).holds
    assert not compare("", 1.0 + 1e-10, 1.0, slack=1e-12).holds


def test_what_is_no_number_violates():
    assert not compare("", [0.0, np.nan], 1.0).holds
    assert not compare("", [0.0, np.inf], 1.0).holds
    assert not compare("", [0.0, 1.0], [1.0, np.nan]).holds
    infinite = compare("", [np.inf, 1.0], [np.inf, 2.0])
    assert (infinite.measured, infinite.holds) == (np.inf, False)


def test_zero_is_a_bound_and_within_is_two_sided():
    assert compare("", 0.0, 0.0).tightness == 0
    one = compare("", 1e-9, 0.0)
    assert (one.tightness, one.holds) == (np.inf, False)
    holds = [verdicts.within(at, 1.0, 3.0)("").holds for at in ([1.0, 3.0], [0.9], [3.1])]
    assert holds == [True, False, False]


def test_the_status_follows_from_the_checks():
    good, bad = compare("good", 0, 1), compare("bad", 2, 1)
    stated, broken = (check._replace(stated=True) for check in (good, bad))
    assert judge([stated, good]) == HOLDS
    assert judge([stated, bad]) == verdicts.OPEN
    assert judge([broken, bad]) == verdicts.OPEN
    assert judge([broken, good]) == FALSE
    saved, lost = (check._replace(reading="another") for check in (good, bad))
    assert judge([broken, saved]) == verdicts.CORRECTED
    assert judge([broken, lost, good]) == FALSE
    assert judge([broken, saved, lost]) == FALSE
    assert judge([broken, saved, lost._replace(reading="a third")]) == verdicts.CORRECTED
    assert judge([stated, lost]) == HOLDS
    assert judge([broken._replace(reading="another"), saved]) == FALSE
    assert judge([stated._replace(reading="another"), broken, saved]) == verdicts.CORRECTED
    assert headline([broken, saved, bad]) == bad
    assert readings((broken, saved, lost._replace(reading="a third"), good)) == {
        verdicts.PRINTED: False,
        "another": True,
        "a third": False,
    }
    assert headline([good, stated, broken]).name == "bad"
    assert headline([good, stated]).name == "good"


def test_rows_are_one_for_every_combination():
    rows = tidy({"a": [1, 2], "b": ["x", "y", "z"]}, v=np.arange(6).reshape(2, 3), w=[[7], [8]])
    assert len(rows) == 6
    assert rows[4] == {"a": 2, "b": "y", "v": 4, "w": 8}


def cell(*checks):
    """What a claim gave with one seed."""
    return {"checks": [check._asdict() for check in checks], "seconds": 1.0, "cpu_seconds": 2.0}


def test_seeds_are_put_together():
    claim = dataclasses.replace(c01.CLAIM, expected=FALSE)
    values = {3: 1.0, 4: 3.0, 5: 5.0}
    checks = {seed: compare("x", [0.0, value], 2.0, stated=True) for seed, value in values.items()}
    cells = {seed: cell(check) for seed, check in checks.items()}
    result = summarise("C1", claim, claim.quick, cells)
    assert (result["status"], result["agrees"]) == (FALSE, True)
    assert result["counterexample"] == {"seed": 4, "draw": 1}
    assert np.isclose(result["measured"], 3.0)
    low, high = result["interval"]
    assert 1 <= low < 3 < high <= 5
    assert result["checks"][0]["tightness"] == 2.5
    assert bootstrap(np.array([1.0])) is None


@pytest.mark.slow
def test_the_counterexample_is_that_of_its_seed(x64):
    """The seed and the draw that are printed give the measured violation again."""
    result, _ = verify.verify_all({"C16": c16.CLAIM}, seeds=range(7, 8), quick=True)["C16"]
    config, place = c16.CLAIM.quick, result["counterexample"]
    keys = jax.random.split(jax.random.key(place["seed"]), config.draws)
    at, sketch_key = jax.random.split(keys[place["draw"]])
    sizes, m = (config.spectrum, config.num_features, config.num_supports), config.width
    x, h = spectra.spectral_task(at, *sizes).x, config.levels[-1]
    P = spectra.sketch("orthonormal", sketch_key, x, m)
    x = spectra.of_rank(m, at, *sizes) + h * x
    K, Q = np.asarray(x @ x.T), np.linalg.qr(x @ spectra.hiding(P, x, h**2))[0]
    sigma, lost = np.linalg.eigvalsh(K)[::-1], np.linalg.norm(K - Q @ Q.T @ K, 2)
    assert sigma[m:].sum() / sigma[0] < h**2
    assert lost > max(sigma[m:].sum() / h, 0.2 * sigma[0])
    assert [check["violations"] for check in result["checks"][:4]] == [1.0, 1.0, 1.0, 0.0]


def test_one_claim_draws_its_figure(tmp_path, capsys):
    assert cli.main(["verify", "c1", "--quick", "--json", "--out", str(tmp_path)]) == 0
    record = json.loads(capsys.readouterr().out)
    (claim,) = record["claims"]
    assert {"statement", "status", "measured", "bound", "tightness", "seconds"} <= {*claim}
    assert (claim["id"], claim["counterexample"], claim["dtype"]) == ("C1", None, "float64")
    assert record["meta"]["seed"] == 0
    rows = list(csv.DictReader((tmp_path / "C1.csv").read_text().splitlines()))
    assert len(rows) == c01.CLAIM.quick.draws * len(c01.CLAIM.quick.temperatures)
    assert (tmp_path / "C1.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((tmp_path / "claims.json").read_text()) == record
    assert "| C1: " in (tmp_path / "claims.md").read_text()


def test_a_claim_with_a_seed_of_an_earlier_run_is_not_run_again(tmp_path, capsys, monkeypatch):
    argv = ["verify", "C1", "--quick", "--json", "--out", str(tmp_path)]
    assert cli.main([*argv, "--seeds", "2"]) == 0
    (first,) = json.loads(capsys.readouterr().out)["claims"]
    seeds = []

    def run(config, key):
        seeds.append(jax.random.key_data(key)[-1])
        return c01.run(config, key)

    run.__module__ = c01.__name__
    monkeypatch.setattr(c01, "CLAIM", dataclasses.replace(c01.CLAIM, run=run))
    assert cli.main([*argv, "--seeds", "2"]) == 0
    assert json.loads(capsys.readouterr().out)["claims"] == [first]
    assert cli.main([*argv, "--seeds", "3"]) == 0
    assert json.loads(capsys.readouterr().out)["claims"][0]["seeds"] == 3
    assert cli.main([*argv, "--set", "draws=3"]) == 0
    assert seeds == [2, 0]


def test_a_claim_runs_with_other_settings(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(c01, "CLAIM", dataclasses.replace(c01.CLAIM, expected=FALSE))
    argv = ["verify", "C1", "--quick", "--long", "--out", str(tmp_path)]
    assert cli.main([*argv, "--set", "draws=3", "temperatures=0.5,2"]) == 0
    printed = capsys.readouterr().out
    for words in (
        *("readings: as printed: holds", "there is no recorded verdict", "tightness"),
        "settings: draws 3, num_supports 64, num_features 3, temperatures (0.5, 2.0)",
        "experiment: icl_krr/experiments/_claims/c01_",
        *(c01.CLAIM.statement[:70], "|head - Nadaraya-Watson| / |y|_max <= 1e-12"),
    ):
        assert words in printed
    (claim,) = json.loads((tmp_path / "claims.json").read_text())["claims"]
    assert (claim["settings"]["temperatures"], claim["expected"]) == ([0.5, 2.0], "")
    rows = list(csv.DictReader((tmp_path / "C1.csv").read_text().splitlines()))
    settings = [(row["setting num_supports"], row["setting temperatures"]) for row in rows]
    assert settings == 3 * 2 * [("64", "(0.5, 2.0)")]
    assert "draws 3, num_supports 64" in (tmp_path / "claims.md").read_text()


def test_the_caveats_of_a_claim_are_printed():
    claim = verify.claims()["C8"]
    readings = cell(compare("x", 2.0, 1.0, stated=True), compare("y", 0.0, 1.0, reading="more"))
    result = summarise("C8", claim, claim.quick, {0: readings})
    readings = {"as printed": "false", "more": "holds", claim.untested[0]: "not tested"}
    assert result["readings"] == readings
    first, *others = (f" | {reading} | {verdict} |" for reading, verdict in readings.items())
    page = claims_to_markdown([result])
    assert f"| C8: {claim.statement}{first}" in page
    assert all(f"| {line}\n" in page for line in others)


def test_sentences_of_a_source_have_the_claims_that_test_them():
    one = c01.CLAIM
    result = summarise("C1", one, one.quick, {0: cell(compare("x", 0.0, 1.0, stated=True))})
    first = result | {"source": "A 2020, part 1", "quote": "One holds. Two holds: it does."}
    more = result | {"source": "A 2020, part 2", "quote": "[...] Two holds: it does. | more"}
    header, lines = table_of_sentences([first, more | {"id": "C2"}])
    assert header == ["source", "sentence", "claims"]
    assert lines == [
        ["A 2020, part 1", "One holds.", "C1"],
        ["A 2020, part 1; A 2020, part 2", "Two holds: it does.", "C1, C2"],
        ["A 2020, part 2", "more", "C2"],
    ]


def test_a_flag_that_xla_does_not_know_is_left_out():
    assert verify.quick_flags("xla_cpu_use_fusion_emitters_of_old") == ""


@pytest.mark.slow
def test_claims_side_by_side_are_those_one_after_the_other(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["verify", "C16", "C20", "--quick", "--json", "--seeds", "2"]) == 0
    apart = {claim["id"]: claim for claim in json.loads(capsys.readouterr().out)["claims"]}
    assert list(apart) == ["C16", "C20"]
    alone, _ = verify.verify_all({"C16": c16.CLAIM}, seeds=range(2), quick=True)["C16"]
    assert np.isclose(apart["C16"]["measured"], alone["measured"], rtol=1e-6)
    assert apart["C16"]["counterexample"] == alone["counterexample"]
    assert np.allclose(apart["C16"]["interval"], alone["interval"])


@pytest.mark.slow
def test_workers_end_with_their_parent(tmp_path):
    """However it ends: they are asked for by a process that is killed."""
    code = "from icl_krr.cli import main; main(['verify', 'C1', 'C2', 'C4', '--quick'])"
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL, cwd=tmp_path)
    family = psutil.Process(parent.pid)
    for _ in range(600):
        workers = [one for one in family.children() if "spawn_main" in " ".join(one.cmdline())]
        if workers:
            break
        time.sleep(0.05)
    time.sleep(3)
    parent.kill()
    parent.wait()
    assert workers
    _, alive = psutil.wait_procs(workers, timeout=20)
    assert not alive


def test_another_verdict_than_before_is_exit_status_1(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(c01, "CLAIM", dataclasses.replace(c01.CLAIM, expected=FALSE))
    assert cli.main(["verify", "C1", "--quick", "--out", str(tmp_path)]) == 1
    printed = capsys.readouterr().out
    for words in ("0 of 1 verdicts", "expected", f"C1: {c01.CLAIM.title} "):
        assert words in printed


def test_figures_name_what_they_show():
    axes = {"seed": (0, 1), "draw": [0], "temperature": (1.0, 2.0)}
    rows = tidy(axes, gap=[1e-15, 2e-15])
    figure = plots.claim_figure("C1", c01.CLAIM, rows)
    (axis,) = figure.axes
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("temperature", "gap")
    assert "C1" in figure.get_suptitle() + axis.get_title()
    assert np.isfinite(np.asarray([line.get_ydata() for line in axis.lines])).all()
