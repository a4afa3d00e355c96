"""The rules of `identify_streams`: controls at a candidate's own parameters, and what remains."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...catalogue import candidate, load, make_kernel
from ...tasks import Task
from ...transformer import Transformer, dense
from ..resampling import paired_differences
from .candidate_fit import CandidateFit
from .candidates import keywords
from .decoding import Decoder, Decoders, Rows
from .distances import Distance, distance
from .ruling import CLOSE, DIVERGED, RESOLUTION, Gaps, in_all_spaces, mean, rule_out
from .stream_targets import (
    EARLIER,
    MIXED,
    MIXTURES,
    OWN,
    UNTRAINED,
    Target,
    gaps_of,
    independent,
    mixed,
    nulls,
    own_rows,
    own_target,
    staircase,
    takes_steps,
)
from .suspect import Evidence, Suspect


class Seen(NamedTuple):
    """The streams of one role of tokens, ready to decode, and the root mean square of y.

    `start` decodes what needs no layer, and `controls` are untrained models.
    """

    fitted: Task
    scored: Task
    model: Decoders
    start: Decoder
    controls: list[Decoders]
    size: float

    @property
    def tasks(self) -> int:
        return len(self.scored.x)


class Read(NamedTuple):
    """A fitted candidate, its gaps to the model and its controls, the nearest untrained model."""

    fit: CandidateFit
    gaps: Gaps
    controls: dict[str, Gaps]
    untrained: Decoders
    rows: Rows
    own: Target


def read_candidate(fit: CandidateFit, of: Seen, spectra: Any, steps: int) -> Read:
    """The gaps to a candidate and, at its own parameters, to nulls and of controls."""
    rows = own_rows(fit, (of.fitted, of.scored), of.size, steps)
    own, start = own_target(fit, rows), (of.start, of.tasks, np.array(fit.alignment) > 0)
    asked = {OWN: own} | nulls(fit, spectra, of.model, of.start, of.size)
    mixtures = [f"{MIXED}, draw {i}" for i in range(MIXTURES if takes_steps(fit) else 0)]
    asked |= {name: mixed(own, seed) for seed, name in enumerate(mixtures)}
    found = gaps_of(asked, of.model, *start)
    draws = {MIXED: [found.pop(name) for name in mixtures]}
    for name, models in {EARLIER: [of.model.earlier], UNTRAINED: of.controls}.items():
        draws[name] = [gaps_of({OWN: own}, one, *start)[OWN] for one in models]
    untrained = of.controls[int(np.argmin([*map(far, draws[UNTRAINED])]))]
    nearest = {name: min(every, key=far) for name, every in draws.items() if every}
    return Read(fit, found.pop(OWN), found | nearest, untrained, rows, own)


def far(gaps: Gaps) -> float:
    return sum(map(mean, gaps.values()))


def rule(
    read: list[Read], of: Seen, resample: np.ndarray
) -> tuple[list[str], tuple[str, ...], list[bool]]:
    """Why each candidate is ruled out, or "", what is as near, and which candidates say nothing.

    A candidate says nothing if it diverges, takes no step, or has parameters of no solver.
    """
    because = []
    for one in read:
        last = one.rows.each(lambda part: part[:, -1:])
        diverges = np.sqrt(np.mean(last.scored**2)) > DIVERGED
        size = np.linalg.norm(last.scored)
        share = np.linalg.norm(of.start.rest(last)) / size if size else 0.0
        still = "its steps are nearly the mean of y, or in the stream before the first layer"
        reason = "diverges on the scored tasks" if diverges else still if share < CLOSE else ""
        if not reason and takes_steps(one.fit) and mean(one.gaps["state"]) <= CLOSE:
            reason = refused(one.fit, of.fitted)
        because.append(reason)
    wild = [bool(reason) for reason in because]
    usable = np.flatnonzero(~np.array(wild))
    if not len(usable):
        return because, (), wild
    fits, gaps = [read[i].fit for i in usable], [read[i].gaps for i in usable]
    for i, reason in zip(usable, rule_out(fits, gaps, {}, resample)[0], strict=True):
        because[i] = reason
    near = [as_near(one, resample) for one in read]
    leader = min(usable, key=lambda i: far(read[i].gaps))
    for i, reason in enumerate(because):
        if not reason and (near[i] or near[leader]):
            own = "" if near[i] else f" {read[leader].fit.candidate} is: "
            because[i] = f"no nearer than{own or ' '}{(near[i] or near[leader])[0]}"
    return because, near[leader], wild


def refused(fit: CandidateFit, tasks: Task) -> str:
    """Why no solver has the parameters of a fit, which may leave the range of the solver, or ""."""
    try:
        construction_of(fit, tasks)
    except ValueError as error:
        return f"no solver has its parameters: {error}"
    return ""


def construction_of(fit: CandidateFit, tasks: Task) -> Transformer:
    """The construction of a candidate with its fitted parameters, all slots in one stream."""
    row = candidate(fit.candidate)
    made = make_kernel(fit.kernel, fit.values)
    own = keywords(row, fit.values) | {"steps": max(fit.alignment)}
    return dense(load(row.construction)(made, num_features=tasks.num_features, **own))


def as_near(one: Read, resample: np.ndarray) -> tuple[str, ...]:
    """The controls at a candidate's parameters that are as near as the candidate in a space."""
    every = [one.gaps, *one.controls.values()]
    found = paired_differences(*in_all_spaces(every, resample), np.arange(len(every)) == 0)
    farther = np.all(found.low > RESOLUTION, axis=1)
    near = [name for name, far_off in zip(one.controls, farther[1:], strict=True) if not far_off]
    return tuple(sorted(near, key=lambda name: far(one.controls[name])))


def measured(gaps: Gaps, resample: np.ndarray) -> dict[str, Distance]:
    stratum = np.zeros(resample.shape[1], int)
    return {space: distance(one, stratum, resample) for space, one in gaps.items()}


def suspect_of(one: Read, reason: str, of: Seen, resample: np.ndarray) -> Suspect:
    """The candidate with its staircases: how far each layer is from each step, and the control."""
    found = measured(one.gaps, resample)
    controls = {name: measured(gaps, resample) for name, gaps in one.controls.items()}
    for spaces, model in ((found, of.model), (controls[UNTRAINED], one.untrained)):
        matrix = staircase(one.rows, model.states, of.start)
        spaces["state"] = spaces["state"]._replace(matrix=matrix)
    known = Evidence(controls, independent(one.own, of.model, one.fit), {}, {})
    return Suspect(one.fit, found, reason, evidence=known)
