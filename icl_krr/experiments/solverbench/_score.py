"""Score a table of verdicts against the labels of SolverBench."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from scipy.stats import binomtest

from ..._core.files import Lines, to_markdown
from ._load import Label
from ._models import OPEN, VARIANTS
from ._verdicts import IDENTIFIED, NEAR, NONE, STATUSES, TIED, Verdict

OUTCOMES = ("right", "among", "close", "none", "close to another", "wrong")
"""What a verdict on a model that runs a candidate is: the right name alone; several names with the
right one among them; close to the right name; no name; close to a wrong name; one or several wrong
names."""


class Share(NamedTuple):
    """A number of cases out of all, with its 95 % interval."""

    cases: int
    total: int
    share: float | None  # None without cases
    interval: tuple[float, float] | None  # Wilson's 95 % score interval; None without cases

    @classmethod
    def of(cls, cases: int, total: int) -> Share:
        """The share with Wilson's interval."""
        if not total:
            return cls(0, 0, None, None)
        interval = binomtest(cases, total).proportion_ci(0.95, method="wilson")
        return cls(cases, total, cases / total, (float(interval.low), float(interval.high)))

    def __str__(self) -> str:
        if self.interval is None:
            return "-"
        low, high = self.interval
        return f"{self.cases}/{self.total} ({low:.2f}, {high:.2f})"


def outcome(label: Mapping[str, Any], verdict: Verdict) -> str:
    """What a verdict on a model with this label is, one of `OUTCOMES`."""
    named = set(label["names"]) & set(verdict.names)
    if verdict.status == NONE:
        return "none"
    if verdict.status == NEAR:
        return "close" if named else "close to another"
    if not named:
        return "wrong"
    return "right" if set(verdict.names) <= set(label["names"]) else "among"


def score(labels: Mapping[str, Label], verdicts: Mapping[str, Verdict]) -> dict[str, Any]:
    """The score of verdicts, by name of the model, against its label.

    In the open set no candidate is right: "identified" and "not distinguishable" are false
    positives, "none" is right, and "close to" claims no solver.
    """
    rows = [
        {
            "model": name,
            "variant": label["variant"],
            "tasks": label["tasks"],
            "truth": label["about"],
            "solver": label["solver"],
            "status": verdicts[name].status,
            "names": " ".join(verdicts[name].names),
            "outcome": outcome(label, verdicts[name]),
        }
        for name, label in labels.items()
    ]
    return summary(rows)


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Shares of outcomes by variant and of verdicts in the open set, confusion, and the rows."""
    variants = {}
    for variant in VARIANTS:
        kinds = [row["outcome"] for row in rows if row["variant"] == variant]
        if kinds and variant != OPEN:
            variants[variant] = {name: Share.of(kinds.count(name), len(kinds)) for name in OUTCOMES}
    statuses = [row["status"] for row in rows if row["variant"] == OPEN]
    false = statuses.count(IDENTIFIED) + statuses.count(TIED)
    return {
        "variants": variants,
        "open set": {
            "false positives": Share.of(false, len(statuses)),
            **{name: Share.of(statuses.count(name), len(statuses)) for name in STATUSES},
        },
        "confusion": confusion(rows),
        "rows": rows,
    }


def confusion(rows: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """{solver, or model of the open set: {names that were said: number of models}}."""
    table: dict[str, dict[str, int]] = {}
    for row in rows:
        verdict = NONE if row["status"] == NONE else f"{row['status']}: {row['names']}"
        line = table.setdefault(row["solver"] or f"open: {row['truth']}", {})
        line[verdict] = line.get(verdict, 0) + 1
    return dict(sorted(table.items(), key=lambda item: (item[0].startswith("open: "), item[0])))


def variant_table(scores: Mapping[str, Any]) -> Lines:
    """The share of every outcome in every variant."""
    lines = [[name, *map(str, shares.values())] for name, shares in scores["variants"].items()]
    return ["variant", *OUTCOMES], lines


def open_table(scores: Mapping[str, Any]) -> Lines:
    """The share of every verdict in the open set."""
    shares = scores["open set"]
    return [*shares], [list(map(str, shares.values()))]


def markdown(scores: Mapping[str, Any]) -> str:
    """The score as tables in Markdown."""
    verdict_lines = [
        [truth, ", ".join(f"{names} ({count})" for names, count in line.items())]
        for truth, line in scores["confusion"].items()
    ]
    each = [[row[name] for name in COLUMNS] for row in scores["rows"]]
    heading = "Models that run a candidate, number of models (Wilson's 95 % interval)"
    tables = {
        heading: variant_table(scores),
        "Models that run no candidate": open_table(scores),
        "What was said of each truth (number of models)": (["truth", "verdicts"], verdict_lines),
        "Every model": ([*COLUMNS], each),
    }
    return "\n".join(f"{title}\n\n{to_markdown(table)}" for title, table in tables.items())


COLUMNS = ("model", "variant", "tasks", "truth", "status", "names", "outcome")
