"""How results are written: cells, tables and files, as the package and its benchmarks need them."""

from ..._core.files import Lines, from_csv, parse_json, plain, replace, to_csv, to_json, to_markdown
from ..._core.text_tables import format_number

__all__ = ["Lines", "format_number", "from_csv", "parse_json", "plain", "replace"]
__all__ += ["to_csv", "to_json", "to_markdown"]
