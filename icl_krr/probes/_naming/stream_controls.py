"""The rules of `identify_streams`: targets and controls of a candidate's maps, and what remains."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ... import Task, Transformer, constructions, dense
from ...catalogue import candidate
from ...kernels import kernel_class, make_kernel
from . import distances
from .candidate_fit import CandidateFit
from .candidates import keywords
from .decoding import Decoder, Decoders, Halves, as_rows
from .distances import AlignedDistances, CandidateResult, Distance, Gaps, clip_finite, distance
from .elimination import CLOSE, DIVERGED, eliminate, measure, total_distance
from .nested_models import Spectrum, exact_regression, gradient_flow, ridge_path
from .stream_fit import MIN_INNOVATION, step_rows, targets

OWN = "own steps"
EARLIER, MIXED, UNTRAINED = "one layer earlier", "mixed steps", "untrained model"
TIMES = np.exp(np.log(10) * np.linspace(-2, 5, 29))
RIDGES = np.exp(np.log(10) * np.linspace(-6, 3, 37))
"""Times of gradient flow and ridges that each layer may have, over the largest eigenvalue."""
DECODED_SHARE = 1e-6
"""The start decodes a target if it leaves at most this share of the target."""
MIXTURES = 4
"""Number of draws of the mixed steps."""


def state_rows(fit: CandidateFit, halves: tuple, size: float, steps: int, state: str) -> Halves:
    """A state of a candidate, from step 0 to that of the last layer, at most 1e50 in size."""
    each = (step_rows(*fit[:2], fit.logs, half, size, steps, state) for half in halves)
    rows = Halves(*(np.asarray(part, float)[:, : max(fit.alignment) + 1] for part in each))
    return rows.each(lambda part: np.clip(np.nan_to_num(part, nan=1e50), -1e50, 1e50))


def takes_steps(fit: CandidateFit) -> bool:
    entry = candidate(fit.candidate)
    return entry.iterates and not entry.sequential


def _mixed_steps(steps: Halves, seed: int) -> Halves:
    """Steps with the same span: each innovation with shares of all earlier ones, at random."""
    layers = steps.fitted.shape[1]
    sizes = np.linalg.norm(steps.fitted[1], axis=-1)
    shares = np.random.default_rng(seed).normal(size=(layers, layers))
    shares = np.tril(shares, -1) / np.sqrt(np.maximum(np.arange(layers), 1))[:, None]
    mix = np.eye(layers) + shares * sizes[:, None] / np.where(sizes > 0, sizes, 1)
    return Halves(*(np.stack([np.cumsum(mix @ part[1], axis=0), mix @ part[1]]) for part in steps))


def _null_targets(
    fit: CandidateFit, spectra: Sequence[Spectrum], model: Decoders, start: Decoder, size: float
) -> dict[str, Halves]:
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
    layers = [one for one, step in zip(model.states[1:], at, strict=True) if step]
    named = {}
    for name, (filters, grid) in grids.items():
        weights = [filters(part.sigma / scale, ridge, grid[:, None, None]) for part in both]
        rows = Halves(*(filter_rows(*pair, size) for pair in zip(both, weights, strict=True)))
        more = np.linalg.norm(_undecoded(start, rows.fitted), axis=0)
        lost = [np.linalg.norm(_undecoded(one, rows.fitted), axis=0) for one in layers]
        best = [int(np.argmin(one / np.where(more > 0, more, np.inf))) for one in lost]
        states = [part.T[best] for part in rows]
        before = [np.concatenate([0 * part[:1], part[:-1]]) for part in states]
        if name == "interpolation":  # shares of one function: so are their differences
            before = [0 * part for part in before]
        named[name] = Halves(*(np.stack([s, s - b]) for s, b in zip(states, before, strict=True)))
    return named


def filter_rows(spectra, q: np.ndarray, size: float) -> np.ndarray:
    values, slopes = spectra.predictions(q), spectra.hats(q)
    return as_rows(np.moveaxis(values, 1, 2), np.moveaxis(slopes, 1, 2), size, np)


def _undecoded(decoder: Decoder, rows: np.ndarray) -> np.ndarray:
    basis = decoder.basis()
    return rows - basis @ (basis.T @ rows)


def layer_targets(fit: CandidateFit, rows: Halves) -> Halves:
    """The states and the innovations [2, L, m] of the layers with steps."""
    has_step = np.array(fit.alignment) > 0
    return Halves(*(targets(part, fit.alignment)[:, has_step] for part in rows))


def target_gaps(
    targets: Mapping[str, Halves], model: Decoders, start: Decoder, tasks: int, has_step: np.ndarray
) -> dict[str, Gaps]:
    """How far the maps of every layer are from each target, beyond what the start decodes.

    Layers in which the first target hardly moves have no innovation, and do not count. If another
    target does not move, it is decoded if the block writes nothing, and not at all otherwise. A
    target that the start decodes, such as the first alpha, has distance 0 to any model.
    """
    gaps: dict[str, Gaps] = {name: {} for name in targets}
    halves = [*targets.values()]
    first = halves[0].fitted
    for s, (space, all_decoders) in enumerate(model.spaces.items()):
        layers = [one for one, keep in zip(all_decoders, has_step, strict=True) if keep]
        squares, sizes = [], []
        for layer, decoder in enumerate(layers):
            extent = np.linalg.norm(first[:, layer], axis=-1)
            if layer and extent[s] <= MIN_INNOVATION * extent[0]:
                continue
            rows = Halves(*(np.stack([t[h][s, layer] for t in halves], axis=1) for h in (0, 1)))
            left = (one.residual(rows).reshape(tasks, -1, len(targets)) for one in (decoder, start))
            each = [np.sum(part**2, axis=1) for part in left]
            silent, writes = ~np.any(rows.fitted, axis=0), np.any(decoder.channels.fitted[:, :-1])
            decoded = np.sum(each[1], axis=0) <= DECODED_SHARE**2 * np.sum(rows.scored**2, axis=0)
            for one, part in zip((squares, sizes), each, strict=True):
                one.append(np.where(silent, float(writes), np.where(decoded, 0, part)))
        squares, sizes = np.stack(squares, axis=1), np.stack(sizes, axis=1)
        for i, name in enumerate(targets):
            none = np.zeros((squares.shape[1], 0))
            gaps[name][space] = AlignedDistances(clip_finite(squares[..., i]), sizes[..., i], none)
    return gaps


def _staircase(rows: Halves, all_decoders: list[Decoder], start: Decoder) -> np.ndarray:
    """Relative distances of the streams of all layers, with the start, to all steps [L + 1, T]."""
    steps = rows.each(lambda part: part[:, 1:])
    more = np.linalg.norm(start.residual(steps), axis=0)
    undecoded = np.stack([np.linalg.norm(one.residual(steps), axis=0) for one in all_decoders])
    return undecoded / np.where(more > 0, more, 1)


def _count_independent_steps(steps: Halves, model: Decoders, fit: CandidateFit) -> tuple[int, ...]:
    """How many independent combinations of a candidate's steps so far each layer decodes.

    If it is as many as there are steps, every method with the same span is decoded.
    """
    layers = [one for one, step in zip(model.states[1:], fit.alignment, strict=True) if step]
    counts = []
    for count, decoder in enumerate(layers, start=1):
        left, sigma, _ = np.linalg.svd(steps.fitted[1, :count].T, full_matrices=False)
        span = left[:, sigma > 1e-6 * sigma[0]]
        sigma = np.linalg.svd(_undecoded(decoder, span), compute_uv=False)
        counts.append(int(np.sum(sigma < CLOSE)))
    return tuple(counts)


class RoleStreams(NamedTuple):
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

    def gaps(self, goals: dict[str, Halves], model: Decoders, fit: CandidateFit) -> dict[str, Gaps]:
        return target_gaps(goals, model, self.start, self.tasks, np.array(fit.alignment) > 0)


class StreamComparison(NamedTuple):
    """A fitted candidate, its gaps to the model and its controls, the nearest untrained model."""

    fit: CandidateFit
    gaps: Gaps
    controls: dict[str, Gaps]
    untrained: Decoders
    rows: Halves
    targets: Halves


def comparison(fit: CandidateFit, of: RoleStreams, spectra: Any, steps: int) -> StreamComparison:
    """The gaps to a candidate and, at its own parameters, to nulls and of controls."""
    rows = state_rows(fit, (of.fitted, of.scored), of.size, steps, "prediction")
    steps_of_layers = layer_targets(fit, rows)
    targets = {OWN: steps_of_layers} | _null_targets(fit, spectra, of.model, of.start, of.size)
    mixtures = [f"{MIXED}, draw {i}" for i in range(MIXTURES if takes_steps(fit) else 0)]
    targets |= {name: _mixed_steps(steps_of_layers, seed) for seed, name in enumerate(mixtures)}
    gaps = of.gaps(targets, of.model, fit)
    draws = {MIXED: [gaps.pop(name) for name in mixtures]}
    for name, models in {EARLIER: [of.model.earlier], UNTRAINED: of.controls}.items():
        draws[name] = [of.gaps({OWN: steps_of_layers}, one, fit)[OWN] for one in models]
    untrained = of.controls[int(np.argmin([*map(total_distance, draws[UNTRAINED])]))]
    nearest = {name: min(drawn, key=total_distance) for name, drawn in draws.items() if drawn}
    return StreamComparison(fit, gaps.pop(OWN), gaps | nearest, untrained, rows, steps_of_layers)


def eliminate_candidates(
    read: list[StreamComparison], of: RoleStreams, resample: np.ndarray
) -> tuple[list[str], tuple[str, ...], list[bool]]:
    """Why each candidate is ruled out, or "", what is tied, and which are uninformative."""
    reasons = [_uninformative_reason(one, of) for one in read]
    uninformative = [bool(reason) for reason in reasons]
    if all(uninformative):
        return reasons, (), uninformative
    gaps = [one.gaps for one in read]
    reasons, _ = eliminate([one.fit for one in read], measure(gaps, resample), reasons)
    ties = [tied_controls(one, resample) for one in read]
    leader = min(np.flatnonzero(~np.array(uninformative)), key=lambda i: total_distance(gaps[i]))
    for i, reason in enumerate(reasons):
        if not reason and (ties[i] or ties[leader]):
            subject = "" if ties[i] else f" {read[leader].fit.candidate} is: "
            reasons[i] = f"no nearer than{subject or ' '}{(ties[i] or ties[leader])[0]}"
    return reasons, ties[leader], uninformative


def _uninformative_reason(one: StreamComparison, of: RoleStreams) -> str:
    """Why the distances of a candidate say nothing, or ""."""
    last = one.rows.each(lambda part: part[:, -1:])
    if np.sqrt(np.mean(last.scored**2)) > DIVERGED:
        return "diverges on the scored tasks"
    size = np.linalg.norm(last.scored)
    if not size or np.linalg.norm(of.start.residual(last)) < CLOSE * size:
        return "its steps are nearly the mean of y, or in the stream before the first layer"
    if takes_steps(one.fit) and one.gaps["state"].mean <= CLOSE:
        return construction_error(one.fit, of.fitted)
    return ""


def tied_controls(one: StreamComparison, resample: np.ndarray) -> tuple[str, ...]:
    """The controls at a candidate's parameters that are tied with the candidate in a space."""
    distances = measure([one.gaps, *one.controls.values()], resample)
    _, is_tied = eliminate([one.fit], distances, [""], farther_if=np.all)
    names = [name for name, is_near in zip(one.controls, is_tied[1:], strict=True) if is_near]
    return tuple(sorted(names, key=lambda name: total_distance(one.controls[name])))


