"""Probes: alignment, hat matrices, filters and linear readouts, against known answers."""

from functools import partial
from itertools import product

import jax
import numpy as np
import pytest
from helpers import built, numpy, of_random_weights, one, relative, stacked
from sklearn.linear_model import Ridge

import icl_krr as ik
from icl_krr.catalogue import SOLVERS
from icl_krr.experiments import draw_tasks
from icl_krr.experiments.identify._probe_controls import controls
from icl_krr.probes import effective, fit_probe, layerwise, spectral_filter
from icl_krr.probes._naming.candidate_fit import PredictionData, clip_distances, squares
from icl_krr.probes._naming.candidates import scaled_log_parameters

RIDGE = 0.5


@pytest.fixture
def tasks(x64):
    family = ik.tasks.LinearRegression(
        num_features=4, num_supports=10, num_queries=5, condition=20.0
    )
    return numpy(draw_tasks(jax.random.key(3), 6, family))


def hats(model, tasks):
    return hats_of(partial(layerwise, model), tasks)


def hats_of(answers, tasks):
    return np.asarray(jax.jit(partial(jax.lax.map, partial(ik.probes.hat_matrix, answers)))(tasks))


def hats_of_exact(kernel, tasks):
    exact = lambda t: ik.solvers.exact(kernel, t, ridge=RIDGE).prediction[None]  # noqa: E731
    return hats_of(exact, tasks)[:, 0]


@pytest.mark.parametrize("at", [0.0, 0.5, 1.0])
def test_a_search_starts_from_the_scale_of_the_kernel_matrices(x64, tasks, at):
    """The ridge times 100 and the step size divided by 100, if K is 100 times as large."""
    ridge, step_size = SOLVERS["gradient_descent"].fitted.values()
    start = partial(scaled_log_parameters, SOLVERS["gradient_descent"], "linear", np.full(2, at))
    large = start(tasks.replace(x=10 * tasks.x)) - start(tasks)
    assert np.allclose(large, [np.log(100), -np.log(100)])
    norm = np.mean([np.linalg.norm(x @ x.T) for x in np.asarray(tasks.x)])
    boxes = [10 ** (box.low + (box.high - box.low) * at) for box in (ridge, step_size)]
    assert np.allclose(np.exp(start(tasks)), [boxes[0] * norm, boxes[1] / norm])


def test_alignments_are_the_best_of_all_monotone_ones():
    rng = np.random.default_rng(0)
    for layers, steps in ((1, 1), (1, 5), (3, 4), (4, 3)):
        for cost in rng.random((20, layers, steps)):
            alignment = ik.probes.align(cost)
            paths = [p for p in product(range(steps), repeat=layers) if list(p) == sorted(p)]
            best = min(sum(cost[range(layers), p]) for p in paths)
            assert np.all(np.diff(alignment) >= 0)
            assert np.isclose(cost[range(layers), alignment].sum(), best)


def test_hat_matrices_are_those_of_exact_regression_and_of_smoothing(tasks):
    task = one(tasks, 0)
    gram, cross = task.x @ task.x.T, task.x_query @ task.x.T
    expected = np.linalg.solve(gram + RIDGE * np.eye(10), cross.T).T
    assert relative(hats_of_exact(ik.Linear(), tasks)[0], expected) < 1e-9
    kernel = ik.Exponential(2.0)
    model = ik.constructions.nadaraya_watson(kernel, num_features=4)
    weights = numpy(ik.solvers.nadaraya_watson(kernel, task).weights)
    assert relative(hats(model, tasks)[0, 1], weights) < 1e-9


def test_hat_matrices_of_more_supports_than_answers_are_the_same(tasks):
    """Products with the Jacobian from the left, and from the right."""
    model, task = built(ik.Linear(), 2), one(tasks, 0)
    whole = hats(model, tasks)[0]
    assert whole.shape == (3, 5, 10)
    ones = tasks.replace(x_query=tasks.x_query[:, :1], y_query=tasks.y_query[:, :1])
    assert relative(hats(model, ones)[0], whole[:, :1]) < 1e-9
    # conjugate gradient scales with y: so Euler's relation holds
    assert relative(whole @ task.y, layerwise(model, task)) < 1e-9


