"""The house: which room may import which, read from the imports themselves."""

import ast
import json
import re
from functools import cache
from graphlib import TopologicalSorter
from html import unescape
from pathlib import Path

import icl_krr
from benchmarks.drawings import ARROWS, FIGURES, ROOMS, design

PACKAGE = Path(icl_krr.__file__).parent
SHARED = ("_core", "catalogue", "losses")
PROBES = "kernels sketches tasks theory solvers residual transformer constructions"
EXPERIMENTS = f"{PROBES} probes training export uncertainty tabular"
ALLOWED = {
    "_core": "",
    "catalogue": "_core",
    "losses": "_core",
    "kernels": "",
    "sketches": "kernels",
    "tasks": "kernels",
    "theory": "kernels tasks",
    "solvers": "kernels sketches tasks",
    "residual": "tasks",
    "uncertainty": "",
    "transformer": "residual tasks uncertainty",
    "constructions": "kernels sketches solvers residual transformer._weights",
    "_posterior": "kernels tasks solvers transformer",
    "_audit": "tasks solvers",
    "training": "kernels tasks solvers transformer uncertainty",
    "export": "kernels residual tasks transformer",
    "probes": PROBES,
    "tabular": f"{PROBES} _posterior probes uncertainty",
    "plots": "experiments",
    "report": "experiments",
    "experiments": EXPERIMENTS,
    "cli": f"{EXPERIMENTS} experiments plots report",
}
"""What a room may import beside itself and, below the first three, what is `SHARED`."""

ROOMS_OF_PROBES = {
    "_reading": {"_resampling"},
    "_changing": {"_reading"},
    "_naming": {"_reading", "_resampling"},
}
"""What each of the three rooms of `probes` may import from beside it."""


def home_of_names():
    """The file of each name that a door lists: who imports `icl_krr.Linear` uses `kernels._linear`.

    The door of the package lists names of rooms, whose own doors say the file.
    """
    homes = {}
    for stub in sorted(PACKAGE.rglob("*.pyi"), key=lambda path: -len(path.parts)):
        room = ".".join(["icl_krr", *stub.relative_to(PACKAGE).parts[:-1]])
        for node in ast.parse(stub.read_text()).body:
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    home = f"{room}.{node.module}"
                    homes[f"{room}.{alias.name}"] = homes.get(f"{home}.{alias.name}", home)
    return homes


HOMES = home_of_names()


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
            full = [f"{base}.{alias.name}" for alias in node.names]
            names = [HOMES.get(name, base if node.module else name) for name in full]
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
    assert {*ALLOWED} == {room(path) for path in files()}
    for path in files():
        own, shared = room(path), () if room(path) in SHARED else SHARED
        for name in imports(path):
            other = name.split(".")[0]
            if other in (own, "", *shared):
                continue
            allowed = {other, ".".join(name.split(".")[:2])} & {*ALLOWED[own].split()}
            assert allowed, f"{path} must not import {name}"


def private(name):
    return any(part.startswith("_") for part in name.split("."))


def test_a_room_is_entered_by_its_door():
    """Other files begin with an underscore, or lie in a folder that does."""
    for path in files():
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        assert path.name == "__init__.py" or private(".".join(parts)) or parts == ("losses",), path


