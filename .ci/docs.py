"""Build the API reference from the docstrings, one page per module: python .ci/docs.py FOLDER.

The pages need no network: formulas are MathML, which browsers show without a script.
"""

import inspect
import re
import sys
from pathlib import Path
from types import ModuleType

import markdown2
import math_core
import pdoc

import icl_krr
from icl_krr.catalogue import SOLVERS

CONVERTER = math_core.LatexToMathML(annotation=True)


class Formulas(markdown2.Extra):
    """Converts $inline$ and $$displayed$$ formulas, before Markdown reads them as its own."""

    name = "formulas"
    order = (), (markdown2.Stage.CODE_SPANS,)
    pattern = re.compile(r"(\$\$?)(.+?)\1", re.DOTALL)

    def test(self, text: str) -> bool:
        return "$" in text

    def run(self, text: str) -> str:
        return self.pattern.sub(self.converted, text)

    def converted(self, found: re.Match) -> str:
        dollars, formula = found.groups()
        display = dollars == "$$"
        mathml = CONVERTER.convert_with_local_state(formula, displaystyle=display)
        return self.md._hash_span(mathml)


Formulas.register()
pdoc.render_helpers.markdown_extensions["formulas"] = None


def build(folder: Path) -> None:
    public = [getattr(icl_krr, name) for name in icl_krr.__all__]
    rooms = [icl_krr, *filter(inspect.ismodule, public)]
    for room in rooms:
        for name in room.__all__:  # getattr imports lazy names, so that pdoc finds them
            tidy(getattr(room, name))
        room.__all__ = [*dict.fromkeys(solvers_of(room) + room.__all__)]
    for room in rooms[1:]:  # do not list files that are named like a function
        pdoc.doc.Module.from_name(room.__name__).submodules = []
    pages = "|".join(re.escape(room.__name__) for room in rooms)
    pdoc.render.configure(docformat="google")
    package = Path(icl_krr.__file__).parent  # a path, because another copy may be installed
    pdoc.pdoc(package, f"!(?!({pages})$)", output_directory=folder)


def solvers_of(room: ModuleType) -> list[str]:
    """The solvers of a page, in the order of the catalogue; they are what most readers look for."""
    paths = [path.split(":") for row in SOLVERS.values() for path in (row.construction, row.oracle)]
    return list(dict.fromkeys(name for module, name in paths if module == room.__name__))


def tidy(public: object) -> None:
    """Remove generated docstrings from a named tuple, and set the module that has its types."""
    if inspect.isclass(public) and issubclass(public, tuple):
        public.__new__.__module__ = public.__module__  # was "namedtuple_NAME", which does not exist
        public.__new__.__doc__ = None  # "Create new instance of"
        for field in public._fields:
            getattr(public, field).__doc__ = ""  # "Alias for field number"


if __name__ == "__main__":
    build(Path(sys.argv[1]))
