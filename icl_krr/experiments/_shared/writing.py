"""How results are written: cells, tables and files, as the package and its benchmarks need them."""

from ..._core.files import Lines, from_csv, json_of, plain, replace, to_csv, to_json, to_markdown
from ..._core.text_tables import number

__all__ = [
    "Lines",
    "from_csv",
    "json_of",
    "number",
    "plain",
    "replace",
    "to_csv",
    "to_json",
    "to_markdown",
]