def imports_from_outside(source):
    """(module, name) of each import from the package in the source of a file or a notebook."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "icl_krr":
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names if "icl_krr" in alias.name)


def test_benchmarks_and_notebooks_import_public_names():
    """But for the bench that replaces private functions, to measure what they gain."""
    root = PACKAGE.parent
    sources = {path: path.read_text() for path in (root / "benchmarks").rglob("*.py")}
    del sources[root / "benchmarks" / "workarounds.py"]
    for path in (root / "notebooks").glob("*.ipynb"):
        cells = json.loads(path.read_text())["cells"]
        code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        sources[path] = re.sub(r"(?m)^( *)%.*", r"\1pass", "\n".join(code))
    for path, source in sources.items():
        for module, name in imports_from_outside(source):
            assert not private(f"{module}.{name}"), f"{path} imports {module}.{name}"


SEVERAL = """communication compiler documents estimator experiments gaussian_objective hosts
identify inputs interventions invariants lowering memory_limit packing predict probes relevance
report report_scripts solver_package status streams text_tables training"""
"""Tests that look into several rooms: how they work together. No other one may join them."""


def test_a_test_imports_private_files_of_one_room():
    """It is the test of that room; helpers that all rooms share are not counted."""
    several = set()
    for path in Path(__file__).parent.rglob("*.py"):
        names = [f"{module}.{name}" for module, name in imports_from_outside(path.read_text())]
        rooms = {name.split(".")[1] for name in names if private(name)} - {"_core"}
        if len(rooms) > 1:
            several.add(path.stem.removeprefix("test_"))
    assert several == {*SEVERAL.split()}


def test_no_string_imports():
    """Such an import is one that this test would not see. A claim is found by its number alone."""
    for path in files():
        text = path.read_text()
        assert not re.search(r"""["']icl_krr[\w.]*:\w+["']""", text), path
        assert "import_module" not in text or path.name == "verify.py", path


def test_rooms_of_probes_import_one_way():
    """Who names a model reads it; nobody reads a model through the names it may have."""
    for own, allowed in ROOMS_OF_PROBES.items():
        for path in (PACKAGE / "probes" / own).glob("*.py"):
            names = [name.split(".") for name in imports(path)]
            beside = {name[1] for name in names if name[0] == "probes" and len(name) > 1}
            assert beside <= {own} | allowed, path


def test_the_picture_of_the_design_is_that_of_the_rooms_and_of_the_catalogue():
    """And has no arrow of its own. Another one is drawn by `python -m benchmarks refresh`."""
    assert set(ROOMS) == {name.removeprefix("_") for name in ALLOWED} - {"core", "losses"}
    used = {
        (room(path).removeprefix("_"), name.split(".")[0].removeprefix("_"))
        for path in files()
        for name in imports(path)
    }
    for start, end, _ in ARROWS:
        assert {(start, end), (end, start)} & used, f"{start} and {end} know nothing of each other"
    drawn = [text.get_text() for text in design().axes[0].texts if text.get_text()]
    picture = re.findall(r">([^<>]+)</text>", (FIGURES / "design.svg").read_text())
    assert {line for text in drawn for line in text.splitlines()} <= set(map(unescape, picture))


def test_the_guide_has_the_table_of_rooms():
    """Another one is written by `python -m benchmarks refresh`."""
    guide = (PACKAGE.parent / ".github/CONTRIBUTING.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \|.*\| (.*?) \|$", guide, re.M)
    assert dict(rows) == ALLOWED


def test_the_reader_of_imports_sees_them():
    """A structure test that saw nothing would always pass."""
    seen = {name for path in files() for name in imports(path)}
    homes = {"kernels._kernel", "tasks._task", "residual._layout", "transformer._weights"}
    assert {*homes, "_core"} <= seen


def module(path):
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")


def test_no_file_imports_itself_by_way_of_others():
    """Not for types either: who needs a name at run time or in an annotation stands above it."""
    known = {module(path) for path in files()}
    graph = {module(path): {name for name, _ in every_import(path)} & known for path in files()}
    list(TopologicalSorter(graph).static_order())  # CycleError names the circle
    assert "kernels._forms" in graph["kernels._log_bilinear"]


def test_a_kernel_is_asked_and_never_told_apart():
    """No kernel's class or name decides anything outside of its own room and the catalogue."""
    told_apart = re.compile(
        r"isinstance\([^)]*\b(Linear|Exponential|Gaussian|Matern|Mixture|Features)\b"
        r"|[!=]= ?[\"'](gaussian|exponential)[\"']|[\"'](gaussian|exponential)[\"'] ?[!=]="
    )
    of_a_sketch = 'if line == "gaussian":'
    for path in files():
        for line in path.read_text().splitlines():
            if room(path) not in ("kernels", "catalogue") and line.strip() != of_a_sketch:
                assert not told_apart.search(line), f"{path}: {line.strip()}"
    assert told_apart.search("if isinstance(kernel, (Linear, Gaussian)):")
    assert told_apart.search('family = Gaussian if config.kernel == "gaussian" else Exponential')
