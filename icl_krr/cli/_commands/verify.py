"""`icl-krr verify`: test published claims; verdicts as a table and as files."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from ..._core.text_tables import TextTable, format_number
from .. import _output
from .._options import Command
from .._output import Outcome, working

if TYPE_CHECKING:
    from ...experiments._claims.claim import Claim
    from ...experiments._claims.result import Record


@dataclass(frozen=True)
class Verify(Command):
    """Test published claims about in-context kernel regression. For each claim, the command prints
    a verdict, the measured value and the bound. The exit status is 1 if a verdict differs from the
    verdict recorded in the package. With --out, or if claims are named, such as C16, the command
    also draws figures."""

    claims: tyro.conf.Positional[
        Annotated[tuple[str, ...], tyro.conf.arg(metavar="[CLAIM ...]")]
    ] = ()
    """Names of claims, such as C16. If empty, all claims."""
    set: tuple[str, ...] = ()
    """Other settings of the experiment, as NAME=VALUE, such as num_supports=64 widths=2,4. The
    verdict is then for these settings, and is not compared with the recorded verdict: C27 holds,
    but not with features=16. The option --long prints all settings."""
    quick: bool = False
    """Use fewer draws and one seed. All claims then take three CPU minutes."""
    seeds: int | None = None
    """Number of seeds. The first seed is --seed. If None, 10, or 1 with --quick."""
    seed: int = 0
    """First seed."""
    long: bool = False
    """Print the whole text of each claim, what holds instead, each reading and its verdict, the
    deciding check, the ratio of measured value and bound (tightness), the interval, the place of
    a counterexample, and the file and the settings of the experiment."""
    json: bool = False
    """Print JSON instead of a table."""
    out: Path | None = None
    """Folder for claims.json, claims.md, and a CSV file and a figure for each claim. A claim and
    seed that an earlier run of the same code finished in this folder is not run again.
    If None and claims are named, icl-krr-verify.
    If None and no claims are named, no files are written."""

    @property
    def folder(self) -> Path | None:
        return self.out or (Path("icl-krr-verify") if self.claims else None)


def run(settings: Verify) -> Outcome:
    """The exit status is 1 if a verdict differs from the recorded verdict."""
    from ..._core import checks
    from ...experiments._claims.settings import changed
    from ...experiments._claims.tables import claims_to_markdown, words
    from ...experiments._claims.verify import choose_claims, verify_all
    from ...plots import claim_figure

    chosen = choose_claims(settings.claims)
    if settings.set and not settings.claims:
        raise ValueError("set needs the names of claims, such as C16 --set draws=4")
    pairs = chosen.items() if settings.set else ()
    configs = {name: changed(name, one, settings.quick, settings.set) for name, one in pairs}
    seeds = settings.seeds
    if seeds is None:
        seeds = 1 if settings.quick else 10
    checks.count("seeds", seeds)
    with working(settings) as show:
        each = range(settings.seed, settings.seed + seeds)
        options: Any = {"quick": settings.quick, "configs": configs, "folder": settings.folder}
        verified = verify_all(chosen, seeds=each, progress=show, **options)
    results = [result for result, _ in verified.values()]
    record = {"claims": results}
    files = {"claims.json": record, "claims.md": claims_to_markdown(results)}
    for name, (result, rows) in verified.items():
        config = {f"setting {name}": words(value) for name, value in result["settings"].items()}
        files[f"{name}.csv"] = [row | config for row in rows]
        files[name] = partial(claim_figure, name, chosen[name], rows)
    parts = summary(results, chosen, settings.long)
    return Outcome(record, parts, files, status=int(not all(one["agrees"] for one in results)))


def summary(results: list[Record], chosen: dict[str, Claim], long: bool) -> list[TextTable | str]:
    from ...experiments._claims.tables import compute, references

    judged = [result for result in results if result["expected"]]
    agree = (
        f"{sum(result['agrees'] for result in judged)} of {len(judged)} verdicts agree with the "
        "recorded verdicts"
        if judged
        else "The verdicts are for the settings that were given, and there is no recorded verdict "
        "for them"
    )
    more = (
        ", with a 95 % bootstrap interval. tightness: measured / bound for an upper bound, "
        "bound / measured for a lower bound."
        if long
        else ". --long prints the source of each claim, its words, what holds instead, the "
        "deciding check, what the models require besides the kernel, and the settings."
    )
    return [
        long_table(results) if long else short_table(results, chosen),
        f"{agree}; seeds per claim: {results[0]['seeds']}. "
        f"{compute(results)}\n"
        f"measured: value of the worst draw, averaged over seeds{more}",
        *(["\n".join(references(results))] if long else []),
    ]


def short_table(results: list[Record], chosen: dict[str, Claim]) -> TextTable:
    """A line for each claim; with its source and what the models require, if there is room."""
    wide = _output.table_console().width >= 120
    lines = [
        [
            f"{result['id']}: {chosen[result['id']].title}",
            status(result),
            format_number(result["measured"]),
            format_number(result["bound"]),
            *(["; ".join(chosen[result["id"]].authors), result["required_inputs"]] if wide else []),
        ]
        for result in results
    ]
    sources = ["source", "required inputs"] if wide else []
    return TextTable("Claims", ["claim", "verdict", "measured", "bound", *sources], [lines])


def long_table(results: list[Record]) -> TextTable:
    from ...experiments._claims.tables import words as in_words

    header = ["", "verdict", "claim, what holds, deciding check", "measured, bound"]
    lines = []
    for result in results:
        readings = "; ".join(f"{words}: {verdict}" for words, verdict in result["readings"].items())
        words = {
            "source": result["source"],
            "as printed": result["quote"],
            "tested": result["statement"],
            f"what holds ({result['corrected']})": result["truth"],
            "readings": readings,
            "deciding check": result["check"],
            "settings": in_words(result["settings"]),
            "experiment": result["file"],
        }
        numbers = [
            f"{format_number(result['measured'])}, {format_number(result['bound'])}",
            f"tightness {format_number(result['tightness'])}",
        ]
        if result["interval"] is not None:
            numbers.append("{:.3g} to {:.3g}".format(*result["interval"]))
        if place := result["counterexample"]:
            draw = "" if place["draw"] is None else f", draw {place['draw']}"
            numbers.append(f"seed {place['seed']}{draw}")
        parts = "\n".join(f"{name}: {text}" for name, text in words.items() if text)
        cells = [*numbers, f"required inputs: {result['required_inputs']}", result["dtype"]]
        lines.append([result["id"], status(result), parts, "\n".join(cells)])
    return TextTable("Claims: measured value and claimed bound", header, [[line] for line in lines])


def status(result: Record) -> str:
    expected = "" if result["agrees"] else f"; expected: {result['expected']}"
    return result["status"] + expected
