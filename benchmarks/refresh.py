"""`python -m benchmarks refresh`: bring what is counted, drawn or quoted to the state of today."""

import json
import re
import runpy
from collections import Counter
from pathlib import Path

import jax
import tyro

from benchmarks import drawings, records
from icl_krr import experiments
from icl_krr.catalogue import KERNELS, SOLVERS, SolverEntry, taken
from icl_krr.experiments import Lines, choose_claims, to_markdown
from icl_krr.kernels import make_kernel
from icl_krr.tabular import build_model
from icl_krr.tasks import LinearRegression, Task, sample
from icl_krr.transformer import Transformer

ROOT = Path(__file__).parent.parent
SEEDS = range(10)
CONTRIBUTING = ".github/CONTRIBUTING.md"


def main(claim: tyro.conf.UseAppendAction[tuple[str, ...]] = ()) -> None:
    """Refresh the drawing of the design, the README's numbers, the records and the count of code.

    Args:
        claim: a claim to test again, such as C8; its result replaces that of the record.
    """
    choose_claims(claim)  # refuses unknown names before anything is written
    all_records = {path: records.read(path.stem) for path in records.RESULTS.glob("*.json")}
    for path, record in all_records.items():
        records.write(path, record)
    if claim:
        test_again(claim)
    records.draw("design", drawings.design())
    statuses = Counter(entry["status"] for entry in records.read("claims")["claims"])
    wrong = statuses["false as stated"]
    verdicts = f"{statuses['holds']} hold, {statuses['holds as corrected']} hold as corrected"
    for file, old, new in (
        ("README.md", r"(?<=<!-- solvers -->\n)(\|.*\n)*", to_markdown(solver_table())),
        (CONTRIBUTING, r"(?<=<!-- rooms -->\n)(\|.*\n)*", to_markdown(room_table())),
        ("README.md", r"tests \d+ claims", f"tests {sum(statuses.values())} claims"),
        ("README.md", r"\d+ hold, \d+ hold as corrected", verdicts),
        ("README.md", r"\d+ (is|are) false", f"{wrong} {'is' if wrong == 1 else 'are'} false"),
        ("benchmarks/README.md", r"\d+ claims:", f"{sum(statuses.values())} claims:"),
        ("benchmarks/README.md", r"\d+ hold, \d+ hold as corrected", verdicts),
        ("benchmarks/README.md", r"\d+ false as stated", f"{wrong} false as stated"),
    ):
        text = (ROOT / file).read_text()
        (ROOT / file).write_text(re.sub(old, new.replace("\\", r"\\"), text))
    path = ROOT / "tests/test_size.py"
    size = runpy.run_path(str(path))
    lines = f"CODE_LINES = {min(size['total'](), size['CODE_LINES'])}"
    path.write_text(re.sub(r"CODE_LINES = \d+", lines, path.read_text()))


def test_again(names: tuple[str, ...]) -> None:
    """Merge fresh results into the record of the claims and their table."""
    record = records.read("claims")
    entries = {entry["id"]: entry for entry in record["claims"]}
    for name, (result, _) in experiments.verify_all(choose_claims(names), seeds=SEEDS).items():
        entries[name] = result
        print(f"{name}: {result['status']}")
    record["claims"] = [entries[name] for name in experiments.claims() if name in entries]
    record = json.loads(experiments.to_json(record))
    records.save("claims", record, experiments.claims_to_markdown(record["claims"]))


def built(row: SolverEntry, kind: str) -> Transformer | None:
    """The solver's construction on the first kernel of this kind that it takes, or None."""
    names = [name for name in taken(row.name) if KERNELS[name].kind == kind]
    if not names:
        return None
    task: Task = sample(jax.random.key(0), LinearRegression(num_features=2, num_supports=6))
    return build_model(row.name, make_kernel(names[0], {}), task, 0.5, 2)


def room_table() -> Lines:
    """The guide's: what lives in a room and what it may import, as the test of imports reads it."""
    allowed = runpy.run_path(str(ROOT / "tests/test_structure.py"))["ALLOWED"]
    about = {name: room[3].replace("\n", " ") for name, room in drawings.design_rooms().items()}
    about |= {"core": "checks, guarded arithmetic, files, status", "losses": "of delta rules"}
    lines = [[f"`{name}`", about[name.removeprefix("_")], rooms] for name, rooms in allowed.items()]
    return ["room", "what lives there", "imports, beside what all share"], lines


def solver_table() -> Lines:
    """The README's: one line per solver: its call, states, blocks per step, required inputs."""
    header = ["solver", "call", "states besides alpha and prediction"]
    header += ["blocks per step, linear attention", "blocks per step, softmax attention"]
    header += ["required inputs depend on"]
    lines = []
    for row in SOLVERS.values():
        models = [built(row, kind) for kind in ("featured", "positive")]
        layout = next(model for model in models if model is not None).layout
        states = [slot.name for slot in layout.slots if slot.kind == "state"]
        # leave out the states that softmax attention needs for any solver
        of_attention = ("alpha", "prediction", "sink", "normaliser")
        slots = [name for name in states if not name.startswith(of_attention)]
        blocks = ["" if model is None else str(model.blocks_per_step) for model in models]
        lines.append([f"`{row.name}`", f"`{row.call}`", ", ".join(slots), *blocks, row.input_scope])
    return header, lines
