"""The sections on claims and on how a page was made, and what results say of their origin."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ..experiments.claims.claim import works
from ..files import Lines
from .page import Facts, Fold, Section


def claims_section(table: Lines, provenance: str) -> Section:
    """The section with the verdicts on the claims and the works that they quote."""
    header, lines = table
    counts = Counter(line[1] for line in lines)
    words = (
        "Claims about in-context kernel regression, quoted from published works or our own. Each "
        "claim has a verdict and a check that decides the verdict. If a claim is false as stated, "
        "its measured value shows a counterexample. Verdicts: "
        f"{', '.join(f'{n} {status}' for status, n in counts.items())}.",
        f"Each measured value is that of the worst draw, averaged over seeds. {provenance}",
    )
    folds, sources = [], []
    for claim, verdict, *rest in lines:
        known = {name: cell for name, cell in zip(header[2:], rest, strict=True) if cell}
        folds.append(Fold(claim, (Facts(known),), verdict))
        sources.append(known.get("source", ""))
    quoted = works(sources)
    if quoted:
        folds.append(Fold("Works that the claims quote", (Facts(quoted),)))
    return Section("claims", "Which claims hold", words, tuple(folds))


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
