"""The docstrings are the reference: complete, with examples that run, formulas that render.

What is public is what a room (a package or module with `__all__`) names. A first line is one
sentence; a function has an example, and so has a class, unless nobody makes one by hand: a named
tuple (what functions return), an exception, what is abstract. Constants have no docstring of their
own, so the room's tells of them.
"""

import doctest
import inspect
import os
import re
import runpy
import subprocess
import sys
import warnings
from pathlib import Path
from pkgutil import resolve_name
from urllib.parse import urlsplit

import pytest
from conftest import DAILY
from jaxtyping import Array, Float

import icl_krr
from icl_krr.catalogue import SOLVERS

ROOMS = [icl_krr, *filter(inspect.ismodule, (getattr(icl_krr, n) for n in icl_krr.__all__))]
NAMES = [(room, name) for room in ROOMS for name in room.__all__]
THINGS = {f"{room.__name__}.{name}": getattr(room, name) for room, name in NAMES}
PUBLIC = {
    f"{thing.__module__}.{thing.__qualname__}": thing
    for thing in THINGS.values()
    if inspect.isclass(thing) or inspect.isroutine(inspect.unwrap(thing))
}


def methods(cls):
    """The public methods: those that the section "Methods" of the docstring lists, or else all."""
    section = re.search(r"^Methods:\n((?: {4}.+\n)+)", inspect.cleandoc(cls.__doc__ or ""), re.M)
    listed = section and {line.split(":")[0] for line in inspect.cleandoc(section[1]).split("\n")}
    assert not section or all(hasattr(cls, name) for name in listed), f"{cls} has not all methods"
    for base in cls.__mro__:
        if base.__module__.startswith("icl_krr"):
            for name, thing in vars(base).items():
                public = name in listed if section else not name.startswith("_")
                callable_or_property = isinstance(thing, (property, classmethod, staticmethod))
                if public and (callable_or_property or inspect.isroutine(thing)):
                    yield f"{base.__module__}.{cls.__qualname__}.{name}", getattr(cls, name)


CLASSES = [thing for thing in PUBLIC.values() if inspect.isclass(thing)]
METHODS = {name: method for cls in CLASSES for name, method in methods(cls)}
OWN = PUBLIC | {room.__name__: room for room in ROOMS}
DOCSTRINGS = {name: inspect.cleandoc(thing.__doc__ or "") for name, thing in OWN.items()}
DOCSTRINGS |= {name: inspect.getdoc(method) or "" for name, method in METHODS.items()}


def made_by_hand(thing):
    if not inspect.isclass(thing):  # what a solver is compiled with has the example of `compile`
        return not thing.__doc__.endswith("; see there.")
    abstract = inspect.isabstract(thing) or getattr(thing, "_is_protocol", False)
    return not (abstract or issubclass(thing, (tuple, Exception)))


def prose(docstring):
    """The docstring without its code: examples, indented blocks, what is in backticks."""
    lines = docstring.split("\n\n")
    text = [part for part in lines if not part.startswith((">>>", "    "))]
    return re.sub(r"`[^`]*`", "", "\n\n".join(text))


def formulas(docstring):
    return [a or b for a, b in re.findall(r"\$\$(.+?)\$\$|\$(.+?)\$", prose(docstring), re.S)]


def test_the_reader_of_docstrings_sees_them():
    """A test of docstrings that saw none would always pass."""
    assert "icl_krr.solvers._exact.exact" in PUBLIC
    assert {
        *("icl_krr.kernels._gaussian.Gaussian.log", "icl_krr.kernels._kernel.Linear.diagonal"),
        "icl_krr.transformer._weights.Transformer.depth",
    } <= METHODS.keys()
    gaussian = formulas(DOCSTRINGS["icl_krr.kernels._gaussian.Gaussian"])
    assert gaussian[:2] == [r"k(x, z) = \exp(-|Ux - Uz|^2 / 2\ell^2)", r"\ell"]


