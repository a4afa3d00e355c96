"""The settings of `icl-krr solverbench`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from ..options import Command, Folder, refuse_unused

WRITE, IDENTIFY, SCORE, POWER = "write", "identify", "score", "power"
OUT = {
    WRITE: Path("icl-krr-solverbench"),
    IDENTIFY: Path("icl-krr-solverbench-identify"),
    SCORE: Path("icl-krr-solverbench-score"),
    POWER: Path("icl-krr-solverbench-power"),
}


@dataclass(frozen=True)
class Solverbench(Command):
    """Test a method that says which solver a model runs, on models of known algorithm. ACTION
    "write" writes the models, their tasks and answers to the folder models, and the truth to the
    folder labels. Some models run no known solver: the open set. "identify" writes the verdicts of
    icl_krr.probes.identify on these models to verdicts.csv. "score" scores TABLE, such as
    verdicts.csv. "power" measures how much noise on the weights identify tolerates."""

    action: tyro.conf.Positional[
        Annotated[Literal["write", "identify", "score", "power"], tyro.conf.arg(metavar="ACTION")]
    ]
    """One of write, identify, score and power (see above)."""
    table: tyro.conf.Positional[Annotated[Path | None, tyro.conf.arg(metavar="[TABLE.csv]")]] = None
    """Table of verdicts, with the columns model, status and names. A status is "identified",
    "not distinguishable", "close to" or "none". Names of several solvers are separated by spaces.
    Only for score."""
    models: Folder = OUT[WRITE] / "models"
    """Folder of the models, for identify."""
    labels: Folder = OUT[WRITE] / "labels"
    """Folder of the labels, for score."""
    seed: int = 0
    """Seed of every random choice."""
    quick: bool = False
    """Use few and small models, or few and small cells of the power curves."""
    json: bool = False
    """Print JSON instead of tables."""
    out: Folder | None = None
    """Folder for the results.
    If None, icl-krr-solverbench for write, and icl-krr-solverbench-ACTION otherwise."""

    def refuse_options_without_effect(self) -> None:
        if self.action == SCORE and self.table is None:
            raise ValueError("TABLE.csv must be given for score, got none; give verdicts.csv")
        if self.action != SCORE and self.table is not None:
            raise ValueError(
                f"TABLE.csv must not be given for {self.action}, got {self.table}; remove it"
            )
        unused = {
            WRITE: ("models", "labels"),
            IDENTIFY: ("labels", "quick"),
            SCORE: ("models", "seed", "quick"),
            POWER: ("models", "labels"),
        }[self.action]
        refuse_unused(self, unused, f"for {self.action}")
