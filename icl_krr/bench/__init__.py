"""Speed and memory compared with plain code and other libraries: `icl-krr bench`.

A suite is a function (quick, seed) that yields contests. The catalogue names them.
"""

from .contest import COLUMNS, Contest, Disagreement, Row, compete, markdown, summary

__all__ = ["COLUMNS", "Contest", "Disagreement", "Row", "compete", "markdown", "summary"]