def test_every_public_name_says_what_it_is_in_one_sentence():
    for name, docstring in DOCSTRINGS.items():
        first, *rest = docstring.split("\n")
        assert re.fullmatch(r"(?:(?!\. [A-Z`$]).)+\.", first), f"{name}: {first!r}"
        assert not rest or not rest[0], f"{name}: a blank line must follow {first!r}"


def test_rooms_tell_of_their_constants():
    constants = [
        (room, name)
        for room, name in NAMES
        if not inspect.ismodule(thing := getattr(room, name)) and thing not in PUBLIC.values()
    ]
    assert (icl_krr.catalogue, "SOLVERS") in constants
    for room, name in constants:
        assert f"`{name}`" in room.__doc__, f"{room.__name__} must say what {name} is"


def test_what_a_user_calls_has_an_example_that_is_run():
    finder = doctest.DocTestFinder()
    modules = {sys.modules[thing.__module__] for thing in PUBLIC.values()}
    run = {test.name for module in modules for test in finder.find(module) if test.examples}
    without = {name for name, thing in PUBLIC.items() if made_by_hand(thing)} - run
    assert not without


def test_the_long_examples_are_examples():
    """A name that is no longer one would let its example run always, and nobody would know why."""
    assert all(">>> " in resolve_name(name).__doc__ for name in DAILY)


SECTION = re.compile(r"^(?:Args|Attributes):\n((?:\n| +.+\n?)+)", re.M)
ENTRY = re.compile(r"^ {4}((?:\S+, )*\S+): (.+(?:\n {5,}.+)*)", re.M)
POINTER = re.compile(r"as in `([\w.]+)`")


def entries(docstring):
    """What the sections Args and Attributes say: {name: text}."""
    return {
        name: text
        for section in SECTION.findall(inspect.cleandoc(docstring or ""))
        for names, text in ENTRY.findall(section)
        for name in names.replace("*", "").split(", ")
    }


def followed(docstring, rooms):
    """The entries, each as what it points to; None where that says nothing, or points on.

    A line "kernel, task: as in `exact`." points to a public name: of one of the rooms, or in full.
    """
    texts = entries(docstring)
    for name, text in texts.items():
        if pointer := POINTER.match(text):
            there = entries(inspect.getdoc(target(pointer[1], rooms))).get(name)
            texts[name] = None if there is None or POINTER.match(there) else there
    return texts


def target(path, rooms):
    public = {room.__name__: room for room in ROOMS} | THINGS
    full = [path, *(f"{room.__name__}.{path}" for room in rooms)]
    return next((public[name] for name in full if name in public), None)


def arguments():
    """(name, thing, what explains its arguments, rooms) of all that is public and called.

    A method says it itself, or the method that it overrides does; a construction or its oracle.
    """
    for name, thing in PUBLIC.items():
        rooms = [room for room, name in NAMES if getattr(room, name) is thing]
        abstract = inspect.isabstract(thing) or getattr(thing, "_is_protocol", False)
        builtin = inspect.isclass(thing) and issubclass(thing, (Exception, dict))
        bases = [b for b in getattr(thing, "__mro__", (thing,)) if "icl_krr" in b.__module__]
        if not (abstract or builtin):
            solvers = [row for row in SOLVERS if icl_krr.constructions.lookup(row) is thing]
            yield name, thing, [*bases, *map(icl_krr.solvers.lookup, solvers), *rooms], rooms
        for name, method in methods(thing) if inspect.isclass(thing) else ():
            if callable(method) and method.__module__.startswith("icl_krr"):
                yield name, method, [getattr(base, method.__name__, None) for base in bases], rooms


KNOWN = {
    *("kernel", "task", "tasks", "model", "models", "ridge", "ridges", "steps", "spectrum", "key"),
    *("num_features", "num_supports", "num_outputs", "num_queries", "seed", "path", "folder"),
    *("x", "y", "z", "x_query", "mask", "alpha", "prediction", "dtype", "mesh", "seeds", "depth"),
    "width",
}
"""Arguments whose names are words of the field: the first page of the reference explains them."""

