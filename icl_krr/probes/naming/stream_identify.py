"""Identify the solver whose steps linear maps decode from a model's streams, layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ... import checks
from ...tasks import Task, map_tasks
from ...tasks.task import check_plain
from ...transformer import Architecture, Transformer, init
from ..reading.readouts import StreamReader, streams_at
from ..resampling import RESAMPLES, paired_differences, resamples
from .candidate_fit import CandidateFit
from .comparison import Options
from .decoding import Decoder, Decoders, Layers, Rows, beyond, decoders
from .distances import Distance, distance
from .filter_fit import Spectrum
from .identification import Identification, Suspect, status_of
from .ruling import CLOSE, DIVERGED, RESOLUTION, Gaps, draws, mean, rule_out
from .state_probes import states_of
from .stream_fit import ROWS, Bases, bases_of, fit_to_streams
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
from .use import changes, construction_of, effects, unlike

ROLES = ("query", "support")
CONTROLS = 2
"""Number of untrained models."""


def identify_streams(
    reader: Transformer | StreamReader,
    fitted: Task,
    scored: Task,
    *,
    candidates: tuple[str, ...] | None = None,
    kernels: tuple[str, ...] | None = None,
    steps: int | None = None,
    control: Transformer | StreamReader | None = None,
    seed: int = 0,
    progress: Callable[[str], None] = lambda name: None,
) -> Identification:
    options = Options(candidates, kernels, steps, seed=seed, progress=progress)
    for name, tasks in (("fitted", fitted), ("scored", scored)):
        check_plain(tasks, name)
    if not isinstance(reader, Transformer):
        checks.function("reader", reader)
    both = jax.tree.map(lambda *parts: jnp.concatenate(parts), fitted, scored)
    read = read_roles(reader, both)
    others = [control] if control is not None else untrained(reader, read[0], fitted, seed)
    controls = [read_roles(one, both) for one in others]
    roles = [
        seen(layers, [one[i] for one in controls if len(one) > i], fitted, scored)
        for i, layers in enumerate(read)
    ]
    whole = Whole(reader, roles[1]) if isinstance(reader, Transformer) else None
    return compare_streams(roles[0], options, whole)


def read_roles(reader: Transformer | StreamReader, tasks: Task) -> list[Layers]:
    """The streams at the queries and, of a whole model, those at the supports."""
    if isinstance(reader, Transformer):
        return [Layers(*map(np.asarray, one)) for one in read_model(reader, tasks)]
    read = jax.jit(partial(map_tasks, partial(with_slopes, reader)))
    return [Layers(*map(np.asarray, read(tasks)))]


def with_slopes(reader: Callable[[Task], Any], task: Task) -> Any:
    read = lambda y: reader(task.replace(y=y))  # noqa: E731
    return read(task.y), jax.jacfwd(read)(task.y)


@jax.jit
def read_model(model: Transformer, tasks: Task) -> list[tuple[jax.Array, jax.Array]]:
    """The streams of both roles and their derivatives."""
    every = partial(streams_at, model, roles=ROLES)
    return [*zip(*map_tasks(partial(with_slopes, every), tasks), strict=True)]


def untrained(reader: Any, layers: Layers, tasks: Task, seed: int) -> list[Transformer]:
    """Untrained models of the same shape, or encoders with as many channels and layers."""
    made = reader.spec if isinstance(reader, Transformer) else None
    if not isinstance(made, Architecture):
        _, count, _, width = layers.streams.shape
        sizes = {"width": max(width - 1, 1), "depth": count - 1, "heads": 1}
        made = Architecture(num_features=tasks.num_features, **sizes)
    keys = jax.random.split(jax.random.key(seed), CONTROLS)
    return [jax.tree.map(lambda w: jnp.asarray(w, tasks.x.dtype), init(key, made)) for key in keys]


class Seen(NamedTuple):
    """The streams of one role of tokens, ready to decode.

    Attributes:
        fitted, scored: the tasks.
        model: decoders of the model.
        start: decoder of what needs no layer.
        controls: decoders of untrained models.
        size: root mean square of y.
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


class Whole(NamedTuple):
    """A model whose weights are known, and the streams of its supports."""

    model: Transformer
    supports: Seen


def seen(layers: Layers, controls: Sequence[Layers], fitted: Task, scored: Task) -> Seen:
    count = len(fitted.x)
    y = np.concatenate([np.asarray(part.y, float) for part in (fitted, scored)])
    size = float(np.sqrt(np.mean(y[:count] ** 2)))
    model = decoders(layers, count, size)
    start = beyond(model.states[0], count, y, size)
    others = [decoders(one, count, size) for one in controls]
    return Seen(fitted, scored, model, start, others, size)


