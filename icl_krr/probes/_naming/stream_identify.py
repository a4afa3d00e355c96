"""Identify the solver whose steps linear maps decode from a model's streams, and test their use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ... import Architecture, Task, Transformer, init, map_tasks
from ..._core import checks
from ...catalogue import candidate
from ...residual._tokens import role_slice
from ...tasks._task import check_plain
from ...transformer._evaluate import embed_task, evaluate_task
from ...transformer._hook_points import Request
from .._reading.readouts import StreamReader, streams, streams_at
from .._resampling import RESAMPLES, resamples
from . import stream_controls
from .candidate_fit import CandidateFit
from .candidates import run_oracle
from .comparison import Options
from .decoding import Halves, StreamArrays, baseline_decoder, decoders
from .distances import Distance
from .elimination import CLOSE, total_distance
from .identification import Identification, identification
from .layer_predictions import check_outputs, eval_output_shape, roll_outputs
from .nested_models import Spectrum
from .stream_controls import OWN, UNTRAINED, RoleStreams, StreamComparison, state_rows, takes_steps
from .stream_fit import fit_streams, stream_bases

ROLES = ("query", "support")
Directions = dict[str, np.ndarray]
"""The directions in which decoded states change [L, s, d], by the role of the tokens."""
States = dict[str, dict[str, Halves]]
"""Rows of the states that a model's streams hold, by the role of their tokens."""
Changes = dict[str, np.ndarray]
"""Changes of the states of aligned layers [s, b, L, tokens], by the role of the tokens."""
MIN_EFFECT = 0.1
"""Least size of an effect by which another effect is divided, over the change of the state."""


def _values_and_slopes(reader: Callable[[Task], Any], tasks: Task) -> Any:
    def of_task(task: Task) -> Any:
        def read(y: jax.Array) -> jax.Array:
            return reader(task.replace(y=y))

        return read(task.y), jax.jacfwd(read)(task.y)

    return map_tasks(of_task, tasks)


@jax.jit
def _read_model(model: Transformer, tasks: Task) -> Any:
    return _values_and_slopes(partial(streams_at, model, roles=ROLES), tasks)


def read_roles(reader: Transformer | StreamReader, tasks: Task) -> list[StreamArrays]:
    """The streams at the queries and, of a whole model, those at the supports."""
    if isinstance(reader, Transformer):
        pairs = zip(*_read_model(reader, tasks), strict=True)
    else:
        pairs = [jax.jit(partial(_values_and_slopes, reader))(tasks)]
    return [StreamArrays(*map(np.asarray, pair)) for pair in pairs]


def _concatenate_tasks(fitted: Task, scored: Task) -> Task:
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), fitted, scored)


def _support_states(
    one: StreamComparison, of: RoleStreams, steps: int, resample: np.ndarray
) -> tuple[dict[str, dict[str, Distance]], States]:
    """Distances of a candidate's states at the supports, and the states that the streams hold."""
    decoded: States = {"query": {"prediction": one.rows}, "support": {}}
    small, distances = Task(np.zeros((3, 1)), np.zeros(3), np.zeros((1, 1))), {}
    oracle = partial(run_oracle, candidate(one.fit.candidate), one.fit.kernel, steps=1)
    shapes = jax.eval_shape(oracle, one.fit.logs, small)
    for name in ("alpha", "r"):
        if getattr(getattr(shapes, name, None), "shape", None) != (2, 3):  # of supports and steps
            continue
        rows = state_rows(one.fit, (of.fitted, of.scored), of.size, steps, name)
        targets = {OWN: stream_controls.layer_targets(one.fit, rows)}
        for words, model in {"": of.model, f", {UNTRAINED}": next(iter(of.controls), None)}.items():
            if model is not None:
                own = of.gaps(targets, model, one.fit)[OWN]
                distances[name + words] = stream_controls.gap_distances(own, resample)
        if distances[name]["state"].mean <= CLOSE:
            decoded["support"][name] = rows
    return distances, {role: states for role, states in decoded.items() if states}


