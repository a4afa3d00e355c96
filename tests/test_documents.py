"""What the README, the results and the guides say is run, parsed or compared with its record."""

import csv
import inspect
import json
import re
import shlex
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import jax
import numpy as np
import pytest
from helpers import kernel_matrix

import icl_krr as ik
from benchmarks import (
    ablations,
    converged,
    devices,
    optimisers,
    posteriors,
    probe_similarity,
    profiles,
    regressors,
    retraining,
    runs as reference_runs,
    scaling,
    shapes,
    streams,
    trained,
    what_networks_run,
    workarounds,
)
from benchmarks.contests import Row, markdown
from benchmarks.records import RUNS, read
from benchmarks.refresh import solver_table
from icl_krr import experiments
from icl_krr._core.files import to_markdown
from icl_krr._core.text_tables import format_number
from icl_krr.catalogue import SOLVERS, spelled, taken
from icl_krr.cli import _commands, main
from icl_krr.cli._program import parse
from icl_krr.experiments import RETRAINING_STUDIES, holds_run, run_names, solverbench, weights_file
from icl_krr.experiments._ablate import ablation
from icl_krr.experiments._ablate.expected import EXPECTED
from icl_krr.experiments._scaling import FILE as SCALING_ROWS
from icl_krr.experiments._shared.retrained import FOLDER
from icl_krr.kernels import make_kernel
from icl_krr.tabular import construct, solver_keywords

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
BENCHMARKS = (ROOT / "benchmarks" / "README.md").read_text()
SAID = {"README": " ".join(README.split()), "benchmarks": " ".join(BENCHMARKS.split())}
RESULTS = ROOT / "benchmarks" / "results"
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.S)
ROOMS = [ik, *filter(inspect.ismodule, (getattr(ik, name) for name in ik.__all__))]
TEXTS = {
    "README.md": README,
    "benchmarks/README.md": BENCHMARKS,
    "benchmarks/comparison.md": (ROOT / "benchmarks" / "comparison.md").read_text(),
    **{room.__name__: room.__doc__ for room in ROOMS},
}
COMMANDS = sorted(
    {
        " ".join(command.split())
        for text in TEXTS.values()
        for command in re.findall(r"(?:`|^|&& )(icl-krr [a-z][^`\n]*)", text, re.M)
    }
)


def test_the_python_example_runs_in_few_programs(compiled_as_users_do, programs, capsys):
    """Two of them for the key, three for the distance that the reader computes."""
    example = EXAMPLES[0]
    assert len(example.strip().splitlines()) <= 12
    jax.clear_caches()
    exec(compile(example, "README.md", "exec"), names := {})
    assert 5 < len(programs) <= 10, programs
    *layout, gap, advice = capsys.readouterr().out.strip().splitlines()
    assert layout[0].split()[0] == "slot"
    assert float(gap) < 1e-4
    assert names["hat"].shape == (5, 32)
    assert advice.startswith("converged: error ")


def test_the_python_example_says_that_another_kernel_has_not_converged(capsys):
    exec(compile(EXAMPLES[0].replace("Linear()", "Exponential()"), "README.md", "exec"), {})
    (message,) = re.findall(r'it begins "(.*?)"', SAID["README"])
    advice, number = capsys.readouterr().out.splitlines()[-1], re.compile(r"0\.\d+")
    assert number.sub("", advice).startswith(number.sub("", message))
    assert float(number.findall(advice)[0]) > 0.1


def test_the_solver_in_one_file_runs(capsys):
    """And is what its name says, with as many blocks as are printed."""
    (example,) = EXAMPLES[1:]
    names = {}
    exec(compile(example, "README.md", "exec"), names)
    gap, blocks, summary, *_ = capsys.readouterr().out.splitlines()
    assert float(gap) < 1e-5 * abs(names["path"].alpha).max()
    assert names["path"].status.ok
    assert (blocks, summary) == ("2 blocks per step", "attention  softmax")
    task = names["task"]
    for kernel in (ik.Linear(), ik.Exponential()):
        numbers = {"ridge": 0.5, "spectrum": ik.spectral_bounds(kernel, task, ridge=0.5)}
        model = ik.compile(names["nesterov"], kernel, num_features=2, steps=9, **numbers)
        assert model.blocks_per_step == 2
        K, k = (kernel_matrix(kernel, x, task.x) for x in (task.x, task.x_query))
        high, low = np.sqrt(numbers["spectrum"])[::-1]
        y = np.asarray(task.y)
        before = alpha = 0 * y
        for _ in range(9):
            ahead = alpha + (high - low) / (high + low) * (alpha - before)
            before, alpha = alpha, ahead - (K @ ahead + 0.5 * ahead - y) / high**2
        expected = k @ alpha
        assert abs(ik.predict(model, task) - expected).max() < 1e-4 * abs(expected).max()


