"""The settings of `icl-krr verify`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import tyro

from .command import Command, Folder


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
    quick: bool = False
    """Use fewer draws and one seed. All claims then take less than a minute."""
    seeds: int | None = None
    """Number of seeds. The first seed is --seed. If None, 10, or 1 with --quick."""
    seed: int = 0
    """First seed."""
    long: bool = False
    """Print the whole text of each claim, what holds instead, the deciding check, the ratio of
    measured value and bound (tightness), the interval and the place of a counterexample."""
    json: bool = False
    """Print JSON instead of a table."""
    out: Folder | None = None
    """Folder for claims.json, claims.md, and a CSV file and a figure for each claim.
    If None and claims are named, icl-krr-verify.
    If None and no claims are named, no files are written."""
