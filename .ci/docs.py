"""Build the site of guides, notebooks, results and reference: python .ci/docs.py FOLDER.

The text is that of the README, the docstrings, the notebooks and the results; `docs/*.md` say what
goes where. The pages need no network: formulas are MathML, and the search is one of the files.
"""

import inspect
import json
import logging
import os
import re
import shutil
import sys
from pathlib import Path
from pkgutil import resolve_name
from tempfile import TemporaryDirectory

from mkdocs.commands.build import build as build_site
from mkdocs.config import load_config

from icl_krr.catalogue import SOLVERS

sys.path.append(str(Path(__file__).parent / "docs"))
from entries import PLACES, homes, listed

ROOT = Path(__file__).parent.parent
SETTINGS = ROOT / ".ci" / "docs"

GUIDES = [
    *("my-own-table", "my-own-solver", "my-pytorch-model", "which-solver", "many-devices"),
    "solvers",
]
README = (ROOT / "README.md").read_text()


def build(folder: Path) -> None:
    with TemporaryDirectory() as scratch:
        pages = Path(scratch)
        code = shutil.ignore_patterns("*.py", "__pycache__")
        shutil.copytree(ROOT / "benchmarks", pages / "benchmarks", ignore=code)
        shutil.copytree(SETTINGS, pages, ignore=code, dirs_exist_ok=True)
        for page in pages.glob("*.md"):
            page.write_text(INSERTED.sub(inserted, page.read_text()))
        claims = pages / "benchmarks/results/claims.md"
        claims.write_text(claims_page(claims))
        write(pages / "notebooks", dict(map(notebook, sorted(ROOT.glob("notebooks/*.ipynb")))))
        write(pages / "reference", reference())
        navigation = [
            {"Start": "index.md"},
            {"Guides": [f"{name}.md" for name in GUIDES]},
            {"Notebooks": listing(pages, "notebooks")},
            {"Reference": listing(pages, "reference")},
            {"Claims": "benchmarks/results/claims.md"},
            {"Results": [*listing(pages, "benchmarks"), *listing(pages, "benchmarks/results")]},
        ]
        for page in pages.rglob("*.md"):
            page.write_text(relinked(page.read_text(), page.parent, pages))
        settings = {"docs_dir": scratch, "site_dir": str(folder.resolve()), "nav": navigation}
        build_site(load_config(str(SETTINGS / "mkdocs.yml"), strict=True, **settings))
        (folder / "404.html").unlink()  # for a server, at the root of which its links start


def write(folder: Path, pages: dict[str, str]) -> None:
    folder.mkdir()
    for name, text in pages.items():
        (folder / f"{name}.md").write_text(text)


def listing(pages: Path, folder: str) -> list[str]:
    """The pages of a folder for the navigation; the claims have a place of their own."""
    paths = sorted((pages / folder).glob("*.md"), key=lambda path: path.stem)
    return [str(path.relative_to(pages)) for path in paths if path.name != "claims.md"]


INSERTED = re.compile(r"^\{\{ ([\w.]+)(?:: (.+))? \}\}$", re.M)


def inserted(match: re.Match) -> str:
    """A part of the README or of a docstring, where bold words are the heading of a part."""
    source, part = match.groups()
    if source == "README":
        start, *parts = README.split("\n## ")
        by_heading = {text.partition("\n")[0]: f"## {text}" for text in parts}
        return by_heading[part] if part else start.partition("\n")[2]
    text = inspect.getdoc(resolve_name(source))
    if part == "example":
        return re.search(r"^>>> (?:.+\n?)+", text, re.M)[0]
    if part == "list":
        return re.search(r"^- (?:.+\n)+", text, re.M)[0]
    (text,) = re.findall(rf"^\*\*{part}[.?]\*\*.*?(?=^\*\*|\Z)", text, re.M | re.S)
    first = re.search(r"^# .*\n+\Z", match.string[: match.start()], re.M)  # the title is enough
    return re.sub(r"\A\*\*(.+?)\.?\*\*\s+", "" if first else r"## \1\n\n", text)


