"""Identify the solver whose steps linear maps decode from a model's streams, layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ... import checks
from ...tasks import Task, map_tasks
from ...tasks.task import check_plain
from ...transformer import Architecture, Transformer, init
from ..reading.readouts import StreamReader
from ..resampling import RESAMPLES, resamples
from .comparison import Options
from .decoding import Layers, beyond, decoders
from .filter_fit import Spectrum
from .identification import Identification, Suspect, status_of
from .stream_fit import ROWS, Bases, bases_of, fit_to_streams
from .stream_rules import Seen, far, read_candidate, rule, suspect_of
from .stream_targets import takes_steps
from .stream_use import read_model, with_effects, with_slopes, with_supports

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
    return compare_streams(roles, options, reader if isinstance(reader, Transformer) else None)


def read_roles(reader: Transformer | StreamReader, tasks: Task) -> list[Layers]:
    """The streams at the queries and, of a whole model, those at the supports."""
    if isinstance(reader, Transformer):
        return [Layers(*map(np.asarray, one)) for one in read_model(reader, tasks)]
    read = jax.jit(partial(map_tasks, partial(with_slopes, reader)))
    return [Layers(*map(np.asarray, read(tasks)))]


def untrained(reader: Any, layers: Layers, tasks: Task, seed: int) -> list[Transformer]:
    """Untrained models of the same shape, or encoders with as many channels and layers."""
    made = reader.spec if isinstance(reader, Transformer) else None
    if not isinstance(made, Architecture):
        _, count, _, width = layers.streams.shape
        sizes = {"width": max(width - 1, 1), "depth": count - 1, "heads": 1}
        made = Architecture(num_features=tasks.num_features, **sizes)
    keys = jax.random.split(jax.random.key(seed), CONTROLS)
    return [jax.tree.map(lambda w: jnp.asarray(w, tasks.x.dtype), init(key, made)) for key in keys]


def seen(layers: Layers, controls: Sequence[Layers], fitted: Task, scored: Task) -> Seen:
    count = len(fitted.x)
    y = np.concatenate([np.asarray(part.y, float) for part in (fitted, scored)])
    size = float(np.sqrt(np.mean(y[:count] ** 2)))
    model = decoders(layers, count, size)
    start = beyond(model.states[0], count, y, size)
    others = [decoders(one, count, size) for one in controls]
    return Seen(fitted, scored, model, start, others, size)


def compare_streams(
    roles: Sequence[Seen], options: Options, model: Transformer | None = None
) -> Identification:
    """Fit all candidates to what the streams hold, and rule out what says nothing or is farther."""
    of = roles[0]
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
    nearest = min(range(len(read)), key=lambda i: (bool(because[i]), far(read[i].gaps)))
    suspects = []
    for i, (one, reason) in enumerate(zip(read, because, strict=True)):
        suspect = suspect_of(one, reason, of, resample)
        if model is not None and takes_steps(one.fit) and (i == nearest or not reason):
            options.progress(f"use of {one.fit.candidate}")
            suspect, held = with_supports(suspect, one, roles[1], steps, resample)
            if not reason:
                suspect = with_effects(suspect, one, roles, held, model)
        suspects.append(suspect)
    order = sorted(
        zip(suspects, read, strict=True), key=lambda p: (bool(p[0].because), far(p[1].gaps))
    )
    suspects = [one for one, _ in order]
    remain = [one for one in suspects if not one.because]
    largest = [max(found.mean for found in one.distances.values()) for one in remain]
    known = suspects[0].evidence
    return Identification(
        status_of(largest),
        tuple(one.fit.candidate for one in remain),
        tuple(suspects),
        {} if known is None else known.controls,
        (),
        () if remain else near,
    )


def order(one: Suspect) -> tuple[bool, bool, float]:
    """Those that remain come first, then those that only their use rules out."""
    unused = one.evidence is not None and bool(one.evidence.effects)
    return bool(one.because), not unused, sum(found.mean for found in one.distances.values())


def few_tasks(of: Seen) -> tuple[Task, Bases]:
    """As many of the tasks as the fit of candidates needs, and the bases of their rows."""
    channels = of.model.states[0].channels.fitted
    each = len(channels) // len(of.fitted.x)
    count = min(len(of.fitted.x), -(-max(ROWS, 4 * channels.shape[1]) // each))
    few = jax.tree.map(lambda leaf: leaf[:count], of.fitted)
    return few, bases_of(of.model, of.start, count * each)
