"""An HTML page of sections that is readable without scripts and without a network."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple

from jinja2 import Environment, PackageLoader

from ..files import Lines
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


POLICY = (
    "default-src 'none'; script-src '{script}'; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'"
)
"""Only the script of the page runs, and nothing is loaded from elsewhere."""


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
    templates.globals["inline"] = inline
    templates.filters["base64"] = base64
    script = templates.get_template("page.js").render()
    page = templates.get_template("page.html").render(
        title=title,
        words=words,
        sections=sections,
        script=script,
        policy=POLICY.format(script=f"sha256-{base64(sha256(script.encode()).digest())}"),
    )
    return page.encode()


def base64(content: bytes) -> str:
    return b64encode(content).decode()


def inline(drawn: bytes, name: str) -> str:
    """An SVG that the page's script can change: identifiers are unique, and the page sets the size.

    An SVG inside a page can run scripts, so this must be a drawing that was made here. A figure
    from a file belongs into an `<img>`, where a browser runs no scripts and loads nothing.
    """
    text = drawn.decode()
    text = text[text.index("<svg ") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    text = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", text)
    return text.replace("<svg ", f'<svg role="img" aria-labelledby="{name}-caption" ', 1)
