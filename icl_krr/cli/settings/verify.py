"""What `icl-krr verify` can be told."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from .command import Command


@dataclass(frozen=True)
class Verify(Command):
    """Settle the claims of the field: every claim with what was measured, its bound, its
    tightness and a verdict, which is compared with the one that was found before (exit status 1
    if one differs). One claim by its name, such as C16, also draws its figure."""

    claims: tyro.conf.Positional[Annotated[tuple[str, ...], tyro.conf.arg(metavar="CLAIM")]] = ()
    """Claims such as C16; all if absent."""
    quick: bool = False
    """Fewer draws, one seed: under a minute for all."""
    seeds: int | None = None
    """Number of seeds, counted up from --seed; by default 10, or 1 with --quick."""
    seed: int = 0
    """First seed."""
    json: bool = False
    """Print JSON for programs in place of a table."""
    out: Path | None = None
    """Folder for claims.json, claims.md, and rows (CSV) and figure of each claim; by default
    icl-krr-verify where claims are named, else no files."""
