"""What pages of the site have beyond Markdown: formulas, examples, and links from names."""

import re
import sys
from pathlib import Path
from xml.etree.ElementTree import Element, SubElement

import math_core
from markdown import Extension, Markdown
from markdown.inlinepatterns import InlineProcessor
from markdown.preprocessors import Preprocessor
from markdown.util import AtomicString

import icl_krr

sys.path.append(str(Path(__file__).parent))
from entries import homes

PACKAGE = Path(icl_krr.__file__).parent
CONVERTER = math_core.LatexToMathML()


class Formulas(InlineProcessor):
    """Converts $inline$ and $$displayed$$ formulas to MathML, which needs no script."""

    def handleMatch(self, found: re.Match, _: str) -> tuple[str, int, int]:
        dollars, formula = found.groups()
        display = dollars == "$$"
        mathml = CONVERTER.convert_with_local_state(formula, displaystyle=display)
        html = f'<span class="formula">{mathml}</span>' if display else mathml
        return self.md.htmlStash.store(html), *found.span()


class Names(InlineProcessor):
    """Links `name` in backticks to the entry of that public name."""

    rooms = ()  # short names are those of these rooms, or of a class

    def handleMatch(self, found: re.Match, _: str) -> tuple[Element | None, int | None, int | None]:
        entry = self.entry(found[1])
        if entry is None:
            return None, None, None
        link = Element("autoref", identifier=entry)
        SubElement(link, "code").text = AtomicString(found[1])
        return link, *found.span()

    def entry(self, text: str) -> str | None:
        name = re.sub(r"^ik\.", "icl_krr.", text.partition("(")[0])
        rooms = [*self.rooms, *(["icl_krr"] if name[:1].isupper() else [])]  # classes: everywhere
        full = [name, *(f"{room}.{name}" for room in rooms)]
        return next((ENTRIES[path] for path in full if path in ENTRIES), None)


class Examples(Preprocessor):
    """Puts fences around lines that start with >>>, and includes files."""

    def run(self, lines: list[str]) -> list[str]:
        text = re.sub(r"^\.\. include:: (.+)$", included, "\n".join(lines), flags=re.M)
        text = re.sub(r"(?:^>>> .*(?:\n.+)*)", fenced, text, flags=re.M)
        return text.split("\n")


def included(match: re.Match) -> str:
    (path,) = PACKAGE.rglob(match[1])
    return path.read_text().rstrip()


def fenced(match: re.Match) -> str:
    return f"\n```pycon\n{match[0]}\n```\n"


class Pages(Extension):
    def extendMarkdown(self, md: Markdown) -> None:
        formula = r"(?s)(?<![\\$])(\$\$?)(?![$\s])(.+?)\1"
        md.inlinePatterns.register(
            Names(r"(?<!`)`([\w.]+(?:\([^`\n]*\))?)`(?!`)", md), "names", 195
        )
        md.inlinePatterns.register(Formulas(formula, md), "formulas", 185)
        md.preprocessors.register(Examples(md), "examples", 28)


ENTRIES = homes()


def on_config(config):
    config.markdown_extensions.append(Pages())
    return config


def on_page_markdown(markdown, page, **_):
    Names.rooms = page.meta.get("rooms", ())
    folder, _, name = page.file.src_uri.rpartition("/")
    if folder == "benchmarks/results" and name != "claims.md":
        page.meta["hide"] = ["toc"]  # the tables are wide
    return markdown


def on_post_page(output, page, **_):
    """Cells of tables may break after an underscore that is not inside a tag."""
    if page.file.src_uri.startswith("reference/"):  # names of functions alone, which have the room
        return output
    cells = re.compile(r"(?s)<(t[hd])\b.*?</\1>")
    return cells.sub(lambda cell: re.sub("_(?![^<]*>)", "_<wbr>", cell[0]), output)
