"""Results of claims as a table, with the works that they quote."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...files import Lines, to_markdown
from .result import Result
from .sources import works


def table(results: Iterable[Result]) -> Lines:
    """Return the table of claims that the README and the report show."""
    header = [
        "claim",
        "verdict",
        "source",
        "as printed",
        "what holds",
        "whose correction",
        "models are told",
        "measured",
        "bound",
        "dtype",
    ]
    lines = [
        [
            f"{result.id}: {result.statement}",
            result.status,
            result.source,
            result.quote,
            result.truth,
            result.corrected,
            result.told,
            f"{result.measured:.3g}: {result.check}",
            f"{result.bound:.3g}",
            result.dtype,
        ]
        for result in results
    ]
    return header, lines


def compute(results: Iterable[Mapping[str, Any]]) -> str:
    """Say how much computing time the claims took."""
    seconds = sum(result["cpu_seconds"] for result in results)
    return f"Computing time: {seconds:.0f} CPU seconds, with compilation."


def references(results: Iterable[Result]) -> list[str]:
    """Return a line for each work that the claims quote."""
    quoted = works(result.source for result in results)
    return [f"{name}: {work}." for name, work in quoted.items()]


def markdown(results: Iterable[Result]) -> str:
    results = list(results)
    listed = "".join(f"- {line}\n" for line in references(results))
    return f"The claims quote:\n\n{listed}\n{to_markdown(table(results))}"
