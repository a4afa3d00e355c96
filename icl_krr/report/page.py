"""An HTML page of sections that is readable without scripts and without a network."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from typing import NamedTuple

from jinja2 import Environment, PackageLoader

from ..files import Lines
from .chart import CONFIG, library
from .sliders import Board


class Table(NamedTuple):
    caption: str
    lines: Lines


class Facts(NamedTuple):
    """A list of names and values."""

    values: dict[str, str]


class Fold(NamedTuple):
    """Parts that a reader opens; a string is a paragraph. A verdict is shown in bold."""

    summary: str
    parts: tuple[str | Table | Board | Facts, ...]
    verdict: str = ""


class Section(NamedTuple):
    """A section: `name` is the anchor, `words` are the paragraphs before the parts."""

    name: str
    title: str
    words: tuple[str, ...]
    parts: tuple[Table | Board | Facts | Fold, ...]


POLICY = (
    "default-src 'none'; script-src '{script}'; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'"
)
"""Only the script of the page runs, and nothing is loaded from elsewhere."""


def render(title: str, words: str, sections: Sequence[Section], missing: str = "") -> bytes:
    """The page as one HTML file with style, script, data and charts.

    `missing` is a sentence about the parts that are not there.

    >>> page = render("A page", "It has one section.", [Section("one", "One", ("Nothing.",), ())])
    >>> b"<h2>One</h2>" in page, b"<script src" in page
    (True, False)
    """
    templates = environment()
    script = page_script()
    page = templates.get_template("page.html").render(
        title=title,
        introduction=words,
        sections=sections,
        missing=missing,
        script=script,
        policy=POLICY.format(
            script=f"sha256-{b64encode(sha256(script.encode()).digest()).decode()}"
        ),
    )
    return page.encode()


@cache
def environment() -> Environment:
    templates = Environment(
        loader=PackageLoader("icl_krr.report", "page"),
        autoescape=lambda name: (name or "").endswith(".html"),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for kind in (Table, Board, Facts, Fold):
        templates.tests[kind.__name__.lower()] = lambda part, kind=kind: isinstance(part, kind)
    return templates


@cache
def page_script() -> str:
    """The charting library and the page's own script."""
    return environment().get_template("page.js").render(library=library(), config=CONFIG)