def construction_error(fit: CandidateFit, tasks: Task) -> str:
    """Why no solver has the parameters of a fit, which may leave the range of the solver, or ""."""
    try:
        fitted_construction(fit, tasks)
    except ValueError as error:
        return f"no solver has its parameters: {error}"
    return ""


def fitted_construction(fit: CandidateFit, tasks: Task) -> Transformer:
    """The construction of a candidate with its fitted parameters, all slots in one stream."""
    entry = candidate(fit.candidate)
    kernel = make_kernel(fit.kernel, fit.values)
    kwargs = keywords(entry, fit.values) | {"steps": max(fit.alignment)}
    return dense(constructions.lookup(entry)(kernel, num_features=tasks.num_features, **kwargs))


def gap_distances(gaps: Gaps, resample: np.ndarray) -> dict[str, Distance]:
    stratum = np.zeros(resample.shape[1], int)
    return {space: distance(one, stratum, resample) for space, one in gaps.items()}


def candidate_result(
    one: StreamComparison, reason: str, of: RoleStreams, draws: np.ndarray, supports: Any, uses: Any
) -> CandidateResult:
    """The candidate with its staircases: how far each layer is from each step, and the control."""
    own = gap_distances(one.gaps, draws)
    controls = {name: gap_distances(gaps, draws) for name, gaps in one.controls.items()}
    for spaces, model in ((own, of.model), (controls[UNTRAINED], one.untrained)):
        matrix = _staircase(one.rows, model.states, of.start)
        spaces["state"] = spaces["state"]._replace(matrix=matrix)
    ranks = _count_independent_steps(one.targets, of.model, one.fit)
    stream = distances.StreamResult(controls, ranks, supports, uses)
    return CandidateResult(one.fit, own, reason, stream_result=stream)