class Read(NamedTuple):
    """A fitted candidate, its gaps to the model and to its controls, and its steps."""

    fit: CandidateFit
    gaps: Gaps
    controls: dict[str, Gaps]
    rows: Rows
    own: Target


def compare_streams(of: Seen, options: Options, whole: Whole | None = None) -> Identification:
    """Fit all candidates to what the streams hold, and rule out what says nothing or is farther."""
    steps = 4 * len(of.model.innovations) if options.steps is None else options.steps
    few, bases = few_tasks(of)
    fits = []
    for row in options.rows:
        if kernels := options.kernels_of(row):
            options.progress(row.name)
            fits.append(fit_to_streams(row, kernels, few, of.size, bases, steps))
    options.progress("controls")
    spectra = Spectrum(of.fitted), Spectrum(of.scored)
    read = [read_candidate(fit, of, spectra, steps) for fit in fits]
    resample = resamples(of.tasks, RESAMPLES, options.seed)
    because, near = rule(read, of, resample)
    measure = partial(measured, resample=resample)
    suspects = []
    for one, reason in zip(read, because, strict=True):
        suspect = suspect_of(one, reason, of, measure)
        if whole is not None and not reason and takes_steps(one.fit):
            options.progress(f"use of {one.fit.candidate}")
            suspect = with_use(suspect, one, of, whole, steps, measure)
        suspects.append(suspect)
    suspects.sort(key=lambda s: (bool(s.because), total(s)))
    remain = [one for one in suspects if not one.because]
    far = [max(found.mean for found in one.distances.values()) for one in remain]
    return Identification(
        status_of(far),
        tuple(one.fit.candidate for one in remain),
        tuple(suspects),
        suspects[0].controls,
        (),
        () if remain else near,
    )


