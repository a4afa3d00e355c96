"""An HTML page of sections that is readable without scripts and without a network."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import matplotlib.figure
from jinja2 import Environment, PackageLoader

from ..files import Lines
from ..plots import svg
from .sliders import Sliders


class Figure(NamedTuple):
    """A drawing with its caption; the caption names seeds and dtype."""

    svg: bytes
    caption: str


class Table(NamedTuple):
    caption: str
    lines: Lines


class Facts(NamedTuple):
    """A list of names and values."""

    values: dict[str, str]


class Section(NamedTuple):
    """A section: `name` is the anchor, `words` are the paragraphs before the parts."""

    name: str
    title: str
    words: tuple[str, ...]
    parts: tuple[Figure | Table | Sliders | Facts, ...]


def render(title: str, words: str, sections: Sequence[Section]) -> bytes:
    """The page as one HTML file with style, script, data and figures.

    >>> page = render("A page", "It has one section.", [Section("one", "One", ("Nothing.",), ())])
    >>> b"<h2>One</h2>" in page, b"://" in page
    (True, False)
    """
    templates = Environment(
        loader=PackageLoader("icl_krr.report", "page"),
        autoescape=lambda name: (name or "").endswith(".html"),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.tests["figure"] = lambda part: isinstance(part, Figure)
    templates.tests["table"] = lambda part: isinstance(part, Table)
    templates.tests["sliders"] = lambda part: isinstance(part, Sliders)
    templates.globals["drawing"] = drawing
    page = templates.get_template("page.html").render(title=title, words=words, sections=sections)
    return page.encode()


def drawing(source: bytes | matplotlib.figure.Figure, name: str) -> str:
    """An SVG for use inside a page: identifiers are unique, and the page sets the size."""
    text = (source if isinstance(source, bytes) else svg(source, name)).decode()
    text = text[text.index("<svg ") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    text = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", text)
    seen: Counter[str] = Counter()

    def number(found: re.Match[str]) -> str:
        """The identifier, with a number if it occurred before, because equal images repeat it."""
        seen[found[0]] += 1
        return found[0] if seen[found[0]] == 1 else f'{found[0][:-1]}-{seen[found[0]]}"'

    text = re.sub(r'\bid="[^"]*"', number, text)
    width = re.search(r'width="([\d.]+)pt"', text)
    assert width is not None
    # limits the size of small figures on a wide page
    most = f"max-width: {1.3 * float(width[1]):.0f}pt"
    named = f'role="img" aria-labelledby="{name}-caption"'
    return text.replace("<svg ", f'<svg {named} style="{most}" ', 1)