# beside the Python of the README: files that test_hosts.py reads, and a citation
OTHER_BLOCKS = {"README.md": ("python", "bibtex"), "icl_krr.training": ("bash", "yaml")}


def test_every_fenced_block_is_run_or_parsed():
    """Python runs here, the two commands in .ci/run; commands are parsed below."""
    for name, text in TEXTS.items():
        for kind, block in re.findall(r"^```(.*)\n((?:.*\n)*?)```", text, re.M):
            if kind == "sh":
                for line in block.splitlines():
                    assert line.split(" && ")[-1].startswith(("icl-krr ", "python -m pytest")), line
            else:
                assert kind in OTHER_BLOCKS.get(name, ()), block


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_is_shown_is_understood(command):
    argv = shlex.split(command)[1:]
    if argv[1:] in ([], ["--help"]):
        assert argv[0] in _commands.COMMANDS
        return
    assert type(parse(argv)).__name__.lower() == argv[0]
    if argv[0] in ("fit", "identify", "ablate") and argv[1] != "MODEL":
        words = {*run_names(), "constructions", "TABLE.csv", "my.py:nesterov"}
        assert argv[1] in words or spelled(argv[1]) in SOLVERS or holds_run(Path(argv[1]))


def test_the_setting_that_is_shown_changes_the_answer(tmp_path, capsys):
    (command,) = (one for one in COMMANDS if "--set" in one)
    argv = [*shlex.split(command)[1:], "draws=1", "--seeds", "1", "--json", "--out", str(tmp_path)]
    assert main(argv) == 0
    (here,) = json.loads(capsys.readouterr().out)["claims"]
    (recorded,) = (one for one in read("claims")["claims"] if one["id"] == here["id"])
    assert (recorded["status"], here["status"]) == ("holds", "not confirmed")
    assert recorded["measured"] < recorded["bound"] < here["measured"] / 10


def test_every_command_is_in_the_table():
    assert {"icl-krr demo", "icl-krr fit TABLE.csv --target COLUMN"} <= set(COMMANDS)
    assert len(COMMANDS) > 15
    assert re.findall(r"^\| `icl-krr (\w+)", README, re.M) == [*_commands.COMMANDS]


def test_the_scripts_that_are_named_exist():
    scripts = set(re.findall(r"python -m (benchmarks[.\w]*)", " ".join(TEXTS.values())))
    assert len(scripts) > 5
    for script in scripts:
        assert find_spec(script), script


def test_the_commands_are_those_that_ci_runs():
    _commands = re.findall(r"```sh\n(.*?)\n```", README, re.S)
    ci = (ROOT / ".ci" / "run").read_text()
    for command in _commands[:2]:
        install, run = command.split(" && ")
        assert install.split()[-1].strip('"').split("[")[0] == "."
        assert run.split(" --")[0] in ci


@pytest.mark.parametrize(("name", "least"), [("README.md", 10), ("benchmarks/README.md", 20)])
def test_the_linked_files_exist(name, least):
    links = [link for link in re.findall(r"\]\(([^)]+)\)", TEXTS[name]) if "://" not in link]
    assert len(links) > least
    for link in links:
        assert ((ROOT / name).parent / link).exists(), link


