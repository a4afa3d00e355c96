"""identify_streams: what linear maps decode, what says nothing, and what is used.

Arrays and files of streams say what the function they come from says.
"""

import json
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import numpy

import icl_krr as ik
from icl_krr.cli import main
from icl_krr.cli._identification import read_file
from icl_krr.experiments import draw_tasks
from icl_krr.experiments.solverbench import _distractor_functions as distractors, rotated
from icl_krr.probes import CandidateFit, hat_matrix, identify_arrays, identify_streams, streams
from icl_krr.probes._naming import stream_controls
from icl_krr.probes._naming.decoding import Decoder, Halves, StreamArrays, decoders
from icl_krr.probes._naming.distances import AlignedDistances, distance
from icl_krr.probes._naming.identification import _last_cells
from icl_krr.probes._naming.nested_models import NULLS, Spectrum
from icl_krr.probes._naming.stream_controls import RoleStreams, StreamComparison, target_gaps
from icl_krr.probes._resampling import RESAMPLES, resamples
from icl_krr.residual import Read

CONFIG = ik.tasks.LinearRegression(num_features=3, num_supports=6, num_queries=3, noise=0.1)
NAMES = ("gradient_descent", "conjugate_gradient")
OPTIONS = {"candidates": NAMES, "kernels": ("linear",), "steps": 6}
STEPS, RIDGE = 3, 0.3


@cache
def batches():
    return [numpy(draw_tasks(jax.random.key(seed), 12, CONFIG)) for seed in (0, 1)]


def descent():
    options = {"ridge": RIDGE, "steps": STEPS, "step_size": 0.05}
    return ik.constructions.gradient_descent(ik.Linear(), num_features=3, **options)


@cache
def in_other_coordinates():
    with jax.enable_x64(True):
        return rotated(descent(), jax.random.key(2))


@cache
def of_descent():
    with jax.enable_x64(True):
        return identify_streams(in_other_coordinates(), *batches(), **OPTIONS)


def means(*spaces):
    return [distance.mean for each in spaces for distance in each.values()]


def test_a_solver_is_named_in_rotated_channels_as_decodable_in_order_and_used(x64):
    result = of_descent()
    assert (result.status, result.remain) == ("identified", ("gradient_descent",))
    best, stream = result.best, result.best.stream_result
    assert max(means(best.distances)) < 1e-6
    assert best.fit.alignment == (1, 2, 3)
    assert best.fit.values["step_size"] == pytest.approx(0.05, rel=1e-4)
    assert stream.controls.keys() == {*NULLS, "mixed steps", "one layer earlier", "untrained model"}
    assert all(max(means(spaces)) > 0.05 for spaces in stream.controls.values())
    assert stream.ranks == (1, 1, 1)
    assert max(stream.effects.values()) < 1e-6
    assert max(means(stream.supports["r"])) < 1e-6
    assert "decodable, arrives in order, used" in result.verdict
    nearest = min(stream.controls, key=lambda name: sum(means(stream.controls[name])))
    assert _last_cells(best)[0].startswith(f"{nearest} (")
    assert nearest in str(result)
    states = best.distances["state"].matrix  # of layers 0 to 3 and steps 1 to 3
    assert states.shape == (4, 3)
    assert np.all(np.diag(states[1:]) < 1e-6)
    assert np.all(states[~np.eye(4, 3, -1, dtype=bool)] > 0.01)


def test_what_is_decodable_and_not_used_is_given_no_name(x64):
    """The stream holds gradient descent, and the answer is 0."""
    model = in_other_coordinates()
    nothing = jax.tree.map(np.zeros_like, model.weights.readout)
    model = model.replace(weights=model.weights.replace(readout=nothing))
    result = identify_streams(model, *batches(), **OPTIONS)
    assert (result.status, result.remain) == ("not identified", ())
    assert max(means(result.best.distances)) < 1e-6
    assert result.best.stream_result.effects == pytest.approx({"removed": 1, "swapped": 1})
    assert "gradient_descent is decodable, but the answer does not follow" in result.verdict


