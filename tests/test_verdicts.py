"""What `identify` may say: nulls, the ladder, paired comparisons, arrays, masks and outputs."""

from functools import cache
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import numpy, often

import icl_krr as ik
from icl_krr import solvers
from icl_krr.catalogue import candidates
from icl_krr.experiments import draw_tasks
from icl_krr.probes import CandidateFit, agreement, identify, identify_arrays, prefixes
from icl_krr.probes._naming import comparison, distances
from icl_krr.probes._naming.comparison import eliminate_candidates
from icl_krr.probes._naming.elimination import is_regular
from icl_krr.probes._naming.identification import EXACT, identification
from icl_krr.probes._resampling import paired_differences
from icl_krr.tasks import system

LINEAR = ik.Linear()
CONFIG = ik.tasks.LinearRegression(num_features=6, num_supports=8, num_queries=4, condition=30.0)
NAMES = ("gradient_descent", "conjugate_gradient")
OPTIONS = {"candidates": NAMES, "kernels": ("linear",)}
ONE = OPTIONS | {"candidates": NAMES[:1]}


def batches(config=CONFIG, count=12):
    return [numpy(draw_tasks(jax.random.key(seed), count, config)) for seed in (0, 1)]


def both_batches():
    return jax.tree.map(lambda *both: np.concatenate(both), *batches())


def seen_and_hats(model, tasks):
    """Predictions and hat matrices of all tasks, by one program."""
    both = lambda task: (model(task), ik.probes.hat_matrix(model, task))  # noqa: E731
    return jax.jit(jax.vmap(both))(tasks)


@cache
def of_descent():
    with jax.enable_x64(True):
        return identify(descend(0.05), *batches(), **OPTIONS)


def spectral(*filters):
    """A model whose layers are these functions of the eigenvalues of K."""

    def answers(task):
        gram, cross, y = system(LINEAR, task)
        sigma, V = jnp.linalg.eigh(gram)
        rows = [cross @ (V * q(jnp.maximum(sigma, 0))[None]) @ (V.T @ y) for q in filters]
        return jnp.stack([0 * rows[0], *rows]).reshape(len(rows) + 1, *task.y_query.shape)

    return answers


WITHOUT_STEPS = {
    "ridge path": spectral(*(lambda s, r=r: 1 / (s + r) for r in (10.0, 2.0, 0.3))),
    "gradient flow": spectral(
        *(lambda s, t=t: -jnp.expm1(-t * (s + 0.1)) / (s + 0.1) for t in (0.03, 0.1, 0.4))
    ),
    "interpolation": spectral(*(lambda s, c=c: c / (s + 0.5) for c in (0.2, 0.6, 0.9))),
    "interpolation, exact": spectral(*[lambda s: 1 / (s + 0.5)] * 3),
}


@often("name", ("interpolation, exact",), WITHOUT_STEPS)
def test_values_of_each_layer_without_steps_are_no_solver(x64, name):
    result, null = identify(WITHOUT_STEPS[name], *batches(), **OPTIONS), name.split(",")[0]
    assert all(result.baselines[null][space].mean < 2e-3 for space in ("prediction", "hat"))
    assert result.status in ("not identified", "none is close")
    if result.status == "not identified":
        assert null in result.tied
        assert not result.remain


def rungs_of(result):
    means = {}
    for rung in result.nested_models:
        means[rung.name] = {space: one.mean for space, one in rung.distances.items()}
    return means


def test_the_ladder_says_what_a_polynomial_of_k_is(x64):
    rungs = rungs_of(of_descent())
    assert rungs["linear"]["hat"] < 1e-12
    assert rungs["homogeneous"]["prediction"] < 1e-12
    assert rungs["degree 3"]["prediction"] < 1e-9
    assert 1e-3 < rungs["degree 2"]["prediction"] < rungs["degree 1"]["prediction"]
    assert rungs["smoother"]["hat"] > 0.1
    nested = ("any filter", *(f"degree {t}" for t in (8, 5, 3, 2, 1)))
    both = [sum(rungs[name].values()) for name in nested]
    assert both == sorted(both)