def test_every_source_of_the_comparison_is_cited():
    text = TEXTS["benchmarks/comparison.md"]
    source = r"^(\d+)\. \[.*\]\(https://github\.com/\S+/blob/[0-9a-f]{40}/\S+\)$"
    sources = [int(number) for number in re.findall(source, text, re.M)]
    cited = {int(n) for group in re.findall(r" \[([\d, ]+)\]", text) for n in group.split(", ")}
    assert sources == sorted(cited) == [*range(1, len(sources) + 1)]


def test_every_result_is_led_to():
    linked = set(re.findall(r"\(results/(.*?)\)", BENCHMARKS))
    assert linked == {path.name for path in RESULTS.iterdir()}


def test_the_commands_of_the_results_are_those_that_made_them():
    row = r"^\|.*\(results/([\w-]+\.json)\) \| `(icl-krr [^`]*)` \| [^|]*\|$"
    rows = re.findall(row, BENCHMARKS, re.M)
    assert len(rows) >= 7
    for record, command in rows:
        made_by = json.loads((RESULTS / record).read_text())["meta"]["command"]
        made_by = re.sub(r" --(json|out \S+|reuse)", "", " ".join(made_by))
        assert made_by == command.replace("benchmarks/runs/", ""), record


def test_the_headline_numbers_are_those_of_the_results():
    (table,) = re.findall(r"\| figure \| dtype \| value \|\n.*\n((?:\|.*\n)+)", README)
    rows = table.splitlines()
    assert len(rows) >= 5
    assert set(rows) <= set(BENCHMARKS.splitlines())


def test_every_figure_is_shown_and_says_what_it_is_of():
    """The captions of the explorer and of the design, which is of no run, are beside them."""
    figures = ROOT / "benchmarks" / "figures"
    names = re.findall(r"\((?:benchmarks/)?figures/(.*?)\.svg\)", README + BENCHMARKS)
    drawn = {path.stem for path in figures.glob("*.svg")}
    assert set(names) == drawn
    assert not [path for path in figures.iterdir() if path.suffix != ".svg"]
    for name in drawn - {"explorer", "design"}:
        text = " ".join(re.findall(r">([^<>]+)</text>", (figures / f"{name}.svg").read_text()))
        assert re.search(r"seeds? (from )?\d", text), name
        assert re.search(r"float(32|64)", text), name


def of_rows(make):
    return lambda record: make(record["rows"])


def of_ablation(rows):
    return to_markdown(ablation.table(ablation.Ablation(rows, {})))