def few_tasks(of: Seen) -> tuple[Task, Bases]:
    """As many of the tasks as the fit of candidates needs, and the bases of their rows."""
    channels = of.model.states[0].channels.fitted
    each = len(channels) // len(of.fitted.x)
    count = min(len(of.fitted.x), -(-max(ROWS, 4 * channels.shape[1]) // each))
    few = jax.tree.map(lambda leaf: leaf[:count], of.fitted)
    return few, bases_of(of.model, of.start, count * each)


def read_candidate(fit: CandidateFit, of: Seen, spectra: Any, steps: int) -> Read:
    """The gaps to a candidate and, at its own parameters, to nulls and of controls."""
    rows = own_rows(fit, (of.fitted, of.scored), of.size, steps)
    kept, own = np.array(fit.alignment) > 0, own_target(fit, rows)
    wanted = {OWN: own} | nulls(fit, spectra, of.model, of.start, of.size)
    if takes_steps(fit):
        wanted |= {f"{MIXED} {i + 1}": mixed(own, i) for i in range(MIXTURES)}
    gaps = gaps_of(wanted, of.model, of.start, of.tasks, kept)
    others = {EARLIER: of.model.earlier}
    others |= {f"{UNTRAINED} {i + 1}": one for i, one in enumerate(of.controls)}
    controls = {
        name: gaps_of({OWN: own}, one, of.start, of.tasks, kept)[OWN]
        for name, one in others.items()
    }
    return Read(fit, gaps.pop(OWN), gaps | controls, rows, own)


def rule(read: list[Read], of: Seen, resample: np.ndarray) -> tuple[list[str], tuple[str, ...]]:
    """Why each candidate is ruled out, or "", and the controls that the nearest is as far as."""
    because = []
    for one in read:
        last = one.rows.each(lambda part: part[:, -1:])
        far = np.sqrt(np.mean(last.scored**2)) > DIVERGED * of.size
        size = np.linalg.norm(last.scored)
        share = np.linalg.norm(of.start.rest(last)) / size if size else 0.0
        still = "its steps are nearly the mean of y, or in the stream before the first layer"
        because.append("diverges on the scored tasks" if far else still if share < CLOSE else "")
    usable = [i for i, reason in enumerate(because) if not reason]
    if not usable:
        return because, ()
    fits, gaps = [read[i].fit for i in usable], [read[i].gaps for i in usable]
    for i, reason in zip(usable, rule_out(fits, gaps, {}, resample)[0], strict=True):
        because[i] = reason
    near = [as_near(one, resample) for one in read]
    leader = min(usable, key=lambda i: sum(map(mean, read[i].gaps.values())))
    for i, reason in enumerate(because):
        if not reason and (near[i] or near[leader]):
            own = "" if near[i] else f" {read[leader].fit.candidate} is: "
            because[i] = f"no nearer than{own or ' '}{(near[i] or near[leader])[0]}"
    return because, near[leader]


def as_near(one: Read, resample: np.ndarray) -> tuple[str, ...]:
    """The controls that a candidate is not nearer than, at its own parameters."""
    every = [one.gaps, *one.controls.values()]
    means = np.array([[mean(part) for part in gaps.values()] for gaps in every])
    drawn = np.array([[draws(part, resample) for part in gaps.values()] for gaps in every])
    found = paired_differences(means, drawn, np.arange(len(every)) == 0)
    farther = np.any(found.low > RESOLUTION, axis=1) & ~np.any(found.high < -RESOLUTION, axis=1)
    return tuple(name for name, far in zip(one.controls, farther[1:], strict=True) if not far)


Measure = Callable[[Gaps], dict[str, Distance]]


def measured(gaps: Gaps, resample: np.ndarray) -> dict[str, Distance]:
    stratum = np.zeros(resample.shape[1], int)
    return {space: distance(one, stratum, resample) for space, one in gaps.items()}


def total(suspect: Suspect) -> float:
    return sum(found.mean for found in suspect.distances.values())


def suspect_of(one: Read, reason: str, of: Seen, measure: Measure) -> Suspect:
    found, stairs = measure(one.gaps), staircase(one.rows, of.model.states, of.start)
    found["state"] = found["state"]._replace(matrix=stairs)
    controls = {name: measure(gaps) for name, gaps in one.controls.items()}
    for name, model in zip((n for n in controls if n.startswith(UNTRAINED)), of.controls, strict=True):
        matrix = staircase(one.rows, model.states, of.start)
        controls[name]["state"] = controls[name]["state"]._replace(matrix=matrix)
    return Suspect(one.fit, found, reason, controls=controls, ranks=independent(one.own, of.model, one.fit))


def with_use(
    suspect: Suspect, one: Read, of: Seen, whole: Whole, steps: int, measure: Measure
) -> Suspect:
    """Decode the states of supports, and compare what follows if states are moved."""
    fit, at = one.fit, np.array(one.fit.alignment)
    layers = np.flatnonzero(at) + 1
    rows = {("query", "prediction"): one.rows}
    halves, supports = (of.fitted, of.scored), whole.supports
    states: dict[str, dict[str, Distance]] = {}
    for name in states_of(fit):
        of_state = own_rows(fit, halves, of.size, steps, name)
        wanted = {OWN: own_target(fit, of_state)}
        every = {"": supports.model} | {f", {UNTRAINED} {i + 1}": c for i, c in enumerate(supports.controls)}
        for words, model in every.items():
            gaps = gaps_of(wanted, model, supports.start, of.tasks, at > 0)[OWN]
            states[name + words] = measure(gaps)
        if states[name]["state"].mean <= CLOSE:
            rows["support", name] = of_state
    if suspect.distances["state"].mean > CLOSE:
        return suspect._replace(supports=states)
    known = construction_of(fit, of.fitted.num_features)
    known = jax.tree.map(lambda leaf: jnp.asarray(leaf, of.fitted.x.dtype), known)
    held: dict[str, tuple[str, ...]] = {}
    for role, name in rows:
        held[role] = (*held.get(role, ()), name)
    both = jax.tree.map(lambda *parts: jnp.concatenate(parts), of.fitted, of.scored)
    own, its, read = {}, {}, read_roles(known, both)
    for role, names in held.items():
        model = of.model if role == "query" else supports.model
        made = decoders(read[ROLES.index(role)], len(of.fitted.x), of.size)
        for maps, every, places in ((own, model, layers), (its, made, at[at > 0])):
            maps[role] = np.stack(
                [
                    every.states[place].maps(
                        np.stack([rows[role, name].fitted[:, step] for name in names], axis=1)
                    )[:-1]
                    for place, step in zip(places, at[at > 0], strict=True)
                ]
            )
    found = {}
    for kind, by in changes(fit, held, of.scored).items():
        moved = effects(whole.model, own, by, of.scored, layers)
        wanted = effects(known, its, by, of.scored, at[at > 0])
        found[kind] = unlike(moved, wanted, by["query"][0])
    because = ""
    if max(found.values()) > CLOSE:
        because = "the answer does not follow its states: " + ", ".join(f"{k} {v:.2g}" for k, v in found.items())
    return suspect._replace(supports=states, effects=found, because=because)