def test_filters_are_those_of_the_theory(tasks):
    """q_t of gradient descent and of Chebyshev at every eigenvalue, exact q when CG is done."""
    sigma = np.unique([np.linalg.eigvalsh(x @ x.T)[-4:] for x in tasks.x])
    top = float(sigma[-1])
    apart = (sigma[1:] + sigma[:-1]) / 2
    edges = np.array([sigma[0] / 2, *apart, sigma[-1] * 2])
    eta = 1 / top

    def found_of(*model, **options):
        layer_hats = hats(built(ik.Linear(), *model, **options), tasks)
        return spectral_filter(ik.Linear(), tasks, layer_hats, edges=edges)

    filters = found_of(5, "gradient_descent", step_size=eta)
    assert relative(filters.sigma, sigma) < 1e-9
    for t in range(6):
        expected = numpy(ik.theory.gradient_filter(sigma, RIDGE, eta, t))
        assert relative(filters.q[t] + 1, expected + 1) < 1e-9
    assert relative(found_of(6).q[-1], 1 / (sigma + RIDGE)) < 1e-3
    theta, delta = top / 2 + RIDGE, top / 2
    scaled = (theta - (sigma + RIDGE)) / delta
    cosh = lambda x: np.polynomial.chebyshev.chebval(x, [0] * 5 + [1])  # noqa: E731
    expected = (1 - cosh(scaled) / cosh(theta / delta)) / (sigma + RIDGE)
    filters = found_of(5, "chebyshev", spectrum=(RIDGE, top + RIDGE))
    assert relative(filters.q[5], expected) < 1e-3


def test_bins_of_a_filter_have_error_bars_that_hold_it(tasks):
    model = built(ik.Linear(), 2, "gradient_descent", step_size=0.02)
    filters = spectral_filter(ik.Linear(), tasks, hats(model, tasks), bins=4)
    assert np.all(filters.low <= filters.q + 1e-12)
    assert np.all(filters.q <= filters.high + 1e-12)
    assert np.all(np.diff(filters.sigma) > 0)
    assert relative(filters.q[2], ik.theory.gradient_filter(filters.sigma, RIDGE, 0.02, 2)) < 0.05


def test_intervals_of_a_filter_are_of_95_percent(x64):
    """Those of a mean of 64 tasks that differ by a normal error: 1.96 standard errors."""
    errors = np.random.default_rng(0).normal(size=64)
    tasks = stacked(*[ik.Task(x=np.eye(2), y=np.ones(2), x_query=np.ones((1, 2)))] * 64)
    layer_hats = errors[:, None, None, None] * np.ones((1, 1, 1, 2))
    filters = spectral_filter(ik.Linear(), tasks, layer_hats, bins=1)
    half = 1.96 * errors.std() / 8
    assert np.allclose(filters.q - filters.low, half, rtol=0.2)
    assert np.allclose(filters.high - filters.q, half, rtol=0.2)


def test_masked_supports_change_neither_filters_nor_effective_parameters(tasks):
    keep = np.arange(10) % 3 != 1
    rest = tasks.replace(x=tasks.x[:, keep], y=tasks.y[:, keep])
    mask = np.tile(keep, (len(tasks.x), 1))
    masked = tasks.replace(x=np.where(keep[:, None], tasks.x, 9.0), mask=mask)
    kernel, edges, filters, values = ik.Exponential(3.0), np.array([0.0, 1.0, 1e3]), [], []
    for part in (masked, rest):
        layer_hats = hats_of_exact(kernel, part)
        filters.append(spectral_filter(kernel, part, layer_hats[:, None], edges=edges))
        values.append(effective("regression", "exponential", part, layer_hats))
    assert all(relative(a, b) < 1e-9 for a, b in zip(*filters, strict=True))
    assert values[0] == pytest.approx(values[1], rel=1e-5)


@pytest.mark.parametrize("kernel", [ik.Gaussian(1.3), ik.Exponential(3.0), ik.Linear()])
def test_effective_parameters_of_exact_regression_are_its_own(tasks, kernel):
    name = type(kernel).__name__.lower()
    fitted = effective("regression", name, tasks, hats_of_exact(kernel, tasks))
    assert abs(fitted["ridge"] / RIDGE - 1) < 0.02
    if name != "linear":
        bandwidth = "lengthscale" if name == "gaussian" else "temperature"
        assert abs(fitted[bandwidth] / getattr(kernel, bandwidth) - 1) < 0.02
    assert fitted["distance"] < 1e-3


