"""Training of a mean and a variance: the Gaussian likelihood, its references, and old runs."""

import csv
import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import draw as one_task, numpy, of_random_weights, one, relative, stacked
from scipy.stats import norm

import icl_krr as ik
from icl_krr.cli import main
from icl_krr.experiments import ModelRecipe, Recipe, TaskRecipe, family, load
from icl_krr.experiments._shared.runs import first_model
from icl_krr.plots import training_figure
from icl_krr.report import training_section
from icl_krr.training import Training, check, mean_loss, reference
from icl_krr.training._batches import batch, draw, draw_observed
from icl_krr.training._reference import Reference, likelihoods, scale_of

LINEAR = ik.tasks.LinearRegression(num_features=3, num_supports=8, num_queries=2)
SIZES = {"num_features": 1, "num_supports": 6, "num_queries": 4}
PROCESS = ik.tasks.GaussianProcess(ik.Gaussian(0.5), noise=0.3, **SIZES)
SMALL = Training(
    steps=4, batch=4, log_every=2, validation=8, warmup=2, objective="gaussian", learning_rate=3e-3
)
DECODER = {"causal": True, "tokens": "interleaved", "max_tokens": 18}
observed = jax.jit(draw_observed)


def observed_tasks(count, sampler):
    return numpy(observed(jax.random.split(jax.random.key(0), count), sampler))


def small(**options):
    """A model whose variances depend on the task."""
    sizes = {"num_features": 3, "width": 8, "depth": 1, "heads": 2, "variance": True}
    return of_random_weights(**sizes | options)


def test_the_losses_are_those_of_a_loop():
    """Density of SciPy and squared error, at the queries and at every token that is not masked."""
    lengths = np.array([8, 3, 5])
    tasks = numpy(draw(jax.random.key(1), LINEAR, 3))
    tasks = numpy(tasks.replace(mask=np.arange(8)[None] < lengths[:, None]))

    @partial(jax.jit, static_argnums=1)
    def results(model, where):
        reads = jax.vmap(partial(ik.readouts, model, along=where == "every"))(tasks)
        return reads, mean_loss(model, tasks, where, "gaussian"), mean_loss(model, tasks, where)

    for where, model in (("queries", small()), ("every", small(**DECODER))):
        losses, squares = [], []
        reads, likelihood, square = numpy(results(model, where))
        for i, length in enumerate(lengths):
            task, read = one(tasks, i), one(reads, i)
            y = np.append(task.y, task.y_query) if where == "every" else np.asarray(task.y_query)
            deviation = np.exp(read["log_variance"][:, 0] / 2)
            assert np.ptp(deviation) > 0.01
            each = -norm.logpdf(y, read["prediction"], deviation)
            tokens = [*range(length), *range(8, 10)] if where == "every" else [0, 1]
            losses += [*each[tokens]]
            squares += [*(y - read["prediction"])[tokens] ** 2]
        assert relative(likelihood, np.mean(losses)) < 1e-5
        assert relative(square, np.mean(squares)) < 1e-5


def test_outputs_at_queries_have_the_noise_of_the_supports():
    """Exact regression with its noise explains them, and not those without noise."""
    tasks = observed_tasks(2000, LINEAR)
    alike = jax.eval_shape(lambda: draw(jax.random.key(0), LINEAR, 2000))
    shapes = [leaf.shape for leaf in jax.tree.leaves(alike)]
    assert [leaf.shape for leaf in jax.tree.leaves(tasks)] == shapes
    kernel, ridge = LINEAR.optimal()
    solve = lambda task: ik.solvers.posterior(kernel, task, ridge=ridge)  # noqa: E731
    result = numpy(jax.jit(partial(ik.map_tasks, solve))(tasks))
    scores = (tasks.y_query - result.mean) ** 2 / (result.variance + np.float32(ridge))
    assert relative(scores.mean(), float(LINEAR.noise / ridge)) < 0.06


def test_a_batch_of_the_objective_has_mixed_lengths_too():
    settings = dataclasses.replace(SMALL, min_supports=2, batch=64)

    @jax.jit
    def both(key):
        of_tasks, _ = jax.random.split(key)
        whole = draw_observed(jax.random.split(of_tasks, 64), LINEAR)
        return batch(key, LINEAR, settings, jnp.asarray(0)), whole.y_query

    tasks, y_query = numpy(both(jax.random.key(0)))
    assert tasks.mask.shape == (64, 8)
    lengths = tasks.mask.sum(axis=1)
    assert (lengths.min(), lengths.max()) == (2, 8)
    assert np.array_equal(tasks.y_query, y_query)