def notebook(path: Path) -> tuple[str, str]:
    """The page of a notebook, with the results that it holds."""
    parts = []
    for cell in json.loads(path.read_text())["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source.replace("<details>", "<details markdown>"))
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            if "text" in output:
                parts.append(f"```{{.text .output}}\n{''.join(output['text'])}\n```")
            else:
                image = output["data"]["image/png"].replace("\n", "")
                parts.append(f"![What the cell above draws](data:image/png;base64,{image})")
    return path.stem, "\n\n".join(parts)


def reference() -> dict[str, str]:
    """The pages of the rooms, and of classes whose docstring lists their methods."""
    pages, home = {}, homes()
    functions = [entry.function for entry in SOLVERS.values()]
    for place, names in PLACES.items():
        room, local, elsewhere = place.__name__, [], []
        first = room in ("icl_krr.constructions", "icl_krr.solvers")  # what most readers look for
        solvers = functions if first else []
        for name in dict.fromkeys(solvers + names):
            public, path = getattr(place, name), f"{room}.{name}"
            if inspect.ismodule(public):
                continue
            if home[path] != path:
                elsewhere.append(f"| `{path}` | {summary(public)} |")
            elif "Methods:\n" in (inspect.getdoc(public) or ""):
                pages[path] = entry(path, [path, room], listed(public))
            else:
                local.append(name)
        pages[room] = entry(room, [room] if "." in room else [], local)
        if elsewhere:
            table = "\n".join(["| name | |", "| --- | --- |", *elsewhere])
            pages[room] += f"\n## Further names\n\n{table}\n"
    return pages


def entry(path: str, rooms: list[str], members: list[str]) -> str:
    """A page that mkdocstrings fills; the search shows these first."""
    head = {"title": path, "rooms": rooms, "search": {"boost": 2}}
    options = json.dumps({"members": members, "merge_init_into_class": path not in rooms[:-1]})
    return f"---\n{json.dumps(head)}\n---\n::: {path}\n    options: {options}\n"


def summary(public: object) -> str:
    return inspect.getdoc(public).partition("\n")[0].replace("|", "\\|")


FIELDS = {
    "source": "source",
    "quote": "as printed",
    "truth": "what holds",
    "required_inputs": "required inputs",
    "check": "checked",
}


def claims_page(results: Path) -> str:
    """The table of all claims, and below it what each says, from the file beside its table."""
    claims = json.loads(results.with_suffix(".json").read_text())["claims"]
    rows, parts = [], []
    for claim in claims:
        name, statement, verdict = claim["id"], claim["statement"], claim["status"]
        rows.append(f"| [{name}](#{name.lower()}) | {verdict} | {escaped(statement)} |")
        facts = {label: claim[key] for key, label in FIELDS.items() if claim[key]}
        facts |= {f"read as: {reading}": holds for reading, holds in claim["readings"].items()}
        parts.append(f"## {name}\n\n**{verdict}**: {escaped(statement)}")
        parts.append("\n".join(f"- *{escaped(k)}*: {escaped(v)}" for k, v in facts.items()))
    quoted = results.read_text().partition("\n| ")[0]
    table = "\n".join(["| claim | verdict | statement |", "| --- | --- | --- |", *rows])
    return "\n\n".join(["# Claims", table, *parts, f"## Sources\n\n{quoted}"])


def escaped(text: str) -> str:
    """Plain text, of which Markdown takes nothing as its own."""
    return re.sub(r"[^\w\s,.;:]", lambda match: f"&#{ord(match[0])};", text.replace("\n", " "))


def relinked(text: str, folder: Path, pages: Path) -> str:
    """Links to pages: those of notebooks and docstrings have other names than in the repository."""

    def link(match: re.Match) -> str:
        words, target = match.groups()
        if re.match(r"https?:|#|data:", target):
            return match[0]
        source = (folder / target).resolve().relative_to(pages.resolve())
        path = source.with_suffix(".md") if source.suffix == ".ipynb" else source
        if source.parts[0] == "icl_krr":
            path = Path("reference", ".".join(source.parts[:2]) + ".md")
        if not (pages / path).is_file() and (ROOT / source).exists():
            return words  # code and folders are not on the site
        return f"[{words}]({os.path.relpath(pages / path, folder)})"

    return re.sub(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)", link, text)


if __name__ == "__main__":
    logging.basicConfig(format="%(message)s")  # warnings, of which one is enough to fail
    build(Path(sys.argv[1]))