def test_the_ladder_tells_a_smoother_from_what_is_not_linear(x64):
    def smooth(task):
        prediction = solvers.nadaraya_watson(ik.Exponential(2.0), task).prediction
        return jnp.stack([0 * prediction, prediction])

    def squares(task):
        return jnp.stack([0 * task.y_query, task.x_query @ (task.x.T @ task.y**2)])

    rungs = rungs_of(identify(smooth, *batches(), **ONE))
    assert max(rungs["smoother"]["hat"], rungs["linear"]["hat"]) < 1e-12
    assert rungs["any filter"]["prediction"] > 0.1
    rungs = rungs_of(identify(squares, *batches(), **ONE))
    assert min(rungs["linear"]["hat"], rungs["homogeneous"]["prediction"]) > 0.5


def descend(*steps, count=3):
    """Gradient descent, with the same step or with one step for each layer."""
    steps = steps if len(steps) > 1 else steps * count

    def answers(task):
        keep = jnp.ones(task.num_supports) if task.mask is None else task.mask.astype(float)
        keep = keep.reshape(-1, *[1] * (task.y.ndim - 1))
        w, after = jnp.zeros((task.num_features, *task.y.shape[1:])), []
        for step in (*steps, 0.0):
            after.append(task.x_query @ w)
            w = w + step * task.x.T @ (keep * (task.y - task.x @ w))
        return jnp.stack(after)

    return answers


def test_masks_and_several_outputs_are_compared_as_they_are(x64):
    mask = np.arange(8)[None] < np.arange(12)[:, None] % 5 + 4
    tasks = [
        part.replace(y=np.stack([part.y, np.roll(part.y, 1, axis=0)], -1), y_query=None, mask=mask)
        for part in batches()
    ]
    result = identify(descend(0.03), *tasks, **OPTIONS)
    assert (result.status, result.remain) == ("identified", ("gradient_descent",))
    assert result.best.distances["hat"].mean < 1e-6
    assert result.best.fit.values["step_size"] == pytest.approx(0.03, rel=1e-4)


def test_arrays_say_what_the_function_says(x64):
    both = both_batches()
    predictions, hats = seen_and_hats(descend(0.05), both)
    rolled = both.replace(y=np.concatenate([both.y[:12], np.roll(both.y[12:], -1, axis=0)]))
    _, other = seen_and_hats(descend(0.05), rolled)
    result = identify_arrays(both, predictions, hats, other_hats=other, **OPTIONS)
    reference = of_descent()
    assert (result.verdict, result.remain) == (reference.verdict, reference.remain)
    names, expected = ([one.name for one in r.nested_models] for r in (result, reference))
    assert names == expected
    ours, theirs = (
        [[s.distances[space].interval for space in ("prediction", "hat")] for s in both.candidates]
        for both in (result, reference)
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-12)


def test_prefixes_are_tasks_with_a_mask_whose_query_is_the_next_support(x64):
    tasks, _ = batches()
    parts = prefixes(tasks, (3, 5, 7))
    assert len(parts.x) == 36
    assert np.array_equal(parts.x_query[4, 0], tasks.x[1, 5])
    assert np.array_equal(parts.mask[4], np.arange(8) < 5)


def test_a_task_whose_answers_or_derivatives_explode_is_left_out(x64):
    """Of all arrays: those with other outputs kept it, and `identify` stopped."""
    both = both_batches()
    for which, wild in ((0, [0, -1]), (1, [-1])):
        predictions, hats = arrays = [*map(np.array, seen_and_hats(descend(0.05), both))]
        arrays[which][wild, 2] *= 1e4
        result = identify_arrays(both, predictions, hats, other_hats=hats, **OPTIONS)
        assert (result.num_excluded, result.status) == (len(wild), "identified")
    hats[-1, 2] /= 1e3  # one large task alone is not left out, and is no descent
    assert identify_arrays(both, predictions, hats, **OPTIONS).status != "identified"


def test_derivatives_of_0_are_told_and_answers_of_0_are_kept(x64):
    tasks, _ = batches(count=24)
    predictions, hats = seen_and_hats(descend(0.05), tasks)
    result = identify_arrays(tasks, predictions, 0 * hats, **OPTIONS)
    assert result.status != "identified"
    assert "the hat matrices do not explain the predictions (homogeneous: 1)" in result.verdict
    active = (np.arange(24) % 3 == 0)[:, None, None]
    predictions, hats = np.where(active, predictions, 0), np.where(active[..., None], hats, 0)
    result = identify_arrays(tasks, predictions, hats, **OPTIONS)
    assert result.num_excluded == 0
    assert result.status != "identified"


