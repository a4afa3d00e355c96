"""`python -m benchmarks.mutants`: change one operator or number of the library, and run its tests.

The mutations are those of cosmic-ray (`pip install "icl_krr[mutants]"`). A seeded sample takes
places in the code of every room uniformly at random and one mutation of each. The fast tests of the
room then run on a copy of the repository, the likeliest file first, until one fails. A mutant that
they do not kill meets slower tests, and then all fast tests of the repository. A mutant that
exceeds the time limit counts as killed. Mutations of annotations and docstrings are left out.
`EXPLAINED` says why a mutant that no test kills changes nothing.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import records

ROOT = Path(__file__).parent.parent
BAD = "tests/test_bad_inputs.py"
ROOMS = {
    "kernels": ("icl_krr/kernels", "solvers", BAD),
    "residual": ("icl_krr/residual", "residual", BAD),
    "transformer": ("icl_krr/transformer", "tying", "tiled_attention", BAD),
    "constructions": ("icl_krr/constructions", "packing", "tables", BAD),
    "solvers": ("icl_krr/solvers", "solvers", BAD),
    "theory": ("icl_krr/theory", "theory", BAD),
    "probes": ("icl_krr/probes", "probes", BAD),
}
SLOWER = {
    "kernels": ("capacity", "status", "kernel_of_ones_own", "sensitivities", "keystone"),
    "residual": ("transformer", "edges", "keystone"),
    "transformer": ("capacity", "transformer", "numpy_forward", "interventions"),
    "constructions": ("keystone", "invariants", "edges"),
    "solvers": ("capacity", "status", "iterations", "sensitivities", "linalg"),
    "theory": ("capacity", "width", "claims", "status"),
    "probes": ("capacity", "status", "sensitivities", "identify", "interventions"),
}
JIT = "The result is the same, and the call takes longer."
EXPLAINED = {
    "icl_krr/solvers/exact.py: @jax.jit -> (removed)": JIT,
    "icl_krr/constructions/assembly/arithmetic.py: if width == 1: -> if width == 0:": (
        "A read times the matrix [[1]] is the same read."
    ),
    'icl_krr/solvers/normalised.py: @partial(jax.jit, static_argnames="steps") -> (removed)': JIT,
}
"""Why a mutant changes nothing that a test could see, by its file and its lines."""


LIMIT = 600
"""Seconds of CPU time for the tests of one mutant."""

TRIVIAL = ("Bit", "Shift", "Mod", "FloorDiv", "_Is", "Is_")
"""Operators that arrays do not have, or that differ from == only by chance: any test finds them."""


class Mutant(NamedTuple):
    """One change of one file."""

    room: str
    path: str
    operator: str
    line: int
    before: str
    after: str
    code: str


def meaning(code: str) -> str:
    """The syntax tree without annotations and docstrings, which do not run."""
    tree = ast.parse(code)
    for node in ast.walk(tree):
        for field in ("annotation", "returns"):
            if hasattr(node, field) and not isinstance(node, ast.AnnAssign):
                setattr(node, field, None)
        if isinstance(node, ast.AnnAssign):
            node.annotation = ast.Name("Any", ast.Load())
        if isinstance(node, ast.Expr) and isinstance(getattr(node.value, "value", None), str):
            node.value = ast.Constant("")
    return ast.dump(tree)


def positions(path: Path) -> dict[tuple[int, int], list[tuple[str, int]]]:
    """{place in the file: mutations (operator, occurrence) that are possible there}."""
    from cosmic_ray.ast import ast_nodes, get_ast  # pyright: ignore[reportMissingImports]
    from cosmic_ray.plugins import get_operator, operator_names  # pyright: ignore[reportMissingImports]

    nodes = [*ast_nodes(get_ast(path.read_text()))]
    found: dict[tuple[int, int], list[tuple[str, int]]] = {}
    for name in operator_names():
        if any(word in name for word in TRIVIAL):
            continue
        try:
            operator = get_operator(name)()
        except TypeError:  # it needs arguments
            continue
        occurrence = 0
        for node in nodes:
            for start, _ in operator.mutation_positions(node):
                found.setdefault(start, []).append((name, occurrence))
                occurrence += 1
    return found


def sample(root: Path, room: str, count: int, rng: random.Random) -> Iterator[Mutant]:
    """Mutants of a room at `count` places, each with another meaning than the original."""
    from cosmic_ray.mutating import mutate_code  # pyright: ignore[reportMissingImports]
    from cosmic_ray.plugins import get_operator  # pyright: ignore[reportMissingImports]

    found = {path: positions(path) for path in sorted((root / "icl_krr" / room).rglob("*.py"))}
    places = [(path, place) for path, own in found.items() for place in sorted(own)]
    rng.shuffle(places)
    for path, place in places:
        operator, occurrence = rng.choice(found[path][place])
        code = path.read_text()
        changed = mutate_code(code, get_operator(operator)(), occurrence)
        try:
            if changed is None or meaning(changed) == meaning(code):
                continue
        except SyntaxError:
            continue
        old, new = (text.splitlines() for text in (code, changed))
        changes = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
        line, end, first, last = next(part[1:] for part in changes if part[0] != "equal")
        before = " ".join(text.strip() for text in old[line:end])
        after = " ".join(text.strip() for text in new[first:last]) or "(removed)"
        own = str(path.relative_to(root))
        yield Mutant(room, own, operator, line + 1, before, after, changed)
        count -= 1
        if not count:
            return


def paths(names: tuple[str, ...]) -> list[str]:
    return [name if "/" in name else f"tests/test_{name}.py" for name in names]


def run(sandbox: Path, names: tuple[str, ...]) -> tuple[str, str, float]:
    """Survived, killed or timeout; the test that failed; seconds of CPU time.

    Without names, all fast tests of the repository run.
    """
    options = ["-x", "-q", "-p", "no:cacheprovider", "-o", "timeout=0"]
    options += ["-o", "addopts=--doctest-modules", "-m", "not slow and not extras"]
    options += ["-p", "no:xdist"] if names else ["-n", "2", "--dist", "loadfile"]

    def bound() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT + 5))

    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *paths(names)],
        cwd=sandbox,
        env={**os.environ, "PYTHONPATH": str(sandbox)},
        capture_output=True,
        text=True,
        preexec_fn=bound,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if done.returncode < 0:
        return "timeout", "", seconds
    if done.returncode == 0:
        return "survived", "", seconds
    failed = re.search(r"^(?:FAILED|ERROR) ([^\s\[]+)", done.stdout, re.M)
    return "killed", failed[1] if failed else "", seconds


def examine(
    rooms: list[str], count: int, seed: int, out: Path, check: bool
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="icl-krr-mutants-") as folder:
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", f"{folder}/programs")
        sandbox = Path(folder) / "copy"
        tracked = ["git", "-C", str(ROOT), "ls-files", "-z"]
        for name in subprocess.check_output(tracked, text=True).split("\0")[:-1]:
            (sandbox / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, sandbox / name)
        for room in rooms if check else ():
            outcome, failed, _ = run(sandbox, ROOMS[room])
            if outcome != "survived":
                raise SystemExit(f"{failed or room} must pass before anything is changed")
        drawn = {
            room: [*sample(sandbox, room, count, random.Random(f"{seed}-{room}"))] for room in rooms
        }
        # one of every room, then the next of every room: an interrupted run has some of each
        for mutant in filter(None, chain.from_iterable(zip_longest(*drawn.values()))):
            target = sandbox / mutant.path
            original = target.read_text()
            target.write_text(mutant.code)
            seconds = 0.0
            for names in (ROOMS[mutant.room], SLOWER[mutant.room], ()):
                outcome, failed, more = run(sandbox, names)
                seconds += more
                if outcome != "survived":
                    break
            target.write_text(original)
            told = {key: value for key, value in mutant._asdict().items() if key != "code"}
            rows.append({**told, "outcome": outcome, "test": failed, "seconds": round(seconds)})
            write(rows, seed, count, out)
            print(f"{outcome:9} {seconds:5.0f} s  {mutant.path}:{mutant.line}  {mutant.after}")
    return rows


def write(rows: list[dict[str, Any]], seed: int, count: int, out: Path) -> None:
    command, packages = f"mutants --seed {seed} --count {count}", ("cosmic-ray", "numpy", "pytest")
    meta = records.meta(command, *packages, device="cpu", seed=seed)
    records.save("mutants", {"meta": meta, "mutants": rows}, markdown(rows), out)


def name(row: dict[str, Any]) -> str:
    return f"{row['path']}: {row['before'].strip()} -> {row['after']}"


def markdown(rows: list[dict[str, Any]]) -> str:
    lines = ["| room | mutants | killed | survived, same meaning | survived |"]
    lines.append("| --- | ---: | ---: | ---: | ---: |")
    for room in [*ROOMS, "all"]:
        own = [row for row in rows if room in (row["room"], "all")]
        left = [row for row in own if row["outcome"] == "survived"]
        same = sum(name(row) in EXPLAINED for row in left)
        lines.append(
            f"| {room} | {len(own)} | {len(own) - len(left)} | {same} | {len(left) - same} |"
        )
    survivors = [row for row in rows if row["outcome"] == "survived"]
    for row in survivors:
        reason = EXPLAINED.get(name(row), "not explained")
        place = f"{row['path']}, line {row['line']}"
        lines += ["", f"- {place}: `{row['before']}` became `{row['after']}`. {reason}"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rooms", nargs="*", default=[*ROOMS])
    parser.add_argument("--count", type=int, default=10, help="mutants in each room")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--unchecked", action="store_true", help="the tests are known to pass")
    parser.add_argument("--out", type=Path, default=records.RESULTS)
    given = parser.parse_args()
    examine(given.rooms, given.count, given.seed, given.out, not given.unchecked)
