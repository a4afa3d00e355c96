"""The rules of `identify_streams`: targets and controls of a candidate's maps, and what remains."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ... import Task, Transformer, constructions, dense
from ...catalogue import candidate
from ...kernels import kernel_class, make_kernel
from .candidate_fit import CandidateFit
from .candidates import keywords
from .decoding import Decoder, Decoders, Rows, as_rows
from .distances import Aligned, Distance, Evidence, Gaps, Suspect, distance, finite
from .elimination import CLOSE, DIVERGED, eliminate, far, measured
from .nested_models import Spectrum, exact_regression, gradient_flow, ridge_path
from .stream_fit import MOVES, step_rows, targets

OWN = "own steps"
EARLIER, MIXED, UNTRAINED = "one layer earlier", "mixed steps", "untrained model"
TIMES = np.exp(np.log(10) * np.linspace(-2, 5, 29))
RIDGES = np.exp(np.log(10) * np.linspace(-6, 3, 37))
"""Times of gradient flow and ridges that each layer may have, over the largest eigenvalue."""
KNOWN = 1e-6
"""The start decodes a target if it leaves at most this share of the target."""
MIXTURES = 4
"""Number of draws of the mixed steps."""


def own_rows(
    fit: CandidateFit, halves: tuple, size: float, steps: int, state: str = "prediction"
) -> Rows:
    """A state of a candidate, from step 0 to that of the last layer, at most 1e50 in size."""
    made = partial(
        step_rows, fit.candidate, fit.kernel, fit.logs, size=size, steps=steps, state=state
    )
    rows = Rows(*(np.asarray(made(half), float)[:, : max(fit.alignment) + 1] for half in halves))
    return rows.each(lambda part: np.clip(np.nan_to_num(part, nan=1e50), -1e50, 1e50))


def takes_steps(fit: CandidateFit) -> bool:
    row = candidate(fit.candidate)
    return row.iterates and not row.sequential


def mixed(own: Rows, seed: int) -> Rows:
    """Steps with the same span: each innovation with shares of all earlier ones, at random."""
    layers = own.fitted.shape[1]
    sizes = np.linalg.norm(own.fitted[1], axis=-1)
    shares = np.random.default_rng(seed).normal(size=(layers, layers))
    shares = np.tril(shares, -1) / np.sqrt(np.maximum(np.arange(layers), 1))[:, None]
    mix = np.eye(layers) + shares * sizes[:, None] / np.where(sizes > 0, sizes, 1)
    return Rows(*(np.stack([np.cumsum(mix @ part[1], axis=0), mix @ part[1]]) for part in own))


def nulls(
    fit: CandidateFit,
    spectra: tuple[Spectrum, Spectrum],
    model: Decoders,
    start: Decoder,
    size: float,
) -> dict[str, Rows]:
    """Targets without steps on the candidate's kernel: each layer has the value it decodes best."""
    bandwidth = fit.values.get(kernel_class(fit.kernel).bandwidth or "", 1.0)
    both = [spectrum.at(fit.kernel, float(np.log(bandwidth))) for spectrum in spectra]
    scale = both[0].scale
    ridge = fit.values.get("ridge", 1e-3 * scale) / scale
    grids = {
        "interpolation": (exact_regression, np.ones(1)),
        "ridge path": (ridge_path, RIDGES),
        "gradient flow": (gradient_flow, TIMES),
    }
    at = np.array(fit.alignment)
    kept = [one for one, step in zip(model.states[1:], at, strict=True) if step]
    found = {}
    for name, (filters, grid) in grids.items():
        made = [filters(part.sigma / scale, ridge, grid[:, None, None]) for part in both]
        rows = Rows(*(filter_rows(*pair, size) for pair in zip(both, made, strict=True)))
        more = np.linalg.norm(rest(start, rows.fitted), axis=0)
        lost = [np.linalg.norm(rest(one, rows.fitted), axis=0) for one in kept]
        best = [int(np.argmin(one / np.where(more > 0, more, np.inf))) for one in lost]
        states = [part.T[best] for part in rows]
        before = [np.concatenate([0 * part[:1], part[:-1]]) for part in states]
        if name == "interpolation":  # shares of one function: so are their differences
            before = [0 * part for part in before]
        found[name] = Rows(*(np.stack([s, s - b]) for s, b in zip(states, before, strict=True)))
    return found