def test_the_effective_temperature_of_a_head_is_its_own(tasks):
    model = ik.constructions.nadaraya_watson(ik.Exponential(1.7), num_features=4)
    layer_hats = hats(model, tasks)[:, 1]
    fitted = effective("smoother", "exponential", tasks, layer_hats)
    assert abs(fitted["temperature"] / 1.7 - 1) < 0.02
    assert effective("regression", "exponential", tasks, layer_hats)["distance"] > 0.02


def test_distances_are_those_of_a_loop():
    rng = np.random.default_rng(0)
    answers, path = rng.normal(size=(3, 2, 4)), rng.normal(size=(3, 5, 4))
    distances = np.asarray(jax.jit(squares)(path, PredictionData(None, answers)))
    for layer in range(2):
        size = np.sum(answers[:, layer] ** 2)
        for step in range(5):
            gap = np.sum((answers[:, layer] - path[:, step]) ** 2) / size
            assert np.isclose(distances[layer, step], gap)
    for answer, distance in ((0.5, 1), (0.0, 0)):
        model = PredictionData(None, np.full((1, 1, 1), answer))
        assert squares(np.zeros((1, 1, 1)), model) == distance
    assert clip_distances(np.array([np.nan, np.inf, 2.0])).tolist() == [1e6, 1e6, 2.0]


def test_probes_are_ridge_regressions(x64):
    """Not trained: what a probe can read of random features is what it can."""
    model = of_random_weights(num_features=4, width=16, depth=2, heads=2)
    family = ik.tasks.LinearRegression(num_features=4, num_supports=10, num_queries=5)
    tasks = numpy(draw_tasks(jax.random.key(3), 40, family))
    assert not ik.probes.has_slot(model)
    probe = fit_probe(model, tasks)
    probe_of_targets = fit_probe(model, tasks.replace(y_query=None), tasks.y_query)
    assert np.array_equal(probe.weights, probe_of_targets.weights)
    all_streams = np.stack([ik.probes.streams(model, one(tasks, i)) for i in range(40)], axis=1)
    task = one(tasks, 0)
    ours = numpy(layerwise(model, task, probe))
    assert ours.shape == (3, 5)
    assert relative(ours[2], ik.predict(model, task)) < 1e-9
    y = tasks.y_query.reshape(200)
    for layer in range(2):
        features = np.asarray(all_streams[layer]).reshape(200, -1)
        errors = []
        for ridge in 10.0 ** np.arange(-8, 2) * np.mean(np.var(features[:150], axis=0)):
            fit = Ridge(ridge * 150).fit(features[:150], y[:150])
            errors.append(np.sum((fit.predict(features[150:]) - y[150:]) ** 2))
        scale = 10.0 ** (np.argmin(errors) - 8) * np.mean(np.var(features, axis=0))
        theirs = Ridge(scale * 200).fit(features, y)
        assert relative(ours[layer], theirs.predict(features[:5])) < 1e-3


def test_controls_show_what_a_probe_owes_to_the_model(x64):
    """A probe of shuffled outputs is no better than zero."""
    family = ik.tasks.LinearRegression(num_features=2, num_supports=20, num_queries=4, noise=0.01)
    fitted, scored = (numpy(draw_tasks(jax.random.key(i), 64, family)) for i in range(2))
    sizes = {"num_features": 2, "width": 32, "depth": 1, "heads": 1}
    spec = ik.Architecture(**sizes, attention="linear", layer_norm=False)
    rows = controls(ik.init(jax.random.key(0), spec), fitted, scored, family, jax.random.key(1))
    zero = float(np.mean(scored.y_query**2))
    assert len(rows) == 2
    assert all(row["shuffled"] > 0.9 * zero for row in rows)
    assert rows[1]["untrained"] < 0.9 * zero
    assert {"lens", "other family"} < {*rows[1]}


def test_probes_refuse_what_they_cannot_read(tasks):
    model = ik.constructions.nadaraya_watson(ik.Exponential(), num_features=tasks.num_features)
    rows = np.ones((len(tasks.x), tasks.num_queries, tasks.num_supports))
    for refused, message in (
        (lambda: effective("smoother", "linear", tasks, rows), "kernel must have a bandwidth"),
        (lambda: effective("regression", "linear", tasks, 0 * rows), "hats must not be zero"),
        (
            lambda: ik.probes.fit_candidate("richardson", "linear", tasks, rows[..., 0], 2),
            "kernel of richardson must",
        ),
        (lambda: fit_probe(model, tasks, tasks.y_query[1:]), "targets must be .b, q. = "),
    ):
        with pytest.raises(ValueError, match=message):
            refused()