def test_steps_of_each_layer_are_at_most_close(x64):
    result = identify(descend(0.03, 0.045, 0.02), *batches(), **OPTIONS)
    assert result.status != "identified"
    assert result.best.distances["hat"].mean > EXACT


def test_a_candidate_at_its_last_step_gets_more_of_them(x64):
    """Every layer is two steps; with fewer steps allowed, the candidate could not follow."""
    two = lambda task: descend(0.02, count=6)(task)[::2]  # noqa: E731
    result = identify(two, *batches(), steps=2, **ONE)
    assert result.best.fit.alignment == (2, 4, 6)
    assert (result.status, result.best.limit) == ("identified", None)
    many = lambda task: descend(0.04, count=15)(task)[::5]  # noqa: E731
    short = identify(many, *batches(), steps=1, **ONE)
    assert short.best.limit == 4
    assert "limit" in str(short)


def gaps(squares, matrix=None):
    """Equal distances in both spaces: squares [b] of one layer whose size is 1."""
    squares = np.asarray(squares, float)[:, None]
    matrix = np.sqrt(squares.mean(0, keepdims=True)) if matrix is None else matrix
    part = distances.AlignedDistances(squares, np.ones_like(squares), matrix)
    return {"prediction": part, "hat": part}


def draws(count=40):
    """Noise of the tasks, and resamples of them."""
    random = np.random.default_rng(0)
    return random.random(count), random.multinomial(count, [1 / count] * count, size=400)


def fits_of(*names):
    return [CandidateFit(name, "linear", {}, (1,), 0.0) for name in names]


def test_differences_are_paired():
    """Two candidates whose intervals overlap, but the second is farther on every task."""
    noise, resample = draws()
    fits = fits_of("gradient_descent", "conjugate_gradient")
    parts = [gaps(1e-4 * (0.2 + noise)), gaps(1.2e-4 * (0.2 + noise))]
    larger = [gaps(100 * part["prediction"].squares[:, 0]) for part in parts]
    assert eliminate_candidates(fits, parts, {}, resample)[0] == ["", ""]  # as near
    reasons, _ = eliminate_candidates(fits, larger, {}, resample)
    assert reasons[0] == ""
    assert reasons[1].startswith("prediction: farther than gradient_descent by ")
    shuffled = [larger[0], gaps(larger[1]["prediction"].squares[::-1, 0])]
    assert eliminate_candidates(fits, shuffled, {}, resample)[0] == ["", ""]  # not on the same


