"""Speed and memory against floors and peers: `icl-krr bench`."""

from .contest import Contest, Row, compete
from .report import COLUMNS, markdown, summary
from .suites import SUITES

__all__ = ["COLUMNS", "SUITES", "Contest", "Row", "compete", "markdown", "summary"]