PLAIN = re.compile(
    r"\w\[Array, ['\"] ?\w|Literal|icl_krr\.|Kernel|Task|Transformer|Predictive|Table|bool"
    r"|\bRead\b|Recorder|Unpack|Sampler|Training"
)
"""Annotations that say what an argument is: a shape, the values, a class of this package, or the
keywords of one that explains them."""


def complaints(name, thing, sources, rooms):
    texts = {}
    for source in reversed(sources):
        texts |= followed(source.__doc__, rooms)
    parameters = {**inspect.signature(thing).parameters}
    for key in entries(thing.__doc__).keys() - parameters.keys():
        if not key.endswith("_"):  # what an estimator's fit computes
            yield f"{name}: there is no argument {key}"
    for key in parameters.keys() - {"self", "cls"}:
        plain = key in KNOWN or PLAIN.search(str(parameters[key].annotation))
        if texts.get(key, "" if plain else None) is None:
            yield f"{name}: Args must say what {key} is, here or where its line points"


def test_an_argument_is_explained_where_name_and_type_do_not_say_it():
    missing = [line for entry in arguments() for line in complaints(*entry)]
    assert not missing, "\n".join(missing)


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ("count: number of\n        times.", 0),
        ("z: not there.\n    count: number of times.", 1),
        ("x: a matrix.", 1),
        ("count: as in `icl_krr.probes.effective`.", 1),  # which has no such argument
        ("count: as in `no_such_solver`.", 1),
    ],
)
def test_the_reader_of_arguments_sees_what_is_wrong(said, wrong):
    def called(x: Float[Array, "n p"], count: int = 8): ...

    called.__doc__ = f"Do it.\n\nArgs:\n    {said}\n"
    assert len([*complaints("called", called, [called], [icl_krr.solvers])]) == wrong


def test_formulas_are_well_formed():
    """As far as Markdown goes; the pages of the reference show all of it."""
    for name, docstring in DOCSTRINGS.items():
        text = prose(docstring)
        assert text.count("$") % 2 == 0, f"{name} has a $ too many"
        assert not set("\a\b\f\r\t\v") & set(text), f"{name} must be raw: r before its quotes"
        for formula in formulas(docstring):
            taken = re.search(r"\\[\\`*_{}\[\]()#+.!-]|\*", formula)
            assert not taken, f"{name}: Markdown takes {taken[0]!r} out of {formula}"


