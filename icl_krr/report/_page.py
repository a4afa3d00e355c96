"""An HTML page of sections, readable without scripts and network; claims, and how it was made."""

from __future__ import annotations

from base64 import b64encode
from collections import Counter
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader

from .._core.files import Lines
from ..experiments._claims.claim import works
from ._chart import CONFIG, Board, BoardTable, library


class Facts(NamedTuple):
    values: dict[str, str]


class Fold(NamedTuple):
    """Parts that a reader opens; a string is a paragraph. A verdict is shown in bold."""

    summary: str
    parts: tuple[str | BoardTable | Board | Facts, ...]
    verdict: str = ""


class Section(NamedTuple):
    """A section: `name` is the anchor, `words` are the paragraphs before the parts."""

    name: str
    title: str
    words: tuple[str, ...]
    parts: tuple[BoardTable | Board | Facts | Fold, ...]


POLICY = (
    "default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
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
        policy=POLICY.format(digest=b64encode(sha256(script.encode()).digest()).decode()),
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
    for kind in (BoardTable, Board, Facts, Fold):
        templates.tests[kind.__name__.lower()] = lambda part, kind=kind: isinstance(part, kind)
    return templates


@cache
def page_script() -> str:
    return environment().get_template("page.js").render(library=library(), config=CONFIG)


def claims_section(table: Lines, provenance: str) -> Section:
    """The section with the verdicts on the claims and the works that they quote."""
    header, lines = table
    counts = Counter(line[1] for line in lines)
    words = (
        "Claims about in-context kernel regression, quoted from published works or our own. Each "
        "claim has a verdict and a check that decides it. If a claim does not hold as printed, "
        "its measured value shows a counterexample. Verdicts: "
        f"{', '.join(f'{n} {status}' for status, n in counts.items())}.",
        f"Each measured value is that of the worst draw, averaged over seeds. {provenance}",
    )
    folds, sources = [], []
    for claim, verdict, *rest in lines:
        facts = {name: cell for name, cell in zip(header[2:], rest, strict=True) if cell}
        folds.append(Fold(claim, (Facts(facts),), verdict))
        sources.append(facts.get("source", ""))
    quoted = works(sources)
    if quoted:
        folds.append(Fold("Works that the claims quote", (Facts(quoted),)))
    return Section("claims", "Which claims hold", words, tuple(folds))


def facts_of(meta: dict[str, Any]) -> dict[str, str]:
    """The command, seed, device and versions that made a page."""
    versions = ", ".join(f"{package} {number}" for package, number in meta["versions"].items())
    return {
        "command": " ".join(meta["command"]),
        "seed": str(meta["seed"]),
        "device": f"{meta['device']}, {meta['cores']} cores",
        "matmul precision": meta["matmul_precision"],
        "versions": f"Python {meta['python']}, {versions}",
    }


def provenance(meta: dict[str, Any], dtype: str) -> str:
    """The command, seed, versions and device of a result, in one line."""
    return (
        f"{' '.join(meta['command'])}: seed {meta['seed']}, {dtype}, icl_krr "
        f"{meta['versions']['icl_krr']}, jax {meta['versions']['jax']}, {meta['device']}."
    )