def _intervention_effects(
    fit: CandidateFit, roles: Sequence[RoleStreams], decoded: States, model: Transformer, steps: int
) -> dict[str, float]:
    """Distances of what follows from moved states to what follows in the construction."""
    of, at = roles[0], np.array(fit.alignment)
    layers, each = np.flatnonzero(at) + 1, at[at > 0]
    solver = stream_controls.fitted_construction(fit, of.fitted)
    construction = jax.tree.map(lambda leaf: jnp.asarray(leaf, of.fitted.x.dtype), solver)
    read = read_roles(construction, _concatenate_tasks(of.fitted, of.scored))
    model_directions, true_directions = {}, {}
    for role, states in decoded.items():
        i = ROLES.index(role)
        true_decoders = decoders(read[i], len(of.fitted.x), of.size)
        targets = [np.stack([r.fitted[:, t] for r in states.values()], axis=1) for t in each]
        for along, maps, places in (
            (model_directions, roles[i].model, layers),
            (true_directions, true_decoders, each),
        ):
            pairs = zip(places, targets, strict=True)
            along[role] = np.stack([maps.states[k].directions(t)[:, :-1] for k, t in pairs])
    distances = {}
    for kind, by in changes(fit, decoded, of, steps).items():
        moved = _prediction_changes(model, model_directions, by, of.scored, layers)
        expected = _prediction_changes(construction, true_directions, by, of.scored, each)
        parts = (moved - expected, expected, by["query"][0])
        gap, size, change = (np.sqrt(np.sum(part**2, axis=(0, 2))) for part in parts)
        distances[kind] = float(np.mean(gap / np.maximum(size, MIN_EFFECT * change)))
    return distances


def changes(fit: CandidateFit, decoded: States, of: RoleStreams, steps: int) -> dict[str, Changes]:
    """How the states of each role change if they are removed, or swapped for another task's y."""
    pair, at = (of.scored, roll_outputs(of.scored)), np.array(fit.alignment)
    state_changes: dict[str, Changes] = {"removed": {}, "swapped": {}}
    for role, states in decoded.items():
        rows = [state_rows(fit, pair, of.size, steps, name) for name in states]
        shape = (len(rows), of.tasks, -1, 1 + of.fitted.num_supports, rows[0].scored.shape[1])
        states_of_task, other = (
            of.size * np.moveaxis(np.stack(part).reshape(shape)[..., 0, :], -1, 2)[:, :, at[at > 0]]
            for part in zip(*rows, strict=True)
        )
        state_changes["removed"][role] = -states_of_task
        state_changes["swapped"][role] = other - states_of_task
    return state_changes


def _prediction_changes(
    model: Transformer, along: Directions, by: Changes, tasks: Task, places: np.ndarray
) -> np.ndarray:
    """Changes of the predictions [b, L, q] if states move in the stream after steps `places`."""
    one = jax.tree.map(lambda leaf: leaf[0], tasks)
    stream = jax.eval_shape(partial(embed_task, model), one)
    shape = (len(tasks.x), len(places), len(next(iter(stream.values()))))
    moved = np.zeros((*shape, next(iter(along.values())).shape[2]))
    for role, directions in along.items():
        at = role_slice((role,), one, model.spec.tokens)
        moved[:, :, at] = np.einsum("lsd,sblt->bltd", directions, by[role])
    return np.asarray(_moved_predictions(model, tasks, jnp.asarray(moved, tasks.x.dtype), places))