ABLATED = [*(f"ablate-{name.replace('_', '-')}" for name in EXPECTED), "ablate-gp-encoder"]
TABLES = {
    "bench": of_rows(lambda rows: markdown([Row(**row) for row in rows])),
    "claims": lambda record: experiments.claims_to_markdown(record["claims"]),
    "solverbench": of_rows(lambda rows: solverbench.markdown(solverbench.summary(rows))),
    "probe-similarity": probe_similarity.markdown,
    "converged": converged.markdown,
    "optimisers": optimisers.markdown,
    "solverbench-streams": streams.markdown,
    "error-profiles": profiles.markdown,
    "trained": trained.markdown,
    "what-networks-run": lambda record: what_networks_run.page(),
    "ablations": ablations.markdown,
    **dict.fromkeys(ABLATED, of_rows(of_ablation)),
    "workarounds": workarounds.document,
    "devices": of_rows(lambda rows: to_markdown((devices.HEADER, [*map(devices.line, rows)]))),
    "posteriors": posteriors.document,
    "regressors": regressors.document,
    "scaling": scaling.document,
    "shapes": shapes.document,
    "retraining": retraining.markdown,
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_the_one_that_was_measured(name):
    record = read(name) if (RESULTS / f"{name}.json").exists() else None
    assert TABLES[name](record) == (RESULTS / f"{name}.md").read_text()
    if record:
        meta = record.get("meta", record)
        assert {"device", "versions"} <= meta.keys()
        assert {"seed", "seeds", "dtype"} & meta.keys()


def test_what_the_tables_are_of():
    regressed, parts = read("regressors")["rows"], read("ablations")
    assert {row["regressor"] for row in regressed} == {*regressors.REGRESSORS, "mean"}
    assert [row["model"] for row in parts["trained"]] == parts["meta"]["models"]
    with SCALING_ROWS.open(newline="") as file:
        shipped = [float(row["excess"]) for row in csv.DictReader(file)]
    assert [row["excess"] for row in read("scaling")["models"]] == shipped
    for row in read("trained")["models"].values():
        assert row["untrained"] != row["model"] != row["shuffled"]
    for row in read("probe-similarity")["trained"].values():
        assert row["untrained"] != row["read"] != row["inputs"]
    for row in read("devices")["rows"]:
        assert row["sent"] == row["sent by formula"]
        assert {*row["collectives"]} <= {"all-reduce", "collective-permute"}
    section = README.split("## What trained models run\n")[1].split("- `identify_streams`")[0]
    counts = re.findall(r"(\d+) of (\d+)", section)
    assert len(counts) > 3
    page = what_networks_run.page()
    assert all(f"{part}/{whole}" in page for part, whole in counts)


def test_words_and_verdicts_of_claims_are_those_of_now():
    records, now = read("claims")["claims"], experiments.claims()
    assert [result["id"] for result in records] == list(now)
    fields = ["statement", "source", "quote", "truth", "corrected", "required_inputs", "file"]
    for result in records:
        claim = now[result["id"]]
        for field in fields:
            assert result[field] == getattr(claim, field), (claim, field)
        assert result["status"] == claim.expected
        assert result["seeds"] == 10
    counts = Counter(result["status"] for result in records)
    corrected = f"{counts['holds as corrected']} hold as corrected"
    sentence = re.escape(f"{counts['holds']} hold, {corrected} and {counts['false as stated']} ")
    assert re.search(f"{sentence}(is|are) false", SAID["README"])
    wrong = f"{counts['false as stated']} false as stated"
    sentence = f"{len(records)} claims: {counts['holds']} hold, {corrected}, {wrong}"
    assert sentence in SAID["benchmarks"]
    false = [result["id"] for result in records if result["status"] == "false as stated"]
    assert re.findall(r"\((C\d+)\)", README) == false


def test_the_identification_is_the_one_that_was_measured():
    page = (RESULTS / "identify-gp-encoder.md").read_text()
    record = read("identify-gp-encoder")
    assert record["status"] == "none is close"
    remain = [seed["remain"] for seed in record["seeds"]]
    assert remain == [["preconditioned_chebyshev"], ["richardson"]]
    for seed in record["seeds"]:
        flow, best = seed["baselines"]["gradient flow"], seed["candidates"][0]
        for space in ("prediction", "hat"):
            assert flow[space]["mean"] - best[space]["mean"] < 0.03
    for layer in record["layers"]:
        cells = map(layer.get, record["layers"][0])
        line = " | ".join("-" if cell is None else f"{cell:.3g}" for cell in cells)
        assert f"| {line} |" in page
    for candidate in record["candidates"]:
        assert f"| {candidate['candidate']}, {candidate['kernel']} |" in page
        for space in ("prediction", "hat"):
            mean, (low, high) = candidate[space]["mean"], candidate[space]["interval"]
            assert f"| {mean:.2g} ({low:.2g}, {high:.2g}) |" in page


def test_the_score_on_solverbench_is_the_one_that_was_measured():
    """And the open set is no set of candidates, but for what every solver answers in the end."""
    record = read("solverbench")
    with (RESULTS / "solverbench-verdicts.csv").open(newline="") as file:
        verdicts = {row["model"]: row for row in csv.DictReader(file)}
    assert [*verdicts] == [row["model"] for row in record["rows"]]
    for row in record["rows"]:
        said = verdicts[row["model"]]
        assert (row["status"], row["names"]) == (said["status"], said["names"])
        gaps = [float(said[space] or "inf") for space in ("prediction", "hat")]
        if row["variant"] == "open set" and max(gaps) <= 0.01:
            assert row["truth"] in ("exact KRR after every layer", "the answer 0")
            assert row["status"] == "none"
    assert len({row["truth"] for row in record["rows"] if row["variant"] == "open set"}) >= 20
    counts = record["open set"]
    none, close, false = (counts[name][0] for name in ("none", "close to", "false positives"))
    sentence = f"{none} none, {close} close to a solver, {false} false positives"
    assert sentence in SAID["benchmarks"]


@pytest.mark.parametrize("name", ["gp-decoder", "linear-decoder"])
def test_the_verdicts_at_positions_are_those_that_were_measured(name):
    record = read(f"identify-{name}")
    lines = (RESULTS / f"positions-{name}.md").read_text().splitlines()[2:]
    assert len(lines) > 2
    for entry, line in zip(record["positions"], lines, strict=True):
        count, _, _, _, status, remain, nearest, *distances = line.strip("| ").split(" | ")
        best = entry["candidates"][0]
        assert (int(count), status) == (entry["num_supports"], entry["status"])
        assert remain == ", ".join(entry["remain"])
        assert nearest == f"{best['candidate']}, {best['kernel']}"
        for space, cell in zip(("prediction", "hat"), distances, strict=False):
            assert cell.startswith(f"{format_number(best[space]['mean'])} (")
        ruled_out = {c["candidate"] for c in entry["candidates"] if "farther" in c["ruled out"]}
        assert {"delta_rule", "prefix_conjugate_gradient"} <= ruled_out


def test_what_is_said_beside_the_literature_was_measured():
    record = read("identify-gp-encoder")
    (said,) = re.findall(r"\*\*Beside the literature\.\*\*.*?\n\n", BENCHMARKS, re.S)
    candidates = [{c["candidate"]: c for c in seed["candidates"]} for seed in record["seeds"]]
    names = ("richardson", "preconditioned_chebyshev")
    for space in ("prediction", "hat"):
        ranking = sorted(candidates[0].values(), key=lambda candidate: candidate[space]["mean"])
        assert {candidate["candidate"] for candidate in ranking[:2]} == {*names}
        assert all(f"{candidate[space]['mean']:.3f}" in said for candidate in ranking[:2])
    hats = [[one[name]["hat"]["mean"] for name in names] for one in candidates]
    signs = [np.sign(first - second) for first, second in hats]
    assert signs == [1, -1]
    steps = np.diff([0, *next(iter(record["candidates"]))["alignment"]])
    assert f"the work of {min(steps[:5])} to {max(steps[:5])} steps" in " ".join(said.split())
    ruled_out = {c["candidate"] for c in record["candidates"] if "farther" in c["ruled out"]}
    assert "conjugate_gradient" in ruled_out


def test_the_tables_of_posteriors_are_those_that_were_measured():
    """And the formula counts the channels, of models as they are now, too."""
    models = posteriors.models()
    rows = {row["model"]: row for row in read("posteriors")["costs"]}
    assert [*rows] == [*models]
    for row in rows.values():
        assert row["channels by formula"] in (None, row["channels"])
    for name in ("prefix_posterior, fused", "bayesian_average, textbook, G = 2, 15 edges"):
        build, channels = models[name]
        model, row = build(), rows[name]
        assert posteriors.FEATURES + model.overhead == channels == row["channels"]
        assert model.blocks_per_step == row["blocks a step"]


@pytest.mark.parametrize("solver", [*EXPECTED])
def test_constructions_without_a_part_were_measured_to_be_what_they_should(solver):
    """And the record has every expectation there is."""
    rows = read(f"ablate-{solver.replace('_', '-')}")["rows"]
    expected_rows = [row for row in rows if row.get("expectation")]
    assert len(expected_rows) == len(EXPECTED[solver].words)
    assert all(row["distance to expectation"] < 1e-9 for row in expected_rows)


def test_the_table_of_solvers_is_that_of_the_catalogue_and_every_call_in_it_runs():
    """Typed with values, in both rooms; the error for a solver without a function says the call."""
    task = ik.Task(x=np.eye(6)[:, :2], y=np.ones(6), x_query=np.eye(2))
    (table,) = re.findall(r"<!-- solvers -->\n(.*?)<!-- /solvers -->", README, re.S)
    assert table == to_markdown(solver_table())
    calls = dict(re.findall(r"^\| `(.*?)` \| `(.*?)` \|", table, re.M))
    assert [*calls] == [*SOLVERS]
    for name, call in calls.items():
        row, kernel = SOLVERS[name], make_kernel(taken(name)[0], {})
        values = solver_keywords(row, kernel, task, 0.5)
        steps = {"steps": 2} if row.iterates else {}
        typed = re.sub(r"(\w+)=\.\.\.", r"\1=values['\1']", call).replace("...", "*given, **sizes")
        names = {"values": values, "given": (kernel,), "sizes": {"num_features": 2, **steps}}
        model = eval(typed, vars(ik.constructions) | names)
        assert model.layout == construct(name, kernel, task, **steps, **values).layout
        names |= {"given": (kernel, task), "sizes": steps}
        path = jax.eval_shape(lambda: eval(typed, vars(ik.solvers) | names))  # noqa: B023
        assert path.prediction.shape[-1] == 2
        for room in (ik.constructions, ik.solvers) if not call.startswith(f"{name}(") else ():
            with pytest.raises(AttributeError, match=re.escape(f"{name!r}; write {call}")):
                getattr(room, name)


def test_every_run_with_weights_has_its_line():
    page = (RESULTS / "runs.md").read_text()
    with_weights = {*reference_runs.trained()}
    assert {*re.findall(r"\| `(.*?)` \|", page)} == with_weights - {"linear"}
    for name in converged.recipes():
        last = experiments.from_csv(RUNS / name / "metrics.csv")[-1]
        assert f"| `{name}` | {last['step']} | {last['exact']:.3g} | {last['excess']:.3g} ±" in page


def test_the_table_of_retrained_models_is_the_one_that_was_measured():
    """And its models are those of the studies, whose weights are there."""
    runs = [run for run in read("retraining")["runs"] if run["chosen"]]
    variants = [(run["study"], run["variant"]) for run in runs if not run["seed"]]
    studies = RETRAINING_STUDIES.items()
    assert variants == [(name, variant) for name, study in studies for variant in study.variants]
    shipped = {weights_file(*one).name for one in variants if RETRAINING_STUDIES[one[0]].shipped}
    assert {path.name for path in FOLDER.iterdir()} == shipped
    for one in variants:
        seeds = [run["seed"] for run in runs if (run["study"], run["variant"]) == one]
        assert seeds == list(RETRAINING_STUDIES[one[0]].seeds(one[1]))


PATHS = sorted((ROOT / "notebooks").glob("*.ipynb"))
NOTEBOOKS = {path.name: json.loads(path.read_text())["cells"] for path in PATHS}
FOLDED = r"<details><summary>Answer</summary>\n\n.+?```python\n(.*?)```\n\n</details>"
# what nbmake runs after the last cell, so that the answer stays true
RUN_ANSWER = r"""import json, re

with open("{}") as file:
    answer = "".join(json.load(file)["cells"][-1]["source"])
exec(re.search(r"```python\n(.*?)```", answer, re.S)[1])"""


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_as_it_was_run_and_ends_with_an_exercise(name):
    """Its first two cells install the package where it must; the answer is folded, and is run."""
    notebooks = NOTEBOOKS[name], NOTEBOOKS[min(NOTEBOOKS)]
    code, first = ([c for c in cells if c["cell_type"] == "code"] for cells in notebooks)
    assert 'find_spec("icl_krr") is None' in "".join(code[0]["source"])
    assert [cell["source"] for cell in code[:2]] == [cell["source"] for cell in first[:2]]
    outputs = [output for cell in code for output in cell["outputs"]]
    assert not [output for output in outputs if output["output_type"] == "error"]
    assert [output for output in outputs if "image/png" in output.get("data", {})]
    assert all(cell["execution_count"] for cell in code)
    assert f"(notebooks/{name})" in README
    texts = ["".join(cell["source"]) for cell in NOTEBOOKS[name]]
    assert [text.startswith("## Exercise\n") for text in texts].index(True) == len(texts) - 2
    folded = re.fullmatch(FOLDED, texts[-1], re.S)
    assert re.search(r"\n(    )?assert ", folded[1])
    parts = (texts, folded[1].splitlines(), *(cell["source"] for cell in code))
    assert max(map(len, parts)) <= 25
    assert "\n".join(code[-1]["metadata"]["nbmake"]["post_cell_execute"]) == RUN_ANSWER.format(name)