def test_mixed_steps_are_others_with_the_same_span():
    steps = Halves(*np.random.default_rng(4).normal(size=(2, 2, STEPS, 9)))
    mixed = stream_controls._mixed_steps(steps, 0)
    for half, other in zip(steps, mixed, strict=True):
        assert np.allclose(other[0], np.cumsum(other[1], axis=0))
        for count in range(1, STEPS + 1):
            span = np.concatenate([half[1, :count], other[1, :count]])
            assert np.linalg.matrix_rank(span, tol=1e-9) == count
        assert not np.allclose(other[1, 1:], half[1, 1:], rtol=0.1)


FLAT = np.arange(STEPS + 1.0)
TAKE_NO_STEPS = {
    "interpolation": lambda task: distractors.exact(
        ik.Linear(), task, RIDGE + 0 * FLAT, FLAT / STEPS
    ),
    "ridge path": lambda task: distractors.exact(
        ik.Linear(), task, 10 ** (2 - FLAT), np.sign(FLAT)
    ),
    "gradient flow": lambda task: distractors.gradient_flow(
        ik.Linear(), task, RIDGE, 0.1 * FLAT**2
    ),
}


@pytest.mark.parametrize("null", TAKE_NO_STEPS)
def test_a_model_that_takes_no_steps_is_as_near_to_its_null(x64, null):
    def read(task):
        answers = TAKE_NO_STEPS[null](task)
        return jnp.stack([answers, -answers], axis=-1)

    result = identify_streams(read, *batches(), **OPTIONS)
    assert (result.status, result.remain) == ("not identified", ())
    assert null in result.tied


def gaps(*distances):
    return {
        space: AlignedDistances(np.full((8, 2), size**2), np.ones((8, 2)), np.zeros((2, 0)))
        for space, size in zip(("state", "innovation"), distances, strict=True)
    }


def test_a_control_counts_unless_the_candidate_is_nearer_in_both_spaces():
    controls = {"far": gaps(0.3, 0.2), "near": gaps(0.3, 0.1), "nearer": gaps(0.01, 0.2)}
    fit = CandidateFit("gradient_descent", "linear", {}, (1, 2), 0.0)
    one = StreamComparison(fit, gaps(0.1, 0.1), controls, None, None, None)
    assert stream_controls.tied_controls(one, resamples(8, 20, 0)) == ("nearer", "near")