@jax.jit
def _moved_predictions(model: Transformer, tasks: Task, moved: Any, places: Any) -> jax.Array:
    last = len(model.weights.prologue) + model.blocks_per_step - 1

    def of_task(part: tuple[Task, jax.Array]) -> jax.Array:
        task, moves = part

        def predict(step: Any, move: jax.Array) -> jax.Array:
            def act(stream: dict[str, jax.Array], where: Any) -> dict[str, jax.Array]:
                if where.position != last:
                    return stream
                active = jnp.where(where.step == step - 1, move, 0)
                edges = np.cumsum([value.shape[-1] for value in stream.values()])[:-1]
                parts = jnp.split(active, edges, axis=-1)
                return {slot: stream[slot] + part for slot, part in zip(stream, parts, strict=True)}

            return evaluate_task(model, task, Request(hooks=(("blocks.*.resid_post", act),)))[0]

        return jax.vmap(predict)(places, moves) - evaluate_task(model, task)[0][None]

    return jax.lax.map(of_task, (tasks, moved))


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
    r"""Decode the steps of every candidate solver from the streams of a model, layer by layer.

    `identify` compares the predictions of a model. This function examines what its stream holds, in
    any coordinates, and makes two statements about step $t$ of layer $l$ and its prediction $f_t$,
    each with a linear map $w_l$ of its own for all tasks:

    $$\text{state: } f_t \approx h_l w_l, \qquad \text{innovation: }
    f_t - f_{t-1} \approx (h_l - h_{l-1}) w_l'$$

    The maps are fitted to values and to derivatives in y together, which are n more equations for
    every query. Distances are relative to what neither the stream before the first layer nor the
    mean of y decodes: 1 says nothing, 0 is exact. An innovation below a hundredth of the state is
    left out.

    1. Kernel, parameters and steps per layer of each candidate are fitted to what is decodable. A
       layer makes 1, 2 or 4 steps, from layer 1 or 2 on. A model with less than a step per layer
       gets no name, nor does one whose stream holds each step times a factor per layer.
    2. Each candidate has controls at its own parameters: the steps decoded one layer earlier, other
       steps with the same span, the steps decoded from an untrained model, and three nulls (see
       `identify`). A candidate that is not nearer than all of them is ruled out. So a stream has no
       name if it stores all powers $K^j y$, which decode every polynomial method, or exact KRR.
    3. Candidates are compared with the nearest as in `identify`. If several are close and the
       nearest is above 0.01, the status is "close to", and not "not distinguishable".
    4. Of a `Transformer`, alpha and r are decoded at the supports, too. The decoded states are then
       removed from every layer, and swapped for those of the outputs of another task. A candidate
       remains only if the answer of the model changes as that of the candidate's construction, and
       not k times as much. The verdict says: decodable, arrives in order, used.

    Args:
        reader: the model, or a JAX function from a task to its streams at the queries before the
            first layer and after every layer, [L + 1, q, d] with L >= 2. For a function, part 4 is
            left out, and "identified" needs more layers with steps than fitted parameters. Models
            whose answer is known after the last support only (delta rule) or after one layer
            (Nadaraya-Watson) need a function that repeats the answer.
        fitted: batch of tasks for the candidates and the maps, y [b, n], without masks. The last
            quarter of them chooses the ridge of each map.
        scored, candidates, kernels, progress: as in `identify`.
        steps: largest number of solver steps, >= L, 4 L by default.
        control: untrained model of the same shape, or a reader of its streams; default: two drawn
            models with the architecture of `reader`, or encoders with as many channels and layers.

    Returns:
        An `Identification` with the spaces "state" and "innovation", and a `stream_result` for
        every candidate.

    Source: Golub, Pereyra, The differentiation of pseudo-inverses and nonlinear least squares
    problems whose variables separate, 1973; Geiger et al., Causal abstractions of neural networks,
    2021 (interchange).

    >>> import icl_krr as ik
    >>> config = ik.tasks.LinearRegression(num_features=2, num_supports=4, num_queries=2)
    >>> keys = jax.random.split(jax.random.key(0), (2, 12))
    >>> tasks = [jax.vmap(ik.tasks.sample, in_axes=(0, None))(key, config) for key in keys]
    >>> model = ik.constructions.gradient_descent(
    ...     ik.Linear(), num_features=2, ridge=0.1, steps=3, step_size=0.1
    ... )
    >>> names = {"candidates": ("gradient_descent", "conjugate_gradient"), "kernels": ("linear",)}
    >>> found = identify_streams(model, *tasks, **names)
    >>> found.status, found.remain
    ('identified', ('gradient_descent',))
    """
    options = Options(candidates, kernels, steps, seed=seed, progress=progress)
    fitted, scored = (one.replace(y_query=None) for one in _check_stream_tasks(fitted, scored))
    layers = _check_reader("reader", reader, fitted)
    check_steps(steps, layers)
    both = _concatenate_tasks(fitted, scored)
    read = read_roles(reader, both)
    if control is None:
        others = init_models(reader, read[0], fitted, seed)
    else:
        _check_reader("control", control, fitted, layers)
        others = [control]
    controls = [read_roles(one, both) for one in others]
    for name, arrays in (("reader", read), ("control", [one[0] for one in controls])):
        for part in arrays:
            checks.finite(f"streams of {name}", part.streams)
            checks.finite(f"derivatives of the streams of {name}", part.slopes)
    roles = [
        role_streams(layers_of_role, [one[i] for one in controls if len(one) > i], fitted, scored)
        for i, layers_of_role in enumerate(read)
    ]
    return compare_streams(roles, options, reader if isinstance(reader, Transformer) else None)


def _check_stream_tasks(fitted: Task, scored: Task) -> tuple[Task, Task]:
    for name, tasks, least in (("fitted", fitted, 4), ("scored", scored, 2)):
        check_plain(tasks, name)
        if len(tasks.x) < least:
            raise ValueError(f"{name} must be a batch of >= {least} tasks, got {len(tasks.x)}")
    check_outputs(fitted, scored)
    for name in ("x", "y", "x_query"):
        one, two = getattr(fitted, name), getattr(scored, name)
        if (one.shape[1:], one.dtype) != (two.shape[1:], two.dtype):
            raise ValueError(
                f"{name} of scored must be {list(one.shape[1:])} in {one.dtype} for each task as "
                f"that of fitted, got {list(two.shape[1:])} in {two.dtype}"
            )
    return fitted, scored


