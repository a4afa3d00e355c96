"""The house: which room may import which, read from the imports themselves."""

import ast
import re
from functools import cache
from graphlib import TopologicalSorter
from html import unescape
from pathlib import Path

import icl_krr
from benchmarks.drawings import ARROWS, FIGURES, ROOMS, design

PACKAGE = Path(icl_krr.__file__).parent
PROBES = "kernels sketches tasks theory solvers residual transformer constructions"
EXPERIMENTS = f"{PROBES} probes training export uncertainty"
ALLOWED = {
    "kernels": "",
    "sketches": "kernels",
    "tasks": "kernels",
    "theory": "kernels tasks",
    "solvers": "kernels sketches tasks",
    "residual": "tasks",
    "uncertainty": "",
    "transformer": "residual tasks uncertainty",
    "constructions": "kernels sketches solvers residual transformer.weights",
    "posterior": "kernels tasks solvers transformer",
    "audit": "tasks solvers",
    "training": "kernels tasks solvers transformer uncertainty",
    "export": "kernels residual tasks transformer",
    "probes": PROBES,
    "estimator": "kernels tasks solvers posterior transformer probes experiments",
    "plots": "experiments",
    "report": "experiments",
    "experiments": EXPERIMENTS,
    "cli": f"{EXPERIMENTS} experiments plots report",
}
"""What a room may import beside itself; all others are shared by all, and import no room."""

ROOMS_OF_PROBES = {
    "reading": {"resampling"},
    "changing": {"reading"},
    "naming": {"reading", "resampling"},
}
"""What each of the three rooms of `probes` may import from beside it."""


ROOM_OF = {
    f"icl_krr.{alias.name}": f"icl_krr.{node.module}"
    for node in ast.parse((PACKAGE / "__init__.pyi").read_text()).body
    if isinstance(node, ast.ImportFrom) and node.module
    for alias in node.names
}
"""The room of each name that the package exports: who imports `icl_krr.Linear` uses `kernels`."""


@cache
def every_import(path):
    """What a file imports from the package, as dotted names below it: (name, only for types)."""
    tree, found = ast.parse(path.read_text()), []
    for_types = {
        id(node)
        for check in ast.walk(tree)
        if isinstance(check, ast.If) and "TYPE_CHECKING" in ast.unparse(check.test)
        for node in ast.walk(check)
    }
    here = ("icl_krr", *path.relative_to(PACKAGE).parts)
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = here[: len(here) - node.level] if node.level else ()
            base = ".".join([*above, *filter(None, [node.module])])
            names = [base] if node.module else [f"{base}.{alias.name}" for alias in node.names]
            names = [ROOM_OF.get(name, name) for name in names]
        for name in names:
            if name.split(".")[0] == "icl_krr":
                found.append((name.removeprefix("icl_krr").lstrip("."), id(node) in for_types))
    return found


def imports(path):
    return [name for name, only_for_types in every_import(path) if not only_for_types]


def files():
    return [path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py"]


def room(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def test_rooms_import_only_what_their_row_names():
    assert {*ALLOWED} <= {room(path) for path in files()}
    for path in files():
        own = room(path)
        for name in imports(path):
            other = name.split(".")[0]
            if other == own or (other and other not in ALLOWED):
                continue
            allowed = {other, ".".join(name.split(".")[:2])} & {*ALLOWED.get(own, "").split()}
            assert allowed, f"{path} must not import {name}"


def test_rooms_of_probes_import_one_way():
    """Who names a model reads it; nobody reads a model through the names it may have."""
    for own, allowed in ROOMS_OF_PROBES.items():
        for path in (PACKAGE / "probes" / own).glob("*.py"):
            names = [name.split(".") for name in imports(path)]
            beside = {name[1] for name in names if name[0] == "probes" and len(name) > 1}
            assert beside <= {own} | allowed, path


def test_the_picture_of_the_design_is_that_of_the_rooms_and_of_the_catalogue():
    """And has no arrow of its own. Another one is drawn by `python -m benchmarks refresh`."""
    assert set(ROOMS) == {*ALLOWED, "catalogue"}
    used = {(room(path), name.split(".")[0]) for path in files() for name in imports(path)}
    for start, end, _ in ARROWS:
        assert {(start, end), (end, start)} & used, f"{start} and {end} know nothing of each other"
    drawn = [text.get_text() for text in design().axes[0].texts if text.get_text()]
    picture = re.findall(r">([^<>]+)</text>", (FIGURES / "design.svg").read_text())
    assert {line for text in drawn for line in text.splitlines()} <= set(map(unescape, picture))


def test_the_reader_of_imports_sees_them():
    """A structure test that saw nothing would always pass."""
    seen = {name for path in files() for name in imports(path)}
    assert {"kernels", "tasks", "residual", "transformer.weights", "checks"} <= seen


def module(path):
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")


def test_no_file_imports_itself_by_way_of_others():
    """Not for types either: who needs a name at run time or in an annotation stands above it."""
    known = {module(path) for path in files()}
    graph = {module(path): {name for name, _ in every_import(path)} & known for path in files()}
    list(TopologicalSorter(graph).static_order())  # CycleError names the circle
    assert "kernels.forms" in graph["kernels.log_bilinear"]


def test_a_kernel_is_asked_and_never_told_apart():
    """No kernel's class or name decides anything outside of its own room and the catalogue."""
    told_apart = re.compile(
        r"isinstance\([^)]*\b(Linear|Exponential|Gaussian|Mixture|Features)\b"
        r"|[!=]= ?[\"'](gaussian|exponential)[\"']|[\"'](gaussian|exponential)[\"'] ?[!=]="
    )
    of_a_sketch = 'if line == "gaussian":'
    for path in files():
        for line in path.read_text().splitlines():
            if room(path) not in ("kernels", "catalogue") and line.strip() != of_a_sketch:
                assert not told_apart.search(line), f"{path}: {line.strip()}"
    assert told_apart.search("if isinstance(kernel, (Linear, Gaussian)):")
    assert told_apart.search('family = Gaussian if config.kernel == "gaussian" else Exponential')