def filter_rows(spectra, q: np.ndarray, size: float) -> np.ndarray:
    values, slopes = spectra.predictions(q), spectra.hats(q)
    return as_rows(np.moveaxis(values, 1, 2), np.moveaxis(slopes, 1, 2), size, np)


def rest(decoder: Decoder, rows: np.ndarray) -> np.ndarray:
    basis = decoder.basis()
    return rows - basis @ (basis.T @ rows)


def own_target(fit: CandidateFit, rows: Rows) -> Rows:
    """The states and the innovations [2, L, m] of the layers with steps."""
    kept = np.array(fit.alignment) > 0
    return Rows(*(targets(part, fit.alignment)[:, kept] for part in rows))


def gaps_of(
    wanted: Mapping[str, Rows], model: Decoders, start: Decoder, tasks: int, kept: np.ndarray
) -> dict[str, Gaps]:
    """How far the maps of every layer are from each target, beyond what the start decodes.

    Layers in which the first target hardly moves have no innovation, and do not count. If another
    target does not move, it is decoded if the block writes nothing, and not at all otherwise. A
    target that the start decodes, such as the first alpha, has distance 0 to any model.
    """
    found: dict[str, Gaps] = {name: {} for name in wanted}
    first = next(iter(wanted.values())).fitted
    for s, (space, every) in enumerate(model.spaces.items()):
        layers = [one for one, keep in zip(every, kept, strict=True) if keep]
        squares, sizes = [], []
        for layer, decoder in enumerate(layers):
            extent = np.linalg.norm(first[:, layer], axis=-1)
            if layer and extent[s] <= MOVES * extent[0]:
                continue
            rows = Rows(
                *(np.stack([t[h][s, layer] for t in wanted.values()], axis=1) for h in (0, 1))
            )
            left = (one.rest(rows).reshape(tasks, -1, len(wanted)) for one in (decoder, start))
            each = [np.sum(part**2, axis=1) for part in left]
            silent, writes = ~np.any(rows.fitted, axis=0), np.any(decoder.channels.fitted[:, :-1])
            known = np.sum(each[1], axis=0) <= KNOWN**2 * np.sum(rows.scored**2, axis=0)
            for one, part in zip((squares, sizes), each, strict=True):
                one.append(np.where(silent, float(writes), np.where(known, 0, part)))
        squares, sizes = np.stack(squares, axis=1), np.stack(sizes, axis=1)
        for i, name in enumerate(wanted):
            none = np.zeros((squares.shape[1], 0))
            found[name][space] = Aligned(finite(squares[..., i]), sizes[..., i], none)
    return found


def staircase(rows: Rows, every: list[Decoder], start: Decoder) -> np.ndarray:
    """Relative distances of the streams of all layers, with the start, to all steps [L + 1, T]."""
    steps = rows.each(lambda part: part[:, 1:])
    more = np.linalg.norm(start.rest(steps), axis=0)
    far = np.stack([np.linalg.norm(one.rest(steps), axis=0) for one in every])
    return far / np.where(more > 0, more, 1)


def independent(own: Rows, model: Decoders, fit: CandidateFit) -> tuple[int, ...]:
    """How many independent combinations of a candidate's steps so far each layer decodes.

    If it is as many as there are steps, every method with the same span is decoded.
    """
    kept = [one for one, step in zip(model.states[1:], fit.alignment, strict=True) if step]
    found = []
    for count, decoder in enumerate(kept, start=1):
        left, sigma, _ = np.linalg.svd(own.fitted[1, :count].T, full_matrices=False)
        span = left[:, sigma > 1e-6 * sigma[0]]
        found.append(int(np.sum(np.linalg.svd(rest(decoder, span), compute_uv=False) < CLOSE)))
    return tuple(found)


class Seen(NamedTuple):
    """The streams of one role of tokens, ready to decode, and the root mean square of y."""

    fitted: Task
    scored: Task
    model: Decoders
    start: Decoder
    controls: list[Decoders]
    size: float

    @property
    def tasks(self) -> int:
        return len(self.scored.x)

    def gaps(
        self, wanted: Mapping[str, Rows], model: Decoders, fit: CandidateFit
    ) -> dict[str, Gaps]:
        return gaps_of(wanted, model, self.start, self.tasks, np.array(fit.alignment) > 0)


