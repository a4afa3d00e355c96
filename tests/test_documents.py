"""What the README says is run."""

import json
import re
from pathlib import Path

import pytest

import icl_krr as ik
from benchmarks.solvers import solver_table
from icl_krr.bench import Row, markdown
from icl_krr.catalogue import SOLVERS, load
from icl_krr.experiments.ablate import ablation
from icl_krr.experiments.claims.verify import Result, claims, markdown as table_of_claims
from icl_krr.experiments.identify import confusion
from icl_krr.experiments.shared.recipe import RUNS
from icl_krr.files import to_markdown

ROOT = Path(__file__).parent.parent
EXPECTED = {name: load(row.expected) for name, row in SOLVERS.items() if row.expected}
README = (ROOT / "README.md").read_text()


EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.S)


def test_the_python_example_runs(capsys):
    example = EXAMPLES[0]
    assert len(example.strip().splitlines()) <= 13
    exec(compile(example, "README.md", "exec"), {})
    *layout, gap, shape = capsys.readouterr().out.strip().splitlines()
    assert layout[0].split()[0] == "slot"
    assert float(gap) < 1e-4
    assert shape == "(5, 32)"


def test_the_how_tos_run(capsys):
    """And say what the README says of them; the construction is what its name says."""
    names = {}
    for example in EXAMPLES[1:]:
        exec(compile(example, "README.md", "exec"), names)
    assert SOLVERS.pop("steepest_descent").blocks == {"linear": 3, "softmax": 4}
    *summary, found = capsys.readouterr().out.strip().splitlines()
    assert summary[0] == "attention  softmax"
    status, candidate, step_size = found.split()
    assert (status, candidate) == ("identified", "gradient_descent")
    assert abs(float(step_size) - 0.05) < 1e-4
    assert names["errors"].shape == (10, 20)
    for kernel in (ik.Linear(), ik.Exponential()):
        task = names["task"]
        options = {"num_features": 2, "ridge": 0.5, "steps": 9, "step_size": 0.01}
        model = names["averaged_descent"](kernel, **options)
        K, k = kernel(task.x, task.x), kernel(task.x_query, task.x)
        alpha, iterates = 0 * task.y, []
        for _ in range(9):
            alpha = alpha + 0.01 * (task.y - K @ alpha - 0.5 * alpha)
            iterates.append(k @ alpha)
        mean = sum(iterates) / 9
        assert abs(ik.predict(model, task) - mean).max() < 1e-4 * abs(mean).max()


def test_the_commands_are_those_that_ci_runs():
    commands = re.findall(r"```sh\n(.*?)\n```", README, re.S)
    ci = (ROOT / ".ci" / "run").read_text()
    for command in commands[:2]:
        install, run = command.split(" && ")
        assert install.split()[-1].strip('"').split("[")[0] == "."
        assert run.split(" --")[0] in ci


def test_the_linked_files_exist():
    links = [link for link in re.findall(r"\]\(([^)]+)\)", README) if "://" not in link]
    assert len(links) > 10
    for link in links:
        assert (ROOT / link).exists(), link


def test_every_figure_is_pixels_and_a_drawing_and_says_what_it_is_of():
    """The captions of the explorer and of the design, which is of no run, are in the README."""
    figures = ROOT / "benchmarks" / "figures"
    shown = re.findall(r"\(benchmarks/figures/(.*?)\.png\)", README)
    drawn = {path.stem for path in figures.glob("*.svg")}
    assert set(shown) == drawn == {path.stem for path in figures.glob("*.png")}
    for name in drawn - {"explorer", "design"}:
        text = " ".join(re.findall(r">([^<>]+)</text>", (figures / f"{name}.svg").read_text()))
        assert re.search(r"seeds? (from )?\d", text), name
        assert re.search(r"float(32|64)", text), name


def test_the_table_of_speed_is_the_one_that_was_measured():
    (shown,) = re.findall(r"<!-- bench -->\n(.*?)<!-- /bench -->", README, re.S)
    results = ROOT / "benchmarks" / "results"
    assert shown == (results / "bench.md").read_text()
    record = json.loads((results / "bench.json").read_text())
    rows = [Row(**row) for row in record["rows"]]
    assert shown == markdown(rows)
    assert {"device", "cores", "versions", "seed"} <= set(record["meta"])


def test_the_table_of_claims_is_the_one_that_was_measured():
    """And its words and verdicts are those of the claims as they are now."""
    (shown,) = re.findall(r"<!-- claims -->\n(.*?)<!-- /claims -->", README, re.S)
    results = ROOT / "benchmarks" / "results"
    assert shown == (results / "claims.md").read_text()
    record = json.loads((results / "claims.json").read_text())
    fields = set(Result._fields) - {"seed", "draw"}
    found = [
        Result(**{name: entry[name] for name in fields}, seed=None, draw=None)
        for entry in record["claims"]
    ]
    assert shown == table_of_claims(found)
    now = claims()
    assert [result.id for result in found] == list(now)
    for result in found:
        claim = now[result.id]
        assert (result.statement, result.truth) == (claim.statement, claim.truth)
        assert result.status == claim.expected
        assert result.seeds == 10
    assert {"device", "versions", "seed"} <= set(record["meta"])