GD, CG, HB = "gradient_descent", "conjugate_gradient", "heavy_ball"
NEAR, PATH, FAR = (0.01, 0.01), "ridge path", "farther than gradient_descent by 0.01"
SPECIAL, ZERO = "no nearer than gradient_descent, its special case", "no nearer than predicting 0"
RULES = {
    "farther in predictions": ({GD: NEAR, CG: (0.02, 0.01)}, {CG: f"prediction: {FAR}"}),
    "farther in hat matrices": ({GD: NEAR, CG: (0.01, 0.02)}, {CG: f"hat: {FAR}"}),
    "nearer in another space": ({GD: (0.01, 0.04), CG: (0.03, 0.01)}, {}),
    "as near as can be resolved": ({GD: NEAR, CG: (0.0105, 0.01)}, {}),
    "takes no step": ({GD: (*NEAR, 0), CG: (0.0105, 0.01)}, {GD: "takes no step"}),
    "none that remains does": ({GD: (*NEAR, 0), CG: (0.02, 0.01)}, {CG: f"prediction: {FAR}"}),
    "a special case is as near": ({GD: NEAR, HB: NEAR}, {HB: SPECIAL}),
    "in one space alone": ({GD: (0.01, 0.04), HB: (0.02, 0.01)}, {}),
    "a special case that is out": ({GD: (*NEAR, 0), HB: NEAR}, {GD: "takes no step"}),
    "diverges": ({GD: NEAR, CG: (*NEAR, 1, 200)}, {CG: "diverges on a scored task"}),
    "does not yet": ({GD: NEAR, CG: (*NEAR, 1, 90)}, {}),
    "all diverge": ({GD: (*NEAR, 1, 200)}, {}),
    "a baseline is as near": ({GD: NEAR, "zero": NEAR}, {GD: ZERO}, "zero"),
    "it is farther in one space": ({GD: NEAR, "zero": (0.01, 0.02)}, {}),
    "a null is as near": ({GD: NEAR, PATH: NEAR}, {GD: "no nearer than exact kernel"}, PATH),
    "to what is not close": ({GD: (0.5, 0.5), PATH: (0.5, 0.5)}, {}),
    "or close in one space": ({GD: (0.01, 0.5), PATH: (0.01, 0.5)}, {}),
    "a baseline is, to that": ({GD: (0.5, 0.5), "zero": (0.5, 0.5)}, {GD: ZERO}, "zero"),
    "the nearest of two is named": (
        {GD: NEAR, CG: (0.02, 0.02), "zero": (0.0105, 0.01), "mean": (0.005, 0.005)},
        {GD: "no nearer than predicting the mean", CG: f"prediction: {FAR}"},
        *("mean", "zero"),
    ),
}
"""Distances in predictions and in hat matrices of candidates, with their step if it is not 1 and
the square of one wild task, and of what takes no step; reasons; what is tied. One rule decides."""


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_of_a_verdict_decides(rule):
    rows, expected, *tied = RULES[rule]
    fits, parts, baselines = [], [], {}
    for name, (prediction, hat, *rest) in rows.items():
        step, wild = (*rest, *(1, 0)[len(rest) :])
        squares = np.full(40, prediction**2)
        squares[3] += wild
        spaces = {"prediction": gaps(squares)["prediction"], "hat": gaps([hat**2] * 40)["hat"]}
        if name in candidates():
            fits.append(CandidateFit(name, "linear", {}, (step,), 0.0))
            parts.append(spaces)
        else:
            baselines[name] = spaces
    reasons, nearest = eliminate_candidates(fits, parts, baselines, draws()[1])
    words = [expected.get(fit.candidate, "") for fit in fits]
    each = zip(reasons, words, strict=True)
    assert [reason[: len(start) or None] for reason, start in each] == words
    assert nearest == tuple(tied)


def result_of(*means, alignment=(1,), parameters=0, reason="", effects=None, **options):
    """A candidate at these distances; with `effects`, of streams."""
    values = {str(i): 1.0 for i in range(parameters)}
    each = [distances.Distance(m, (0, 1), (m,), ((0, 1),), (), np.zeros((1, 1))) for m in means]
    fit = CandidateFit(GD, "linear", values, alignment, 0.0)
    stream = None if effects is None else distances.StreamResult({}, (), {}, effects)
    spaces = dict(zip(("prediction", "hat"), each, strict=True))
    return distances.CandidateResult(fit, spaces, reason, stream_result=stream, **options)


@pytest.mark.parametrize(
    ("status", "results"),
    [
        ("identified", [result_of(0.005, 0.009)]),
        ("close to", [result_of(0.005, 0.011)]),
        ("close to", [result_of(0.005, 0.005, regular=False)]),
        ("close to", [result_of(0.005, 0.005, limit=4)]),
        ("none is close", [result_of(0.005, 0.11)]),
        ("not distinguishable", [result_of(0.005, 0.005), result_of(0.05, 0.05)]),
        ("not identified", [result_of(0.005, 0.005, reason="farther")]),
        ("identified", [result_of(0.005, 0.005, reason="farther"), result_of(0.006, 0.006)]),
        ("identified", [result_of(0, 0, effects={"removed": 0}, parameters=2)]),
        ("close to", [result_of(0, 0, effects={}, parameters=2, alignment=(0, 1, 2))]),
        ("identified", [result_of(0, 0, effects={}, parameters=2, alignment=(1, 2, 3))]),
        ("close to", [result_of(0.02, 0.02, effects={"removed": 0})] * 2),
        ("not distinguishable", [result_of(0.005, 0.005, effects={"removed": 0})] * 2),
    ],
)
def test_a_status_follows_from_what_remains(status, results):
    assert identification(results, {}, ()).status == status


