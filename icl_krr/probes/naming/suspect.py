"""A candidate as `identify` leaves it: its fit, its distances, and what else is known of it."""

from __future__ import annotations

from typing import NamedTuple

from ...readable import readable
from .candidate_fit import CandidateFit
from .distances import Distance


@readable
class Evidence(NamedTuple):
    """What is known of a candidate's steps in the streams of a model, besides its distances.

    Attributes:
        controls: {control: {space: `Distance`}} at the candidate's own parameters: the nulls, the
            stream one layer earlier, other steps with the same span ("mixed steps", the nearest of
            4 draws), and an untrained model (the nearest of 2).
        ranks: how many independent combinations of the steps so far each layer decodes.
        supports: {state: {space: `Distance`}} of alpha and r at the supports, each with a control.
        effects: {"removed": distance, "swapped": distance}, if the candidate remained and the model
            is a `Transformer`: from the change of the answer to that of the construction's answer,
            if its states are removed from every layer, or swapped for those of another task.
    """

    controls: dict[str, dict[str, Distance]]
    ranks: tuple[int, ...]
    supports: dict[str, dict[str, Distance]]
    effects: dict[str, float]


@readable
class Suspect(NamedTuple):
    """A fitted candidate, its distances, and the reason why it was ruled out.

    Attributes:
        fit: the fitted candidate.
        distances: {space: `Distance`} for the spaces "prediction" and "hat" of answers, or "state"
            and "innovation" of streams.
        because: why the candidate was ruled out, in words; empty if it remains.
        regular: whether steps at equal intervals are as near as the aligned steps.
        limit: number of steps that were tried, if a layer is aligned with the last of them and the
            solver has not converged there.
        evidence: controls and further evidence of a model that is read through its streams.
    """

    fit: CandidateFit
    distances: dict[str, Distance]
    because: str
    regular: bool = True
    limit: int | None = None
    evidence: Evidence | None = None


@readable
class Statement(NamedTuple):
    """A rung of the ladder: a statement about all layers, and how far the model is from it.

    It has its name, such as "any filter", the kernel of a function of K, fitted parameters that all
    layers share, and {space: `Distance`} in the spaces where it says something.
    """

    name: str
    kernel: str
    values: dict[str, float]
    distances: dict[str, Distance]