def _check_reader(name: str, reader: Any, tasks: Task, layers: int | None = None) -> int:
    """The number of layers, without running the reader."""
    read = reader
    if isinstance(reader, Transformer):
        size = np.abs(np.asarray(tasks.y)).max()
        if not 2.0**-20 < size < 2.0**20:  # a model would run in another unit of y
            raise ValueError(f"y must be between 1e-6 and 1e6 in size, got {size:.3g}; rescale y")
        read = partial(streams, reader)
    else:
        checks.function(name, reader)
    axes = f"[layers + 1, q, d] with layers >= 2, q = {tasks.num_queries} and d >= 1"
    rule = f"{name} must return streams {axes}"
    shape = eval_output_shape(f"streams of {name}", read, tasks, rule, (-3, tasks.num_queries, -1))
    checks.factorable(f"streams of {name}", shape)
    count = shape.shape[0] - 1
    if layers not in (None, count):
        raise ValueError(f"{name} must have {layers} layers as the reader, got {count}")
    return count


def check_steps(steps: int | None, layers: int) -> None:
    if steps is not None and steps < layers:
        raise ValueError(f"steps must be >= the number of layers, {layers}, got {steps}")


def init_models(reader: Any, layers: StreamArrays, tasks: Task, seed: int) -> list[Transformer]:
    """Untrained models of the same shape, or encoders with as many channels and layers."""
    spec = reader.spec if isinstance(reader, Transformer) else None
    if not isinstance(spec, Architecture):
        _, count, _, width = layers.streams.shape
        sizes = {"width": max(width - 1, 1), "depth": count - 1, "heads": 1}
        spec = Architecture(num_features=tasks.num_features, **sizes)
    return [init(key, spec) for key in jax.random.split(jax.random.key(seed), CONTROLS)]


def role_streams(
    layers: StreamArrays, controls: Sequence[StreamArrays], fitted: Task, scored: Task
) -> RoleStreams:
    count = len(fitted.x)
    y = np.concatenate([np.asarray(part.y, float) for part in (fitted, scored)])
    size = float(np.sqrt(np.mean(y[:count] ** 2)))
    model = decoders(layers, count, size)
    start = baseline_decoder(model.states[0], count, y, size)
    others = [decoders(one, count, size) for one in controls]
    return RoleStreams(fitted, scored, model, start, others, size)


def compare_streams(
    roles: Sequence[RoleStreams], options: Options, model: Transformer | None = None
) -> Identification:
    """Fit all candidates to what the streams hold, and rule out by controls and distances."""
    of = roles[0]
    steps = 4 * len(of.model.innovations) if options.steps is None else options.steps
    few = stream_bases(of.fitted, of.size, of.model, of.start)
    fits = options.fits(partial(fit_streams, data=few, steps=steps))
    options.progress("controls")
    spectra = Spectrum(of.fitted), Spectrum(of.scored)
    read = [stream_controls.comparison(fit, of, spectra, steps) for fit in fits]
    resample = resamples(of.tasks, RESAMPLES, options.seed)
    reasons, ties, uninformative = stream_controls.eliminate_candidates(read, of, resample)
    nearest = min(
        range(len(read)),
        key=lambda i: (uninformative[i], bool(reasons[i]), total_distance(read[i].gaps)),
    )
    results = []
    for i, (one, reason) in enumerate(zip(read, reasons, strict=True)):
        supports, moved = {}, {}
        if model is not None and takes_steps(one.fit) and (i == nearest or not reason):
            options.progress(f"use of {one.fit.candidate}")
            supports, decoded = _support_states(one, roles[1], steps, resample)
            if not reason and one.gaps["state"].mean <= CLOSE:
                moved = _intervention_effects(one.fit, roles, decoded, model, steps)
                if not all(value <= CLOSE for value in moved.values()):  # NaN is not
                    words = ", ".join(f"{kind} {value:.2g}" for kind, value in moved.items())
                    reason = f"the answer does not follow its states ({words})"
        results.append(stream_controls.candidate_result(one, reason, of, resample, supports, moved))
    last = [one.fit.candidate for one, nothing in zip(read, uninformative, strict=True) if nothing]
    remains = any(not one.reason for one in results)
    return identification(results, {}, () if remains else ties, last=last)