def test_candidates_are_in_the_order_of_what_speaks_for_them():
    """Those that remain, those whose use was tested, the nearest; last, what says nothing."""
    order = [
        result_of(0.02, 0.02),
        result_of(0.03, 0.03),
        result_of(0.04, 0.04, reason="of use", effects={"removed": 1}),
        result_of(0.01, 0.01, reason="farther"),
    ]
    nothing = result_of(0, 0)
    nothing = nothing._replace(fit=nothing.fit._replace(candidate=CG))
    result = identification([nothing, *reversed(order)], {}, (), last=[CG])
    assert [*result.candidates] == [*order, nothing]


@pytest.mark.parametrize(
    ("others", "reached", "error", "refitted"),
    [(1.0, True, 0.5, True), (0.0, True, 0.05, True), (0.0, True, 0.5, False),
     (1.0, False, 0.5, False)],
)  # fmt: skip
def test_more_steps_are_tried_where_they_may_help(monkeypatch, others, reached, error, refitted):
    """At its last step, if none fits or this one is close; from the old fit if it is not."""
    calls = []

    def fit_candidate(*arguments, initial):
        calls.append((arguments[0], arguments[-1], initial))
        return more

    monkeypatch.setattr(comparison, "fit_candidate", fit_candidate)
    fit = CandidateFit(GD, "linear", {}, (4 if reached else 3,), error)
    other, more = fit._replace(candidate=CG, alignment=(1,), error=others), fit._replace(error=0.0)
    fits, data = [comparison.BoundedFit(one, 4) for one in (fit, other)], SimpleNamespace()
    data.fitted = data.fitted_predictions = None
    results = comparison._refit(fits, data, comparison.Options())
    assert results[0] == (comparison.BoundedFit(more, 16) if refitted else fits[0])
    assert calls == [(GD, 16, None if error <= 0.1 else fit)] * refitted


def test_simultaneous_intervals_hold_for_all_candidates_together():
    """Of 30 equal candidates, none is farther in most samples; without correction, many are."""
    misses, alone = 0, 0
    for seed in range(60):
        random = np.random.default_rng(seed)
        values = random.normal(size=(30, 50))
        resample = random.multinomial(50, [1 / 50] * 50, size=300) / 50
        means = values.mean(1)[:, None]
        drawn = (values @ resample.T)[:, None]
        fixed = np.arange(30) == 0  # the leader is not the best by chance
        differences = paired_differences(means, drawn, fixed)
        misses += np.any(differences.low > 0)
        spread = (drawn - drawn[0] - differences.mean[..., None]).std(-1)
        alone += np.any(differences.mean - 1.64 * spread > 0)
    assert misses <= 8
    assert alone > 20


def test_a_distance_that_one_task_dominates_is_still_farther():
    """Its deviation is about as large as its mean, but no resample has it as near."""
    squares = np.full(16, 0.01)
    squares[3] = 10.0
    draws = np.random.default_rng(0).multinomial(16, np.full(16, 1 / 16), size=1000) / 16
    heavy, exact = np.sqrt(draws @ squares), np.full(1000, 1e-15)
    means = np.array([[1e-15], [np.sqrt(squares.mean())]])
    result = paired_differences(means, np.stack([exact, heavy])[:, None], np.array([True, True]))
    assert result.mean[1, 0] - 1.96 * heavy.std() < 0
    assert result.low[1, 0] > 0.05


def test_regular_steps_are_those_at_equal_intervals():
    matrix = np.full((3, 9), 0.5)
    for layer, step in enumerate((2, 4, 6)):
        matrix[layer, step] = 0.01
    part = gaps([1.0], matrix)
    assert is_regular((2, 4, 6), part)
    matrix[2, 6], matrix[2, 7] = 0.5, 0.01
    assert not is_regular((2, 4, 7), part)
    matrix[:, 2:] = 0.01  # converged
    assert is_regular((2, 2, 2), part)


def test_two_seeds_may_not_give_two_names(x64):
    one = of_descent()
    other = one._replace(remain=("conjugate_gradient",))
    for status in ("identified", "close to"):
        both = agreement([one._replace(status=status), other._replace(status=status)])
        assert (both.status, {*both.remain}) == ("not distinguishable", {*NAMES})
    for status in ("identified", "close to", "not identified"):
        assert agreement([one, one._replace(status=status)]).status == status