def test_the_confusion_matrix_is_the_one_that_was_measured():
    """Of every solver on every kernel it takes, at both conditions, three seeds each."""
    (shown,) = re.findall(r"<!-- confusion -->\n(.*?)<!-- /confusion -->", README, re.S)
    results = ROOT / "benchmarks" / "results"
    assert shown == (results / "confusion.md").read_text()
    record = json.loads((results / "confusion.json").read_text())
    assert shown == confusion.markdown(record["rows"])
    config = confusion.ConfusionConfig()
    assert (config.conditions, config.seeds) == ((1e2, 1e4), 3)
    names = ("solver", "kernel", "condition", "seed")
    assert [tuple(row[name] for name in names) for row in record["rows"]] == confusion.cells(config)
    assert all(row["right"] for row in record["rows"])
    assert {"device", "versions", "seed"} <= set(record["meta"])


def test_the_identification_is_the_one_that_was_measured():
    (shown,) = re.findall(r"<!-- identify -->\n(.*?)<!-- /identify -->", README, re.S)
    results = ROOT / "benchmarks" / "results"
    assert shown == (results / "identify-gp-encoder.md").read_text()
    record = json.loads((results / "identify-gp-encoder.json").read_text())
    assert record["status"] == "none is close"
    assert record["remain"] == ["richardson", "gradient_descent"]
    for candidate in record["candidates"]:
        assert f"| {candidate['candidate']}, {candidate['kernel']} |" in shown
        for space in ("prediction", "hat"):
            entry = candidate[space]
            low, high = entry["interval"]
            assert f"| {entry['mean']:.2g} ({low:.2g}, {high:.2g}) |" in shown


@pytest.mark.parametrize(
    ("block", "name"),
    [("ablate", "ablate-conjugate-gradient"), ("export", "export"), ("learning", "learning")],
)
def test_a_table_is_the_one_that_was_measured(block, name):
    (shown,) = re.findall(rf"<!-- {block} -->\n(.*?)<!-- /{block} -->", README, re.S)
    assert shown == (ROOT / "benchmarks" / "results" / f"{name}.md").read_text()


@pytest.mark.parametrize("solver", [*EXPECTED])
def test_constructions_without_a_part_were_measured_to_be_what_they_should(solver):
    """And the table is that of the record, which has every expectation there is."""
    results = ROOT / "benchmarks" / "results"
    name = f"ablate-{solver.replace('_', '-')}"
    record = json.loads((results / f"{name}.json").read_text())
    table = ablation.table(ablation.Ablation(record["rows"], {}))
    assert to_markdown(table) == (results / f"{name}.md").read_text()
    told = [row for row in record["rows"] if row.get("expectation")]
    assert len(told) == len(EXPECTED[solver].words)
    assert all(row["gap to expectation"] < 1e-9 for row in told)
    assert {"device", "versions", "seed"} <= set(record["meta"])


def test_the_table_of_solvers_is_made_from_the_catalogue():
    """And blocks a step are those that the rows promise."""
    (shown,) = re.findall(r"<!-- solvers -->\n(.*?)<!-- /solvers -->", README, re.S)
    table = solver_table()
    assert shown == to_markdown(table)
    for row, line in zip(SOLVERS.values(), table[1], strict=True):
        blocks = [str(row.blocks.get(kind, "")) for kind in ("linear", "softmax")]
        assert line[2:4] == blocks, row.name


def test_every_run_with_weights_has_its_line():
    (shown,) = re.findall(r"<!-- runs -->\n(.*?)<!-- /runs -->", README, re.S)
    with_weights = {path.parent.name for path in RUNS.glob("*/model.msgpack")}
    assert set(re.findall(r"\| `(.*?)` \|", shown)) == with_weights - {"linear"}


def test_every_public_name_resolves():
    for name in ik.__all__:
        assert getattr(ik, name).__doc__, name
    for room in (ik.solvers, ik.constructions, ik.tasks, ik.transformer, ik.residual):
        for name in room.__all__:
            assert getattr(room, name) is not None


NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_keeps_its_outputs_and_installs_where_it_must(path):
    cells = json.loads(path.read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert len(cells) <= 20
    assert 'find_spec("icl_krr") is None' in "".join(code[0]["source"])
    outputs = [output for cell in code for output in cell["outputs"]]
    assert not [output for output in outputs if output["output_type"] == "error"]
    assert [output for output in outputs if "image/png" in output.get("data", {})]
    assert all(cell["execution_count"] for cell in code)
    assert f"(notebooks/{path.name})" in README