DOCS = Path(__file__).parent.parent / ".ci" / "docs.py"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the site, and its pages by their paths."""
    for name in ("math_core", "mkdocstrings"):
        pytest.importorskip(name)
    if "SITE" in os.environ:  # .ci/run has built it
        folder = Path(os.environ["SITE"]).resolve()
    else:
        folder = tmp_path_factory.mktemp("site")
        with warnings.catch_warnings():
            warnings.simplefilter("default")  # packages of the site warn of each other
            runpy.run_path(str(DOCS))["build"](folder)
    return folder, {path: path.read_text() for path in folder.rglob("*.html")}


def entry_of(site, thing):
    """The page that has the entry of a public thing, under one of its names."""
    folder, pages = site
    for place, name in [(place, name) for place, name in NAMES if getattr(place, name) is thing]:
        path = f"{place.__name__}.{name}"
        for page in (f"reference/{place.__name__}.html", f"reference/{path}.html"):
            if f'id="{path}"' in pages.get(folder / page, ""):
                return folder / page
    raise AssertionError(f"the reference lacks {thing}")


@pytest.mark.extras
def test_the_reference_has_every_name_and_shows_its_formulas(site):
    convert = pytest.importorskip("math_core").LatexToMathML().convert_with_local_state
    for room, name in NAMES:
        thing = getattr(room, name)
        if not inspect.ismodule(thing):
            html = site[1][entry_of(site, thing)]
            text = inspect.getdoc(thing) if thing in PUBLIC.values() else ""
            for both, one in re.findall(r"\$\$(.+?)\$\$|\$(.+?)\$", prose(text), re.S):
                assert convert(both or one, displaystyle=bool(both)) in html, name
            source = site[1][site[0] / f"reference/{room.__name__}.html"]
            assert re.search(rf'["#>]{room.__name__}\.{name}["<]', source), f"{room} has no {name}"
    for room in (icl_krr.constructions, icl_krr.solvers):
        functions = dict.fromkeys(entry.function for entry in SOLVERS.values())
        first = [f"{room.__name__}.{name}" for name in functions]
        page = site[1][site[0] / f"reference/{room.__name__}.html"]
        assert re.findall(rf'id="({room.__name__}\.\w+)"', page)[: len(first)] == first
    methods = {name.rpartition(".")[2] for name in METHODS if ".Machine." in name}
    page = site[1][site[0] / "reference/icl_krr.constructions.Machine.html"]
    assert all(f'id="icl_krr.constructions.Machine.{name}"' in page for name in methods)
    assert {"scratch", "together", "state", "kernel_times"} <= methods
    for path, page in site[1].items():
        words = re.sub(r"(?s)<(code|script|style|title)\b.*?</\1>|<[^>]*>", "", page)
        assert "$" not in words, path.name


@pytest.mark.extras
def test_the_code_of_a_guide_needs_no_other_names(site):
    """It runs where it comes from, as examples of docstrings and of the README do."""
    docs = runpy.run_path(str(DOCS))
    for guide in docs["GUIDES"]:
        source = (DOCS.parent / "docs" / f"{guide}.md").read_text()
        text = docs["INSERTED"].sub(docs["inserted"], source)
        examples = doctest.DocTestParser().get_examples(text)
        code = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
        code += [example.source for example in examples]
        check = ["ruff", "check", "--isolated", "--select", "F821", "-"]
        result = subprocess.run(check, input="\n".join(code), text=True, capture_output=True)
        assert result.returncode == 0, f"{guide}: {result.stdout}"


WIDE = """() => [...document.querySelectorAll("article table")].filter(
  (table) => table.scrollWidth > table.closest("article").clientWidth).length"""


@pytest.mark.extras
def test_no_table_is_wider_than_its_column(site, browser):
    page = browser.new_page(viewport={"width": 1300, "height": 900}, java_script_enabled=False)
    for path in [path for path, text in site[1].items() if "<table" in text]:
        page.goto(path.as_uri())
        assert not page.evaluate(WIDE), path.name


@pytest.mark.extras
def test_the_site_works_from_a_folder(site, browser):
    """The search finds what it should first, nothing is asked of a network, all fits on a phone."""
    folder, _ = site
    requests = []
    page = browser.new_page(viewport={"width": 400, "height": 900})
    page.on("request", lambda request: requests.append(request.url))
    names = "kernels", "solvers", "constructions.Machine"
    rooms = [f"reference/icl_krr.{name}" for name in names]
    for name in ("benchmarks/index", "notebooks/05_training_and_identifying", *rooms, "index"):
        page.goto((folder / f"{name}.html").as_uri())
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width == 400, f"{name} is {width} wide"
    page.set_viewport_size({"width": 1280, "height": 900})
    for word, entry in (
        ("machine", "icl_krr.constructions.Machine"),
        ("Layout", "icl_krr.residual"),
    ):
        page.fill("[data-md-component=search-query]", "")
        page.type("[data-md-component=search-query]", word)
        first = page.locator(".md-search-result__item h1", has_text=entry).first
        first.wait_for()
        assert page.locator(".md-search-result__item h1").first.inner_text() == entry
    assert {urlsplit(url).scheme for url in requests} <= {"file", "data", "blob", "about"}