def test_reference_likelihoods_are_those_of_scipy():
    tasks = jax.tree.map(lambda leaf: leaf[:16], observed_tasks(2000, LINEAR))
    best = reference(LINEAR, jax.random.key(1), 4)
    result = likelihoods(best, scale_of(best, LINEAR, tasks), tasks)
    scale = float(LINEAR.noise / best.ridge)
    each = []
    for i in range(16):
        task = one(tasks, i)
        gram = np.asarray(best.kernel(task.x, task.x), float)
        cross = np.asarray(best.kernel(task.x_query, task.x), float)
        inverse = np.linalg.inv(gram + best.ridge * np.eye(len(gram)))
        prior = np.asarray(best.kernel.diagonal(task.x_query), float)
        variance = scale * (prior - np.sum(cross @ inverse * cross, axis=1) + best.ridge)
        mean = cross @ inverse @ np.asarray(task.y, float)
        each.append(-norm.logpdf(np.asarray(task.y_query), mean, np.sqrt(variance)))
    assert relative(result["exact_nll"], np.mean(each)) < 1e-4
    y = tasks.y_query
    assert relative(result["constant_nll"], -norm.logpdf(y, y.mean(), y.std()).mean()) < 1e-5


def test_the_scale_of_a_regression_that_was_fitted_is_the_best():
    fitted = Reference(ik.Gaussian(0.5), 0.1, False, ik.Gaussian(0.5))
    tasks = observed_tasks(32, PROCESS)
    scale = scale_of(fitted, PROCESS, tasks)
    losses = [likelihoods(fitted, c * scale, tasks)["exact_nll"] for c in (1, 0.9, 1.1)]
    assert losses[0] == min(losses)


def test_settings_that_do_not_fit_are_refused():
    class Other:
        noise = 0.1

        def sample(self, key, active=None):
            return ik.tasks.sample(key, LINEAR, active)

    fine = small()
    for model, sampler, changes, words in (
        (fine, LINEAR, {"target": "exact"}, "target must be 'outputs' if objective is 'gaussian'"),
        (small(variance=False), LINEAR, {}, "model must have readouts that give a distribution"),
    ):
        with pytest.raises(ValueError, match=words):
            check(model, sampler, dataclasses.replace(SMALL, **changes))
    with pytest.raises(TypeError, match="family must be a dataclass with the fields"):
        check(fine, Other(), SMALL)


def test_parameters_of_a_construction_fit_the_likelihood():
    """The gradient in ridge and scale is that of the exact likelihood."""
    with jax.enable_x64(True):
        tasks = stacked(*(one_task(seed, p=3) for seed in range(3)))
        build = lambda ridge: ik.constructions.prefix_posterior(  # noqa: E731
            ik.Linear(), num_features=3, ridge=ridge, steps=3
        )

        def exact(ridge):
            def task_loss(task):
                result = ik.solvers.posterior(ik.Linear(), task, ridge=ridge)
                variance = result.variance + ridge
                squares = (task.y_query - result.mean) ** 2 / variance
                return jnp.mean(squares + jnp.log(2 * jnp.pi * variance)) / 2

            return jnp.mean(ik.map_tasks(task_loss, tasks))

        loss = ik.training.negative_log_likelihood(build, tasks)
        both = jax.jit(lambda at: (jax.value_and_grad(loss)(at), jax.value_and_grad(exact)(at)))
        for ours, theirs in zip(*both(0.7), strict=True):
            assert relative(ours, theirs) < 1e-9


def test_a_recipe_of_the_objective_has_a_head_for_the_variance():
    parts = TaskRecipe(num_supports=6), ModelRecipe(width=8, depth=1, heads=2)
    recipe = Recipe(*parts, Training(objective="gaussian"))
    drawn = family(recipe.task)
    task = jax.eval_shape(lambda: ik.tasks.sample(jax.random.key(0), drawn))
    model = jax.eval_shape(lambda: first_model(recipe, drawn))
    assert jax.eval_shape(ik.predictive, model, task).variances.shape == (8, 1)
    plain = dataclasses.replace(recipe, training=Training())
    assert jax.eval_shape(lambda: first_model(plain, drawn)).weights.readouts == {}


def test_the_command_trains_a_variance_and_reports_likelihoods(tmp_path, capsys):
    out = tmp_path / "twin"
    small = "--task.num-supports 6 --task.num-features 2 --model.width 8 --model.depth 1"
    few = "--model.heads 2 --training.steps 2 --training.batch 2 --training.validation 4"
    command = f"train {small} {few} --training.objective gaussian --out {out}"
    assert main(command.split()) == 0
    assert "nll of exact KRR" in capsys.readouterr().out
    trained, drawn, recipe = load(out)
    start = first_model(recipe, drawn).weights.readouts["log_variance"].blocks["stream"]
    assert not np.allclose(trained.weights.readouts["log_variance"].blocks["stream"], start)
    lines = csv.DictReader((out / "metrics.csv").read_text().splitlines())
    rows = [{name: float(value or "nan") for name, value in row.items()} for row in lines]
    assert [*rows[0]][:5] == ["step", "loss", "validation", "ratio", "nll"]
    assert rows[0]["exact_nll"] < rows[0]["constant_nll"]
    assert "nats" in training_figure(rows, "a run").axes[0].get_ylabel()
    section = training_section("a run", rows, "")
    assert "one Gaussian" in section.parts[0].tables[0][1]
