"""The house: which room may import which, read from the imports themselves."""

import ast
import re
from functools import cache
from graphlib import TopologicalSorter
from html import unescape
from pathlib import Path

import icl_krr
from benchmarks.drawings import ARROWS, FIGURES, ROOMS, design
from icl_krr.catalogue import KERNELS, SOLVERS

PACKAGE = Path(icl_krr.__file__).parent
SHARED = {
    "capacity",
    "catalogue",
    "checks",
    "constants",
    "devices",
    "fields",
    "files",
    "linalg",
    "losses",
    "numerics",
    "pytree",
    "readable",
    "rounding",
    "status",
    "step_sizes",
    "text_tables",
    "units",
    "xla",
}
ALLOWED = {
    "kernels": set(),
    "sketches": {"kernels"},
    "tasks": {"kernels"},
    "theory": {"kernels", "tasks"},
    "solvers": {"kernels", "sketches", "tasks"},
    "residual": {"tasks"},
    "uncertainty": set(),
    "transformer": {"residual", "tasks", "uncertainty"},
    "constructions": {"kernels", "sketches", "residual", "transformer.weights"},
    "posterior": {"kernels", "tasks", "solvers", "transformer"},
    "audit": {"tasks", "solvers"},
    "training": {"kernels", "tasks", "solvers", "transformer", "uncertainty"},
    "export": {"kernels", "residual", "tasks", "transformer"},
    "probes": {
        "kernels",
        "sketches",
        "tasks",
        "theory",
        "solvers",
        "residual",
        "transformer",
        "constructions",
    },
    "estimator": {
        "kernels",
        "tasks",
        "solvers",
        "posterior",
        "transformer",
        "probes",
        "experiments",
    },
    "plots": {"experiments"},
    "report": {"experiments"},
}
ALLOWED["experiments"] = ALLOWED["probes"] | {"training", "probes", "export", "uncertainty"}
ALLOWED["cli"] = ALLOWED["experiments"] | {"experiments", "plots", "report"}


ROOMS_OF_PROBES = {
    "reading": {"resampling"},
    "changing": {"reading"},
    "naming": {"reading", "resampling"},
}
"""What each of the three rooms of `probes` may import from beside it."""


@cache
def imports(path, with_types=False):
    """What a file imports from the package at run time, as dotted names below it."""
    return tuple(read_imports(path, with_types))


def read_imports(path, with_types):
    tree = ast.parse(path.read_text())
    skipped = {
        id(node)
        for check in ast.walk(tree)
        if isinstance(check, ast.If) and "TYPE_CHECKING" in ast.unparse(check.test)
        for node in ast.walk(check)
    }
    here = path.relative_to(PACKAGE).parts
    for node in ast.walk(tree):
        if id(node) in skipped and not with_types:
            continue
        if isinstance(node, ast.Import):
            yield from (a.name.removeprefix("icl_krr.") for a in node.names if "icl_krr" in a.name)
        elif isinstance(node, ast.ImportFrom) and node.level:
            base = [*here[: len(here) - node.level], *(node.module or "").split(".")]
            base = [part for part in base if part]
            yield from (
                [".".join(base)] if node.module else [".".join([*base, a.name]) for a in node.names]
            )
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("icl_krr"):
            yield (node.module or "").removeprefix("icl_krr").lstrip(".")


def files():
    return [path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py"]


def room(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def test_rooms_import_only_what_their_row_names():
    for path in files():
        own = room(path)
        for name in imports(path):
            other = name.split(".")[0]
            if other == own or other in SHARED:
                continue
            assert own not in SHARED, f"{path} is shared by all and must import no room, got {name}"
            assert own in ALLOWED, f"{path} must belong to a room"
            allowed = {other, ".".join(name.split(".")[:2])} & ALLOWED[own]
            assert allowed, f"{path} must not import {name}"


def test_rooms_of_probes_import_one_way():
    """Who names a model reads it; nobody reads a model through the names it may have."""
    for own, allowed in ROOMS_OF_PROBES.items():
        for path in (PACKAGE / "probes" / own).glob("*.py"):
            names = [name.split(".") for name in imports(path)]
            beside = {name[1] for name in names if name[0] == "probes" and len(name) > 1}
            assert beside <= {own} | allowed, path


def test_every_room_exists():
    assert {room(path) for path in files()} == set(ALLOWED) | SHARED


def test_the_picture_of_the_design_has_every_room_and_no_arrow_of_its_own():
    assert set(ROOMS) == {*ALLOWED, "catalogue"}
    used = {(room(path), name.split(".")[0]) for path in files() for name in imports(path)}
    for start, end, _ in ARROWS:
        assert {(start, end), (end, start)} & used, f"{start} and {end} know nothing of each other"


def test_the_picture_of_the_design_is_drawn_from_the_catalogue_as_it_is():
    """Its numbers were those of an older package: run `python -m benchmarks.drawings`."""
    drawn = [text.get_text() for text in design().axes[0].texts if text.get_text()]
    assert f"{len(SOLVERS)} solvers,\n{len(KERNELS)} kernels" in drawn
    picture = re.findall(r">([^<>]+)</text>", (FIGURES / "design.svg").read_text())
    assert {line for text in drawn for line in text.splitlines()} <= set(map(unescape, picture))


def test_the_reader_of_imports_sees_them():
    """A structure test that saw nothing would always pass."""
    seen = {name for path in files() for name in imports(path)}
    assert {"kernels", "tasks", "residual", "transformer.weights", "checks"} <= seen
    assert not any(
        name.startswith("constructions") for name in imports(PACKAGE / "theory" / "rates.py")
    )


def module(path):
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")


def test_no_file_imports_itself_by_way_of_others():
    """Not for types either: who needs a name at run time or in an annotation stands above it."""
    graph, known = {}, {module(path) for path in files()}
    for path in files():
        graph[module(path)] = set(imports(path, with_types=True)) & known
    list(TopologicalSorter(graph).static_order())  # CycleError names the circle
    assert "kernels.forms" in graph["kernels.log_bilinear"]


def test_a_kernel_is_asked_and_never_told_apart():
    """No kernel's class or name decides anything outside of its own room and the catalogue."""
    told_apart = re.compile(
        r"isinstance\([^)]*\b(Linear|Exponential|Gaussian|Mixture|Features)\b"
        r"|[!=]= ?[\"'](gaussian|exponential)[\"']|[\"'](gaussian|exponential)[\"'] ?[!=]="
    )
    for path in files():
        if room(path) in ("kernels", "catalogue"):
            continue
        for line in path.read_text().splitlines():
            if line.strip() in LINES_ABOUT_SKETCHES:
                continue
            assert not told_apart.search(line), f"{path}: {line.strip()}"
    assert told_apart.search("if isinstance(kernel, (Linear, Gaussian)):")
    assert told_apart.search('family = Gaussian if config.kernel == "gaussian" else Exponential')


LINES_ABOUT_SKETCHES = {
    'if line == "gaussian":'  # a random sketch, not a kernel
}
