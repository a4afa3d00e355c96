"""Speed and memory compared with plain code and other libraries: `icl-krr bench`."""

from .contest import Contest, Disagreement, Row, compete
from .report import COLUMNS, markdown, summary
from .suites import SUITES

__all__ = ["COLUMNS", "SUITES", "Contest", "Disagreement", "Row", "compete", "markdown", "summary"]
