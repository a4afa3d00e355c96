"""Build the API reference from the docstrings, one page per module: python .ci/docs.py FOLDER."""

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
        for name in room.__all__:  # getattr imports lazy names, so that pdoc finds them
            tidy(getattr(room, name))
    for room in rooms[1:]:  # do not list files that are named like a function
        pdoc.doc.Module.from_name(room.__name__).submodules = []
    pages = "|".join(re.escape(room.__name__) for room in rooms)
    pdoc.render.configure(docformat="google", math=True)
    package = Path(icl_krr.__file__).parent  # a path, because another copy may be installed
    pdoc.pdoc(package, f"!(?!({pages})$)", output_directory=folder)


def tidy(public: object) -> None:
    """Remove generated docstrings from a named tuple, and set the module that has its types."""
    if inspect.isclass(public) and issubclass(public, tuple):
        public.__new__.__module__ = public.__module__  # was "namedtuple_NAME", which does not exist
        public.__new__.__doc__ = None  # "Create new instance of"
        for field in public._fields:
            getattr(public, field).__doc__ = ""  # "Alias for field number"


if __name__ == "__main__":
    build(Path(sys.argv[1]))
