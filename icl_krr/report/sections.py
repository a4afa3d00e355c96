"""What a page says of results: each section from what one experiment returned."""

from __future__ import annotations

from typing import Any

from ..experiments.snapshot import Snapshot
from ..files import Lines
from ..plots import pattern_figure, stream_figure, svg
from .page import Figure, Section, Table


def snapshots_section(
    constructed: Snapshot, trained: Snapshot, name: str, dtype: str, seed: int
) -> Section:
    """Patterns and streams of a model whose algorithm is known, and of one that was trained."""
    words = (
        "The constructed model is the explorer's, at temperature 0.5, ridge 0.1 k(x, x) and full "
        "width. Its slots are disjoint by construction, and scratch slots are empty again when a "
        f"step ends. {name} was trained: its stream is one slot of channels without names.",
    )
    parts = (
        Figure(
            svg(
                stream_figure(
                    constructed.slots,
                    "root mean square over tokens",
                    "constructed: every slot after every block",
                ),
                "slots",
            ),
            "The residual stream of four steps of conjugate gradient, slot by slot. Dark is 0, or "
            "less than 1e-6 of the largest: a scalar that the MLP of its own block divides by and "
            f"erases, such as pAp, is never seen after a block. Seed {seed}, "
            f"{dtype}.",
        ),
        Figure(
            svg(pattern_figure(constructed, "constructed: prologue and first step"), "patterns"),
            "Every head of the prologue and of the first step, named by the slot it writes; later "
            "steps repeat those of the first. Where queries and keys are 0 a head is a mean; the "
            f"first key is the aggregator, which is the sink. Seed {seed}, {dtype}.",
        ),
        Figure(
            svg(
                stream_figure(
                    trained.tokens,
                    "root mean square over channels",
                    f"{name}: every token after every block",
                ),
                "tokens",
            ),
            f"The residual stream of {name}, token by token. Seed {seed}, {dtype}.",
        ),
        Figure(
            svg(pattern_figure(trained, f"{name}: every head"), "heads"),
            f"Every head of {name} on one of its tasks, tokens in the order of x. Seed {seed}, "
            f"{dtype}.",
        ),
    )
    return Section("inside", "Residual streams and attention patterns", words, parts)


def claims_section(table: Lines, provenance: str) -> Section:
    """The verdicts as a table."""
    words = (
        "Each claim of the field with the check that decides: a claim that is false as stated has "
        "its counterexample in the measured column.",
    )
    caption = f"The worst draw, averaged over seeds. {provenance}"
    return Section("claims", "Which claims hold", words, (Table(caption, table),))


def identification_section(
    name: str, status: str, tables: list[Lines], heatmaps: bytes, filters: bytes, provenance: str
) -> Section:
    """What solver a model is nearest to."""
    layers, prediction, hat = tables
    words = (
        f"What {name} would answer after every layer, compared with the steps of solvers whose "
        "kernel, ridge and step sizes were fitted on other tasks. "
        f"Conclusion: {status}.",
    )
    parts = (
        Figure(
            heatmaps,
            "Relative distance of every layer to every step of each candidate, in "
            f"predictions; the line is the alignment. {provenance}",
        ),
        Figure(
            filters,
            "What every layer makes of the eigenvalues of K, with 95 % intervals, "
            f"beside exact regression. {provenance}",
        ),
        Table(
            f"Errors of the probe after every layer with its controls, and the nearest "
            f"hyperparameters. {provenance}",
            layers,
        ),
        Table(f"Relative distance in predictions (95 %). {provenance}", prediction),
        Table(f"Relative distance in hat matrices (95 %). {provenance}", hat),
    )
    return Section("identification", f"Which solver does {name} run?", words, parts)


def training_section(name: str, figure: bytes, provenance: str) -> Section:
    """How a run was trained."""
    words = ("Mean squared errors beside those of known predictors on the same tasks.",)
    return Section("training", f"How {name} was trained", words, (Figure(figure, provenance),))


def facts_of(meta: dict[str, Any]) -> dict[str, str]:
    """Where and with what a page was made."""
    versions = ", ".join(f"{package} {number}" for package, number in meta["versions"].items())
    return {
        "command": " ".join(meta["command"]),
        "seed": str(meta["seed"]),
        "device": f"{meta['device']}, {meta['cores']} cores",
        "matmul precision": meta["matmul_precision"],
        "versions": f"Python {meta['python']}, {versions}",
    }


def provenance(meta: dict[str, Any], dtype: str) -> str:
    """Where a result comes from, in a line."""
    return (
        f"{' '.join(meta['command'])}: seed {meta['seed']}, {dtype}, icl_krr "
        f"{meta['versions']['icl_krr']}, jax {meta['versions']['jax']}, {meta['device']}."
    )
