"""Speed and memory against floors and peers: `icl-krr bench`."""

from .contest import Contest, Row, compete
from .report import markdown
from .suites import SUITES

__all__ = ["SUITES", "Contest", "Row", "compete", "markdown"]
