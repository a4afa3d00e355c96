"""The reference, a page for every room, from the docstrings: python .ci/docs.py FOLDER."""

import inspect
import re
import sys
from pathlib import Path

import pdoc

import icl_krr


def build(folder: Path) -> None:
    public = [getattr(icl_krr, name) for name in icl_krr.__all__]
    rooms = [icl_krr, *filter(inspect.ismodule, public)]
    for room in rooms:
        for name in room.__all__:  # names that are lazy are there from now on
            tidy(getattr(room, name))
    for room in rooms[1:]:
        pdoc.doc.Module.from_name(room.__name__).submodules = []  # files, named as a function is
    pages = "|".join(re.escape(room.__name__) for room in rooms)
    pdoc.render.configure(docformat="google", math=True)
    package = Path(icl_krr.__file__).parent  # by its path: a clone may lie beside the installed one
    pdoc.pdoc(package, f"!(?!({pages})$)", output_directory=folder)


def tidy(public: object) -> None:
    """Leave of a named tuple what its author wrote, in a module where pdoc finds its types."""
    if inspect.isclass(public) and issubclass(public, tuple):
        public.__new__.__module__ = public.__module__  # it was "namedtuple_NAME": there is none
        public.__new__.__doc__ = None  # "Create new instance of"
        for field in public._fields:
            getattr(public, field).__doc__ = ""  # "Alias for field number"


if __name__ == "__main__":
    build(Path(sys.argv[1]))