def random_decoders(seed, shape, supports):
    rng = np.random.default_rng(seed)
    arrays = StreamArrays(rng.normal(size=shape), rng.normal(size=(*shape, supports)))
    return decoders(arrays, shape[0] // 2, 1.0)


TIE = "no nearer than near"


@pytest.mark.parametrize(
    ("distances", "reasons", "tied"),
    [
        ([(0.3, 0.9), (0.3, 0.9)], ["", ""], ()),
        ([(0.3, 0.3)], [TIE], ("near",)),
        ([(0.3, 0.3), (0.3, 0.9)], [TIE, "no nearer than gradient_descent is: near"], ("near",)),
        ([(0.3, 0.9), (0.3, 0.3)], ["", TIE], ()),
        ([(0.3, 0.3), (0.4, 0.9)], [TIE, "state: farther than gradient_descent"], ("near",)),
    ],
)
def test_a_control_as_near_rules_out_its_candidate_and_if_that_leads_all(distances, reasons, tied):
    """Each candidate's distance, and that of its control; none is close, so none is built."""
    start, layer, _ = random_decoders(0, (16, 3, 1, 2), 2).states
    rows, compared = layer.channels.each(lambda part: part[:, :1]), []
    for name, (own, control) in zip(NAMES, distances, strict=False):
        fit = CandidateFit(name, "linear", {}, (1, 2), 0.0)
        controls = {"far": gaps(1, 1), "near": gaps(control, control)}
        compared.append(StreamComparison(fit, gaps(own, own), controls, None, rows, None))
    of = RoleStreams(batches()[0], batches()[0], None, start, [], 1.0)
    found, ties, silent = stream_controls.eliminate_candidates(compared, of, resamples(8, 200, 0))
    each = zip(found, reasons, strict=True)
    assert [reason[: len(words) or None] for reason, words in each] == reasons
    assert (ties, silent) == (tied, [False] * len(reasons))


def test_the_nearest_draw_of_a_control_counts(x64, monkeypatch):
    """Of other steps with the same span, and of untrained models, here the model itself."""
    shape = (24, 3, 3, 4)
    model, far = (random_decoders(seed, shape, 6) for seed in (2, 0))
    mixed = lambda steps, seed: steps if seed == 1 else steps.each(lambda part: part[..., ::-1])  # noqa: E731
    monkeypatch.setattr(stream_controls, "_mixed_steps", mixed)
    fit = CandidateFit("gradient_descent", "linear", {"ridge": 0.3, "step_size": 0.05}, (1, 2), 0.0)
    of = RoleStreams(*batches(), model, model.states[0], [far, model, far], 1.0)
    spectra = [Spectrum(batch) for batch in batches()]
    result = stream_controls.comparison(fit, of, spectra, 2)
    for control in ("mixed steps", "untrained model"):
        assert means(result.controls[control]) == pytest.approx(means(result.gaps)), control
    assert result.untrained is model


def test_steps_that_say_nothing_are_told():
    """They diverge, need no layer, or are of no solver. All count last, however near they are.

    Else preconditioned Chebyshev on an empty interval ties with Richardson's iteration.
    """
    values = {"lengthscale": 1.0, "ridge": 0.1, "num_supports": 1e-5}
    fit = CandidateFit("preconditioned_chebyshev", "gaussian", values, (1, 2), 0.0)
    possible = fit._replace(values=values | {"num_supports": 6.0})
    assert not stream_controls.construction_error(possible, batches()[0])
    start = random_decoders(0, (16, 3, 1, 2), 2).states[0]
    of = RoleStreams(batches()[0], batches()[0], None, start, [], 1.0)
    small_gaps = gaps(0.05, 0.2)  # its use would be tested
    constant = start.channels.each(lambda part: part[:, :1])
    wild = constant._replace(scored=constant.scored + 1e3)
    other = constant.each(lambda part: np.random.default_rng(1).normal(size=part.shape))
    steps = {"diverges on the scored tasks": wild, "its steps are nearly": constant}
    words = "no solver has its parameters: num_supports must be >= 1 and finite, got 1e-05"
    steps |= {words: other}
    for words, rows in steps.items():
        compared = [StreamComparison(fit, small_gaps, {}, None, rows, None)]
        reasons, *others = stream_controls.eliminate_candidates(compared, of, None)
        assert reasons[0].startswith(words)
        assert others == [(), [True]]


def test_an_innovation_after_convergence_is_no_evidence(x64):
    """Rounding errors are as large as it, and small beside a hundredth of the state."""
    rng = np.random.default_rng(0)
    h, slopes = rng.normal(size=(20, 3, 2, 3)), rng.normal(size=(20, 3, 2, 3, 4))
    h[:, 0], slopes[:, 0] = 0, 0
    h[:, 2], slopes[:, 2] = h[:, 1] + 1e-9 * h[:, 2], slopes[:, 1] + 1e-9 * slopes[:, 2]
    model = decoders(StreamArrays(h, slopes), 10, 1.0)
    state = [np.stack([d.channels[half][:, 0] for d in model.states[1:]]) for half in (0, 1)]
    wrong = [np.concatenate([s[:1], s[:1] + 1e-9 * rng.normal(size=s[:1].shape)]) for s in state]
    both = [np.stack([s, np.concatenate([s[:1], s[1:] - s[:1]])]) for s in wrong]
    gaps = target_gaps({"own": Halves(*both)}, model, model.states[0], 10, np.ones(2, bool))["own"]
    assert gaps["innovation"].mean < 1e-6


def test_a_decoder_finds_the_map_beside_junk_and_shrinks_it_under_noise():
    rng = np.random.default_rng(1)
    h, weights = rng.normal(size=(2, 400, 30)), np.eye(30, 1)
    exact = Halves(*(part @ weights for part in h))
    decoder = Decoder(Halves(*h), 40, float)
    assert np.abs(decoder.residual(exact)).max() < 1e-9
    noisy = Halves(exact.fitted + 20 * rng.normal(size=(400, 1)), exact.scored)
    least = np.linalg.lstsq(h[0], noisy.fitted, rcond=None)[0]
    assert np.linalg.norm(decoder.maps(noisy.fitted)) < 3.0 < np.linalg.norm(least)


def test_maps_are_affine_and_an_innovation_is_what_a_block_wrote():
    rng = np.random.default_rng(2)
    streams, slopes = rng.normal(size=(6, 3, 4, 2)) + 1e3, rng.normal(size=(6, 3, 4, 2, 5))
    model = decoders(StreamArrays(streams, slopes), 4, 1.0)
    assert (len(model.states), len(model.innovations)) == (3, 2)
    change = model.innovations[1].channels.scored.reshape(2, 4, 6, 3)
    assert np.allclose(
        change[:, :, 0, :2],
        streams[4:, 2] - streams[4:, 1] - np.mean(streams[:4, 2] - streams[:4, 1], axis=(0, 1)),
    )
    assert np.allclose(np.moveaxis(change[:, :, 1:, :2], 2, -1), slopes[4:, 2] - slopes[4:, 1])
    values = Halves(*(np.full((len(part), 1), 7.0) for part in model.states[0].channels))
    constant = values.each(lambda part: part * (np.arange(len(part)) % 6 == 0)[:, None])
    assert np.abs(model.states[0].residual(constant)).max() < 0.1


def test_intervals_of_distances_cover_the_truth_on_tasks_drawn_again():
    """95 % intervals: with quartiles in their place, half of the truths would be outside."""
    rng = np.random.default_rng(3)

    def tasks(count):
        sizes = rng.gamma(4.0, size=(count, 3))
        return sizes * rng.gamma(2.0, 0.02, size=(count, 3)) * np.array([0.5, 1, 2]), sizes

    squares, sizes = tasks(200_000)
    truth = np.sqrt(squares.sum(axis=0) / sizes.sum(axis=0))
    inside = []
    for seed in range(300):
        aligned = AlignedDistances(*tasks(48), np.zeros((3, 0)))
        again = resamples(48, RESAMPLES // 4, seed)
        result = distance(aligned, np.zeros(48, int), again)
        every = [(result.interval, truth.mean()), *zip(result.layer_intervals, truth, strict=True)]
        inside.append([low <= value <= high for (low, high), value in every])
    shares = np.mean(inside, axis=0)
    assert np.all((shares > 0.89) & (shares < 0.985)), shares


def test_streams_are_read_at_the_tokens_of_a_role(x64):
    model, task = in_other_coordinates(), jax.tree.map(lambda leaf: leaf[0], batches()[0])
    at_queries, at_supports = (streams(model, task, role) for role in ("query", "support"))
    assert at_queries.shape == (STEPS + 1, 3, model.layout.width)
    assert at_supports.shape == (STEPS + 1, 6, model.layout.width)
    readout = model.weights.readout
    assert isinstance(readout, Read)
    answer = at_queries[-1] @ readout.blocks["stream"]
    assert np.allclose(answer[:, 0], ik.predict(model, task))


TURN = np.random.default_rng(0).normal(size=(4, 5))
ONE = {"candidates": NAMES[:1], "kernels": ("linear",)}


def two_steps(task):
    """Two steps of gradient descent, in channels that say nothing by themselves."""
    w, after = 0 * task.x[0], []
    for _ in range(3):
        prediction = (task.x_query @ w)[:, None]
        after.append(jnp.concatenate([task.x_query, prediction], axis=1) @ TURN)
        w = w + 0.05 * task.x.T @ (task.y - task.x @ w)
    return jnp.stack(after)


def still(task):
    """A model of the same shape whose layers take no steps."""
    first = two_steps(task)[1]
    return jnp.stack([jnp.tanh(size * first) for size in (0, 1, 2)])


def both_batches():
    return jax.tree.map(lambda *both: np.concatenate(both), *batches())


def arrays_of(reader, names=("streams", "stream_jacobians")):
    both = jax.jit(jax.vmap(lambda task: (reader(task), hat_matrix(reader, task))))
    return dict(zip(names, map(np.asarray, both(both_batches())), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("control", [None, still], ids=["untrained encoders", "own control"])
def test_arrays_say_what_their_function_says(control, x64):
    arrays = arrays_of(two_steps)
    if control:
        arrays |= arrays_of(control, ("control_streams", "control_jacobians"))
    result = identify_arrays(both_batches(), **arrays, **ONE)
    same = identify_streams(two_steps, *batches(), control=control, **ONE)
    assert result.status == same.status == "close to"  # two layers say too little
    assert result.remain == same.remain == ("gradient_descent",)
    ours, theirs = (one.best.stream_result.controls for one in (result, same))
    assert [*ours] == [*theirs]
    ours, theirs = means(result.best.distances, *ours.values()), [*theirs.values()]
    assert ours == pytest.approx(means(same.best.distances, *theirs), rel=1e-6, abs=1e-6)


def written(path, **arrays):
    tasks = both_batches()
    np.savez(path, x=tasks.x, y=tasks.y, x_query=tasks.x_query, **arrays)
    return path


def test_a_file_may_hold_predictions_and_streams(tmp_path, x64):
    streams = arrays_of(two_steps)
    control = arrays_of(still, ("control_streams", "control_jacobians"))
    hats = streams["stream_jacobians"][..., 0, :]
    values = {"layer_predictions": streams["streams"][..., 0], "hats": hats}
    _, kinds = read_file(written(tmp_path / "both.npz", **control, **streams, **values))
    assert [*kinds] == ["layer_predictions", "streams"]
    assert {name for arrays in kinds.values() for name in arrays} == {*streams, *control, *values}


@pytest.mark.slow
def test_a_file_is_identified_by_its_predictions_and_by_its_streams(tmp_path, capsys, x64):
    path, out = tmp_path / "mine.npz", tmp_path / "out"
    ask = ["identify", str(path), "--tasks-of", "linear", "--tasks", "8", "--num-queries", "4"]
    run = ["identify", str(path), "--kernels", "linear", "--steps", "4", "--out", str(out)]
    assert [main(words) for words in (ask, ask, run)] == [0, 2, 2]
    errors = capsys.readouterr().err
    assert "must be a new file" in errors
    assert "layer_predictions, hats is missing; add the predictions" in errors
    tasks = both_batches()
    rows = 0.05 * np.einsum("bqp,bnp->bqn", tasks.x_query, tasks.x)  # one step of descent
    hats = np.stack([0 * rows, rows], axis=1)
    predictions = {"hats": hats, "layer_predictions": np.einsum("blqn,bn->blq", hats, tasks.y)}
    written(path, **predictions, **arrays_of(two_steps))
    assert main(run) == 0
    record = json.loads((out / "identify.json").read_text())
    assert (record["status"], record["remain"]) == ("identified", ["gradient_descent"])
    assert "gradient_descent" in record["streams"]["remain"]  # others take the same two steps
    output = capsys.readouterr().out
    first = output.index("layer_predictions: identified: gradient_descent")
    assert 0 == first < output.index("\nstreams: ")
    assert (out / "streams-heatmaps.csv").exists()