class Read(NamedTuple):
    """A fitted candidate, its gaps to the model and its controls, the nearest untrained model."""

    fit: CandidateFit
    gaps: Gaps
    controls: dict[str, Gaps]
    untrained: Decoders
    rows: Rows
    own: Rows


def read_candidate(fit: CandidateFit, of: Seen, spectra: Any, steps: int) -> Read:
    """The gaps to a candidate and, at its own parameters, to nulls and of controls."""
    rows = own_rows(fit, (of.fitted, of.scored), of.size, steps)
    own = own_target(fit, rows)
    asked = {OWN: own} | nulls(fit, spectra, of.model, of.start, of.size)
    mixtures = [f"{MIXED}, draw {i}" for i in range(MIXTURES if takes_steps(fit) else 0)]
    asked |= {name: mixed(own, seed) for seed, name in enumerate(mixtures)}
    found = of.gaps(asked, of.model, fit)
    draws = {MIXED: [found.pop(name) for name in mixtures]}
    for name, models in {EARLIER: [of.model.earlier], UNTRAINED: of.controls}.items():
        draws[name] = [of.gaps({OWN: own}, one, fit)[OWN] for one in models]
    untrained = of.controls[int(np.argmin([*map(far, draws[UNTRAINED])]))]
    nearest = {name: min(every, key=far) for name, every in draws.items() if every}
    return Read(fit, found.pop(OWN), found | nearest, untrained, rows, own)


def rule(
    read: list[Read], of: Seen, resample: np.ndarray
) -> tuple[list[str], tuple[str, ...], list[bool]]:
    """Why each candidate is ruled out, or "", what is as near, and which candidates say nothing."""
    because = [says_nothing(one, of) for one in read]
    wild = [bool(reason) for reason in because]
    if all(wild):
        return because, (), wild
    gaps = [one.gaps for one in read]
    because, _ = eliminate([one.fit for one in read], measured(gaps, resample), because)
    near = [as_near(one, resample) for one in read]
    leader = min(np.flatnonzero(~np.array(wild)), key=lambda i: far(gaps[i]))
    for i, reason in enumerate(because):
        if not reason and (near[i] or near[leader]):
            own = "" if near[i] else f" {read[leader].fit.candidate} is: "
            because[i] = f"no nearer than{own or ' '}{(near[i] or near[leader])[0]}"
    return because, near[leader], wild


def says_nothing(one: Read, of: Seen) -> str:
    """Why the distances of a candidate say nothing, or ""."""
    last = one.rows.each(lambda part: part[:, -1:])
    if np.sqrt(np.mean(last.scored**2)) > DIVERGED:
        return "diverges on the scored tasks"
    size = np.linalg.norm(last.scored)
    if not size or np.linalg.norm(of.start.rest(last)) < CLOSE * size:
        return "its steps are nearly the mean of y, or in the stream before the first layer"
    if takes_steps(one.fit) and one.gaps["state"].mean <= CLOSE:
        return refused(one.fit, of.fitted)
    return ""


def as_near(one: Read, resample: np.ndarray) -> tuple[str, ...]:
    """The controls at a candidate's parameters that are as near as the candidate in a space."""
    every = measured([one.gaps, *one.controls.values()], resample)
    _, near = eliminate([one.fit], every, [""], farther_if=np.all)
    names = [name for name, is_near in zip(one.controls, near[1:], strict=True) if is_near]
    return tuple(sorted(names, key=lambda name: far(one.controls[name])))


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
    return dense(constructions.lookup(row)(made, num_features=tasks.num_features, **own))


def distances_of(gaps: Gaps, resample: np.ndarray) -> dict[str, Distance]:
    stratum = np.zeros(resample.shape[1], int)
    return {space: distance(one, stratum, resample) for space, one in gaps.items()}


def suspect_of(
    one: Read, reason: str, of: Seen, resample: np.ndarray, supports: Any, effects: Any
) -> Suspect:
    """The candidate with its staircases: how far each layer is from each step, and the control."""
    found = distances_of(one.gaps, resample)
    controls = {name: distances_of(gaps, resample) for name, gaps in one.controls.items()}
    for spaces, model in ((found, of.model), (controls[UNTRAINED], one.untrained)):
        matrix = staircase(one.rows, model.states, of.start)
        spaces["state"] = spaces["state"]._replace(matrix=matrix)
    ranks = independent(one.own, of.model, one.fit)
    return Suspect(one.fit, found, reason, evidence=Evidence(controls, ranks, supports, effects))
