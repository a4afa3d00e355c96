"""The tables of the claims: verdicts, readings, settings, and the sentences that are tested."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..._core.files import Lines, to_markdown
from .claim import works
from .result import Record

COLUMNS: dict[str, Callable[[Record], str]] = {
    "claim": lambda result: f"{result['id']}: {result['statement']}",
    "verdict": lambda result: result["status"],
    "source": lambda result: result["source"],
    "as printed": lambda result: result["quote"],
    "what holds": lambda result: result["truth"],
    "whose correction": lambda result: result["corrected"] if result["truth"] else "",
    "required inputs": lambda result: result["required_inputs"],
    "measured": lambda result: f"{result['measured']:.3g}: {result['check']}",
    "bound": lambda result: f"{result['bound']:.3g}",
    "dtype": lambda result: result["dtype"],
}


def table(results: Iterable[Record]) -> Lines:
    """Return the table of claims that the README and the report show."""
    return [*COLUMNS], [[of(result) for of in COLUMNS.values()] for result in results]


def compute(results: Iterable[Record]) -> str:
    """Say how much computing time the claims took."""
    seconds = sum(result["cpu_seconds"] for result in results)
    return f"Computing time: {seconds:.0f} CPU seconds, with compilation."


def references(results: Iterable[Record]) -> list[str]:
    """Return a line for each work that the claims quote."""
    quoted = works(result["source"] for result in results)
    return [f"{name}: {work}." for name, work in quoted.items()]


def table_of_readings(results: Iterable[Record]) -> Lines:
    """A line for each reading; the statement is on the first line of a claim."""
    lines = [
        ["" if i else f"{result['id']}: {result['statement']}", reading, verdict]
        for result in results
        for i, (reading, verdict) in enumerate(result["readings"].items())
    ]
    return ["claim", "reading", "verdict"], lines


def words(value: Any) -> str:
    """A setting in words; all settings of a claim with the name of each."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {words(part)}" for name, part in value.items())
    return f"({', '.join(map(words, value))})" if isinstance(value, list) else str(value)


def table_of_sentences(results: Iterable[Record]) -> Lines:
    """The sentences of every source that the claims quote, and the claims that test them."""
    results_of: dict[str, list[Record]] = {}
    for result in results:
        for sentence in sentences(result["quote"]):
            results_of.setdefault(sentence, []).append(result)
    lines = []
    for sentence, group in results_of.items():
        sources = "; ".join(dict.fromkeys(one["source"] for one in group))
        lines.append([sources, sentence, ", ".join(one["id"] for one in group)])
    return ["source", "sentence", "claims"], sorted(lines, key=lambda line: line[0])


def sentences(quote: str) -> list[str]:
    """The sentences of a quote, in which " | " and "[...]" stand for what was left out."""
    parts = re.split(r" \| | ?\[\.\.\.\] ?", quote)
    return [s for part in parts for s in re.split(r"(?<=[A-Za-z)][.:]) (?=[A-Z])", part) if s]


NOT_TESTED = (
    "Not tested: what the sources say about generalisation on real tables, about language models, "
    "and about the running time of other codes."
)


def claims_to_markdown(results: Iterable[Record]) -> str:
    results = list(results)
    settings = [[result["id"], result["file"], words(result["settings"])] for result in results]
    listed = "".join(f"- {line}\n" for line in references(results))
    parts = (
        "The claims quote:",
        listed,
        to_markdown(table(results)),
        "The readings of each statement that were considered, and the verdict under each:",
        to_markdown(table_of_readings(results)),
        "The sentences that the claims quote, and the claims that test each:",
        to_markdown(table_of_sentences(results)),
        NOT_TESTED,
        "What was run:",
        to_markdown((["claim", "experiment", "settings"], settings)),
    )
    return "\n\n".join(part.strip() for part in parts) + "\n"
