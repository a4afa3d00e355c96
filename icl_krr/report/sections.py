"""Sections of the report page, each made from the result of one experiment."""

from __future__ import annotations

from typing import Any

from ..experiments.snapshot import Snapshot
from ..files import Lines
from ..plots import pattern_figure, stream_figure, svg
from .page import Figure, Section, Table


def snapshots_section(
    constructed: Snapshot, trained: Snapshot, name: str, dtype: str, seed: int
) -> Section:
    """Attention patterns and residual streams of a constructed and of a trained model."""
    words = (
        "The constructed model is a model of the previous section, with temperature 0.5, ridge "
        "0.1 k(x, x) and full width. Its residual stream consists of disjoint, named slots. "
        "Scratch slots are empty at the end of every step. "
        f"{name} is a trained model. Its residual stream has no named slots.",
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
            "Size of every slot of the residual stream during four steps of conjugate gradient. "
            "Dark means 0 or less than 1e-6 of the largest value. Some slots, such as pAp, are "
            "always dark, because the MLP of the same block divides by their value and then "
            f"erases it. Seed {seed}, {dtype}.",
        ),
        Figure(
            svg(pattern_figure(constructed, "constructed: prologue and first step"), "patterns"),
            "Attention patterns of all heads of the prologue and of the first step. Each head is "
            "named by the slot that it writes. Later steps use the same heads as the first step. "
            "A head with zero queries and keys computes a mean. The first key is the aggregator "
            f"token, which serves as the attention sink. Seed {seed}, {dtype}.",
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
            f"Size of the residual stream of {name} at every token. Seed {seed}, {dtype}.",
        ),
        Figure(
            svg(pattern_figure(trained, f"{name}: every head"), "heads"),
            f"Attention patterns of all heads of {name} on one task of its family. Tokens are "
            f"sorted by x. Seed {seed}, {dtype}.",
        ),
    )
    return Section("inside", "Residual streams and attention patterns", words, parts)


def claims_section(table: Lines, provenance: str) -> Section:
    """The section with the verdicts on the claims."""
    words = (
        "The table lists published claims about in-context kernel regression. Each claim has a "
        "verdict and a check that decides the verdict. If a claim is false as stated, the measured "
        "column shows a counterexample.",
    )
    caption = f"Each measured value is that of the worst draw, averaged over seeds. {provenance}"
    return Section("claims", "Which claims hold", words, (Table(caption, table),))


def identification_section(
    name: str, status: str, tables: list[Lines], heatmaps: bytes, filters: bytes, provenance: str
) -> Section:
    """The section on the solver that a model runs."""
    layers, prediction, hat = tables
    words = (
        f"The predictions of {name} after every layer are compared with the steps of candidate "
        "solvers. The kernel, ridge and step sizes of the candidates are fitted on other tasks. "
        f"Conclusion: {status}.",
    )
    parts = (
        Figure(
            heatmaps,
            "Relative distance of the predictions after every layer to every step of each "
            f"candidate. The line marks the step that is aligned with each layer. {provenance}",
        ),
        Figure(
            filters,
            "Spectral filter of every layer on the eigenvalues of K, with 95 % intervals. The "
            f"dashed line is exact KRR. {provenance}",
        ),
        Table(
            "Errors of the linear probe and of its controls after every layer. The other columns "
            "are the hyperparameters of the kernel ridge regression or Nadaraya-Watson smoother "
            f"whose hat matrix is nearest to that of the layer. {provenance}",
            layers,
        ),
        Table(f"Relative distance of predictions (95 % interval). {provenance}", prediction),
        Table(f"Relative distance of hat matrices (95 % interval). {provenance}", hat),
    )
    return Section("identification", f"Which solver does {name} run?", words, parts)


def training_section(name: str, figure: bytes, provenance: str) -> Section:
    """The section with the training curves of a run."""
    words = (
        "The figure shows the mean squared error of the model during training, and the errors of "
        "known predictors on the validation tasks.",
    )
    return Section("training", f"How {name} was trained", words, (Figure(figure, provenance),))


def facts_of(meta: dict[str, Any]) -> dict[str, str]:
    """The command, seed, device and versions that made a page."""
    versions = ", ".join(f"{package} {number}" for package, number in meta["versions"].items())
    return {
        "command": " ".join(meta["command"]),
        "seed": str(meta["seed"]),
        "device": f"{meta['device']}, {meta['cores']} cores",
        "matmul precision": meta["matmul_precision"],
        "versions": f"Python {meta['python']}, {versions}",
    }


def provenance(meta: dict[str, Any], dtype: str) -> str:
    """The command, seed, versions and device of a result, in one line."""
    return (
        f"{' '.join(meta['command'])}: seed {meta['seed']}, {dtype}, icl_krr "
        f"{meta['versions']['icl_krr']}, jax {meta['versions']['jax']}, {meta['device']}."
    )
