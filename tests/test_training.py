"""Training: what a step does, and that runs end, stop and go on as they should."""

import csv
import dataclasses
import json
import re
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tyro
from flax import serialization
from helpers import TRAIN, numpy, of_random_weights, relative, with_one_bit_flipped

import icl_krr as ik
from benchmarks import records
from icl_krr._core.files import NO_CHECKSUM, with_checksum
from icl_krr._core.pytree import pytree_dataclass
from icl_krr.cli import main
from icl_krr.cli._program import subcommands
from icl_krr.experiments import ModelRecipe, Recipe, TaskRecipe, family, load, run_names
from icl_krr.experiments._shared.recipe import folder_of
from icl_krr.experiments._shared.runs import first_model, recorded
from icl_krr.training import Diverged, Mismatch, check, reference, save_weights, start, train
from icl_krr.training._batches import batch, draw
from icl_krr.training._checkpoint import read
from icl_krr.training._reference import optimal

LINEAR = ik.tasks.LinearRegression(num_features=3, num_supports=8, num_queries=2)
SMALL = ik.training.Training(
    steps=60, batch=16, log_every=20, validation=64, warmup=2, learning_rate=3e-2
)
DECODER = {"num_features": 3, "causal": True, "tokens": "interleaved", "max_tokens": 18}


drawn = jax.jit(batch, static_argnums=2)


def small(**options):
    """A block of linear attention, which compiles in half the time of softmax and units."""
    sizes = {"num_features": 3, "width": 8, "depth": 1, "heads": 2, "hidden": 0}
    return of_random_weights(**sizes | {"attention": "linear", "layer_norm": False} | options)


def train_small(model=None, family=LINEAR, folder=None, progress=lambda *row: None, **changes):
    settings = dataclasses.replace(SMALL, **changes)
    return train(model or small(), family, settings, folder=folder, progress=progress)


def write_run(folder, recipe, model):
    (folder / "recipe.json").write_text(recipe.to_json())
    save_weights(folder / "model.msgpack", model)


def test_the_gradient_of_chunks_is_that_of_the_batch(monkeypatch):
    """Five tasks in three chunks of two, of which one task is padding."""
    tasks = numpy(draw(jax.random.key(1), LINEAR, 5))
    tasks = tasks.replace(mask=np.arange(8)[None] < np.array([8, 3, 5, 1, 6])[:, None])
    model = of_random_weights(width=8, depth=1, heads=2, **DECODER)
    loss = jax.jit(jax.value_and_grad(ik.training.mean_loss), static_argnums=2)
    expected = loss(model, tasks, "every")
    monkeypatch.setattr("icl_krr.tasks._batches.TOKENS", 4 * 2 * 11)
    gradient = jax.jit(ik.training.loss_and_gradient, static_argnums=2)
    chex.assert_trees_all_close(gradient(model, tasks, "every"), expected, rtol=1e-4, atol=1e-6)
    for name, given in (("where", ("all",)), ("objective", ("every", "huber"))):
        with pytest.raises(ValueError, match=f"{name} must be"):
            ik.training.loss_and_gradient(model, tasks, *given)


def test_the_gradient_stores_products_with_weights_for_a_chunk_of_tasks(monkeypatch):
    """Those of queries, keys and values, of the attention's output, and of the hidden units."""
    monkeypatch.setattr("icl_krr.tasks._batches.TOKENS", 4 * 8 * 11)
    gradient = jax.jit(ik.training.loss_and_gradient, static_argnums=2)
    batches = [jax.eval_shape(lambda n=n: draw(jax.random.key(1), LINEAR, n)) for n in (16, 128)]
    wide = partial(of_random_weights, num_features=3, width=32, heads=2)
    few, many = (gradient.lower(wide(depth=2), tasks, "queries") for tasks in batches)
    scratch = [one.compile().memory_analysis().temp_size_in_bytes for one in (few, many)]
    assert scratch[1] < 1.2 * scratch[0]
    monkeypatch.setattr("icl_krr.transformer._forward.STORED", 0)
    again = gradient.lower(wide(depth=3), batches[0], "queries")
    products = [one.as_text().count("stablehlo.dot_general") for one in (few, again)]
    assert products[1] >= products[0] + 3


def test_answers_are_compared_with_the_posterior_mean():
    """Of contexts of any length; what is left out is the outputs' own variance."""
    settings = dataclasses.replace(SMALL, min_supports=3, target="exact")
    model, state = small(), start(small(), settings)
    tasks = numpy(drawn(jax.random.fold_in(state.key, state.step), LINEAR, settings, state.step))
    best = optimal(LINEAR)
    assert best is not None
    assert optimal(dataclasses.replace(LINEAR, sparsity=1)) is None

    @jax.jit
    @jax.vmap
    def gap(task):
        exact = ik.solvers.exact(best[0], task, ridge=best[1]).prediction
        return ik.predict(model, task) - exact

    _, loss = ik.training.advance(state, LINEAR, settings, best)
    assert relative(loss, np.mean(np.square(gap(tasks)))) < 1e-4


def test_contexts_are_mixed_and_grow_by_the_curriculum():
    settings = dataclasses.replace(
        SMALL, batch=256, min_supports=2, start_supports=4, start_features=1, curriculum=10
    )
    for step, longest, active in ((0, 4, 1), (5, 6, 2), (10, 8, 3), (99, 8, 3)):
        tasks = numpy(drawn(jax.random.key(0), LINEAR, settings, np.asarray(step)))
        lengths = np.asarray(tasks.mask.sum(axis=1))
        assert (lengths.min(), lengths.max()) == (2, longest)
        assert np.array_equal(tasks.mask, np.arange(8) < lengths[:, None])
        zero = np.all(np.asarray(tasks.x) == 0, axis=(0, 1))
        assert zero.tolist() == [False] * active + [True] * (3 - active)


def test_features_that_are_not_active_do_not_reach_the_outputs():
    for config in (
        dataclasses.replace(LINEAR, noise=0.0),
        ik.tasks.GaussianProcess(ik.Linear(), noise=0.0, num_features=3, num_supports=8),
        ik.tasks.ReLUNetwork(num_features=3, num_supports=8),
        ik.tasks.DecisionTree(num_features=3, num_supports=8),
        ik.tasks.Sinusoids(num_features=3, num_supports=8),
    ):
        task = numpy(ik.tasks.sample(jax.random.key(0), config, 0))
        assert not np.any(task.x)
        assert np.ptp(task.y) < 1e-6, type(config).__name__


def test_training_lowers_the_loss_below_that_of_the_mean():
    """On tasks that were never seen."""
    _, (*_, last) = train_small()
    assert last["step"] == 60
    assert last["exact"] < last["validation"] < 0.8 * last["mean"]
    assert last["ratio"] == last["validation"] / last["exact"]


def test_a_step_is_compiled_once_for_its_shapes(programs):
    state = start(small(), SMALL)
    programs.clear()
    for noise in (0.2, 0.2, 0.4):  # not that of LINEAR, whose step other tests compile
        state, _ = ik.training.advance(state, dataclasses.replace(LINEAR, noise=noise), SMALL)
    assert len(programs) <= 1
    assert int(state.step) == 3


def test_a_run_that_was_stopped_ends_with_the_same_weights(tmp_path):
    """And of its metrics, those beyond the checkpoint are dropped."""
    whole, rows = train_small(folder=tmp_path / "whole")
    cut, steps = tmp_path / "cut", []

    def stop(step, row):
        if step == 58:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_small(folder=cut, progress=stop)
    resumed, again = train_small(folder=cut, progress=lambda step, _: steps.append(step))
    assert steps == [*range(41, 61)]
    chex.assert_trees_all_equal(whole, resumed)
    for name in ("step", "loss", "validation"):
        np.testing.assert_array_equal([row[name] for row in rows], [row[name] for row in again])
    *lines, last = (cut / "metrics.csv").read_text().splitlines()
    (cut / "metrics.csv").write_text("\n".join([*lines, last, last.replace("60", "80", 1), ""]))
    done, rows = train_small(folder=cut)
    chex.assert_trees_all_equal(whole, done)
    assert [row["step"] for row in rows] == [0, 20, 40, 60]


@pytest.mark.slow
def test_a_run_without_a_terminal_tells_of_every_interval(tmp_path):
    """As soon as it is measured; Ctrl-C ends it, and leaves a whole checkpoint."""
    command = [sys.executable, "-c", "from icl_krr.cli import console; console()", *TRAIN, "cut"]
    run = [*command, "--training.steps", "100000"]
    process = subprocess.Popen(run, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    assert process.stderr is not None
    first, second = (process.stderr.readline() for _ in range(2))
    assert re.fullmatch(r"step 0 of 100000: [\d.]+ x the error of exact KRR, compiling\n", first)
    assert re.fullmatch(r"step 4 of 100000: loss [\d.]+ \(against y\), .* steps/s\n", second)
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=60)
    assert (process.returncode, "Traceback" in rest) == (130, False)
    assert read(tmp_path / "cut" / "checkpoint.msgpack", "step")["step"] % 4 == 0


def test_a_loss_that_is_no_number_stops_the_run(tmp_path):
    @pytree_dataclass
    class Sour(ik.tasks.LinearRegression):
        """A few tasks whose error overflows."""

        def sample(self, key, active=None):
            task = super().sample(key)
            return task.replace(y_query=task.y_query * jnp.where(task.x[0, 0] > 2.4, 1e30, 1))

    with pytest.raises(Diverged, match=r"got inf at step (\d+) .* the checkpoint of step") as stop:
        train_small(family=Sour(**vars(LINEAR)), folder=tmp_path, steps=200, log_every=1)
    at = int(str(stop.value).split("at step ")[1].split()[0])
    rows = (tmp_path / "metrics.csv").read_text().splitlines()
    assert int(rows[-1].split(",")[0]) == at - 1
    assert (tmp_path / "checkpoint.msgpack").exists()


def test_initial_weights_that_overflow_are_named(tmp_path):
    huge = jax.tree.map(lambda leaf: leaf * jnp.inf, small())
    with pytest.raises(Diverged, match=r"initial weights must be finite, got (nan|inf): their"):
        train(huge, LINEAR, SMALL, folder=tmp_path)
    assert not [*tmp_path.iterdir()]


def test_a_checkpoint_of_another_run_is_named_field_by_field(tmp_path):
    train_small(folder=tmp_path)
    noisy = dataclasses.replace(LINEAR, noise=0.3)
    with pytest.raises(Mismatch) as refused:
        train_small(family=noisy, folder=tmp_path, batch=8, learning_rate=0.1)
    for words in (
        "family.noise: stored 0.1, given 0.3",
        "training.batch: stored 16, given 8",
        "training.learning_rate: stored 0.03, given 0.1",
    ):
        assert words in str(refused.value)
    with pytest.raises(Mismatch, match=r"model\.depth: stored 1, given 2"):
        train_small(small(depth=2), folder=tmp_path)
    save_weights(tmp_path / "checkpoint.msgpack", small())
    with pytest.raises(ValueError, match=r"must be a checkpoint, .* \(no entry config"):
        train_small(folder=tmp_path)


EXACT, SPARSE = {"target": "exact"}, dataclasses.replace(LINEAR, sparsity=1)
REFUSED = {
    "steps must be >= 1, got 0": {"steps": 0},
    "learning_rate must be > 0": {"learning_rate": -1.0},
    "decay must be >= 0": {"decay": -0.1},
    "decay must be <= 1": {"decay": 2.0},
    "curriculum must be > 0 if and only if start_supports": {"curriculum": 9},
    "min_supports must be <= 8, the number of supports": {"min_supports": 9},
    "start_features must be <= 3, the number of fea": {"start_features": 4, "curriculum": 1},
    "curriculum must be > 0 if and only if": {"start_supports": 4},
    "<= start_supports = 2, got 3": {"start_supports": 2, "min_supports": 3, "curriculum": 9},
    "must be causal with interleaved tokens": {"loss": "every"},
    "loss must be one of": {"loss": "some"},
    "target must be one of": {"target": "best"},
    "target must be 'outputs' if": EXACT | {"start_features": 1, "curriculum": 9},
    "whose posterior mean is not known": EXACT | {"family": SPARSE},
}


@pytest.mark.parametrize("message", REFUSED)
def test_settings_that_do_not_fit_are_refused(message):
    with pytest.raises(ValueError, match=message):
        train_small(**REFUSED[message])


def test_the_exact_predictor_is_known_or_fitted():
    """Nothing that is fitted beats the posterior mean by more than chance."""
    process = ik.tasks.GaussianProcess(
        ik.Gaussian(0.5), noise=0.1, num_features=1, num_supports=12, inputs="uniform"
    )
    exact = reference(process, jax.random.key(0))
    hidden = reference(dataclasses.replace(process, noise_spread=1.0001), jax.random.key(0))
    assert (exact.is_exact, exact.ridge, hidden.is_exact) == (True, 0.1, False)
    tasks = numpy(draw(jax.random.key(5), process, 256)).replace(mask=np.ones((256, 12), bool))
    losses = exact.losses(tasks)
    assert losses["exact"] < losses["nadaraya_watson"] < losses["mean"]
    assert 0.97 < hidden.losses(tasks)["exact"] / losses["exact"] < 1.1
    short = tasks.replace(x=tasks.x[:, :6], y=tasks.y[:, :6], mask=None)
    masked = tasks.replace(mask=np.broadcast_to(np.arange(12) < 6, (256, 12)))
    chex.assert_trees_all_close(exact.losses(short), exact.losses(masked), rtol=1e-4)


@pytest.mark.parametrize(("start", "tied"), [("conjugate_gradient", False), ("chebyshev", True)])
def test_constructions_are_starting_points(start, tied, tmp_path):
    """Exact weights, one for each step unless tied; what new ones are saved is loaded again."""
    recipe = Recipe(
        TaskRecipe(family="linear", kernel="linear", num_features=3, num_supports=8),
        ModelRecipe(start=start, depth=3, ridge=0.3, tied=tied),
    )
    drawn = family(recipe.task)
    exact = first_model(recipe, drawn)
    leading = {leaf.shape[0] for leaf in jax.tree.leaves(exact.weights.steps)}
    assert leading >= {1} if tied else leading == {3}
    if not tied:  # Chebyshev's spectrum is that of the family
        task = numpy(ik.tasks.sample(jax.random.key(9), drawn))
        oracle = numpy(ik.solvers.conjugate_gradient(ik.Linear(), task, ridge=0.3, steps=3))
        assert relative(ik.predict(exact, task), oracle.prediction[-1]) < 1e-3
    model = jax.tree.map(lambda leaf: leaf * 1.5, exact)
    write_run(tmp_path, recipe, model)
    chex.assert_trees_all_equal(load(tmp_path).model, model)


def test_runs_are_starting_points(tmp_path):
    """Their weights go on from where they were; a model that differs is refused by its fields."""
    first = Recipe(
        TaskRecipe(num_supports=4),
        ModelRecipe(style="decoder", width=8, depth=1, heads=2),
        dataclasses.replace(SMALL, seed=5),
    )
    drawn = family(first.task)
    write_run(tmp_path, first, first_model(first, drawn))
    again = dataclasses.replace(
        first,
        model=dataclasses.replace(first.model, start=str(tmp_path)),
        training=dataclasses.replace(SMALL, seed=6),
    )
    chex.assert_trees_all_equal(first_model(again, drawn), first_model(first, drawn))
    for change, message in (
        ({"width": 16}, "width: stored 8, given 16"),
        ({"start": "gp-encodr"}, "start must be a run's folder or one of .*; got 'gp-encodr'"),
        ({"start": "gp-decoder-gpu"}, "must hold weights, got only a recipe"),
    ):
        model = dataclasses.replace(again.model, **change)
        with pytest.raises(ValueError, match=message):
            first_model(dataclasses.replace(again, model=model), drawn)
    later = tmp_path / "later"
    later.mkdir()
    write_run(later, recorded(again), first_model(again, drawn))
    (tmp_path / "model.msgpack").unlink()
    chex.assert_trees_all_equal(load(later).model, first_model(first, drawn))


def test_recipes_are_read_and_refused(tmp_path, capsys):
    path = tmp_path / "mine.json"
    recipe = Recipe(training=dataclasses.replace(SMALL, seed=3))
    path.write_text(recipe.to_json())
    assert Recipe.read(path) == recipe
    for text, message in (
        ('{"task": {"noize": 1}}', "task: field must be one of .*, got 'noize'; did you mean 'no"),
        ("[]", r"mine.json must be object, got \[\]"),
        ("{", "must be a JSON file"),
        ('{"model": {"width": "9"}}', "mine.json: model.width must be int, got '9'"),
        ('{"training": {"steps": 5.5}}', "mine.json: training.steps must be int, got 5.5"),
        ('{"training": {"steps": -1}}', "mine.json: training.steps must be >= 0 and .*, got -1"),
        (f'{{"training": {{"seed": {10**30}}}}}', "training.seed must be >= 0 and < 2147483648, g"),
        ('{"task": {"noise": NaN}}', "mine.json: task.noise must be >= 0 and < inf, got nan"),
        ('{"task": {"noise": 1e400}}', "mine.json: task.noise must be >= 0 and < inf, got inf"),
        ('{"task": {"family": "nope"}}', "task.family must be one of 'gaussian_process', .*'nope'"),
        ('{"task": {"lengthscale": [1, 2]}}', "task.lengthscale must be float, got .1, 2"),
        ('{"task": {"table": 5}}', "task.table: .* os.PathLike"),
        ('{"model": {"layer_norm": "no"}}', "model.layer_norm must be bool, got 'no'"),
        ('{"model": {"start": "../../../etc/passwd"}}', "model.start must be the name of a solv"),
        ('{"checksum": 5}', "must be as icl-krr train wrote it, but has no checksum"),
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match=message) as refusal:
            Recipe.read(path)
        assert len(str(refusal.value)) < 500
    with pytest.raises(ValueError, match="recipe must be a JSON file, a run's folder or one of"):
        Recipe.read("nothing-of-the-kind")


@pytest.fixture
def run(tmp_path):
    return shutil.copytree(folder_of("linear"), tmp_path / "run")


def test_a_recipe_beside_weights_is_sealed_as_they_are(run):
    path = run / "recipe.json"
    assert load(run).recipe == Recipe.read("linear")
    for _ in with_one_bit_flipped(path, 60):
        with pytest.raises(ValueError, match=r"recipe\.json must be"):
            Recipe.read(run)
    path.write_text('{"task": {"family": "linear"}}')  # as written by hand, or by earlier versions
    with pytest.raises(ValueError, match="no checksum; files of earlier versions had none; for"):
        load(run)
    (run / "model.msgpack").unlink()
    assert Recipe.read(run).task.family == "linear"


def test_a_start_that_was_typed_is_recorded_by_its_checksum(run):
    """So that no file names what is read; the same command finds the same weights."""
    recipe = Recipe(model=ModelRecipe(start=str(run)))
    record = recorded(recipe)
    assert record.model.start.startswith("sha256:")
    assert recorded(record) == record
    path = run.with_name("recipe.json")
    path.write_text(record.to_json())
    assert Recipe.read(path) == record
    with pytest.raises(ValueError, match="start must be given again, as"):
        first_model(record, family(record.task))
    for name in (None, "conjugate_gradient", "gp-encoder"):
        named = Recipe(model=ModelRecipe(start=name))
        assert recorded(named) == named


def test_a_recipe_is_found_behind_flags(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text('{"task": {"noise": 0.7}}')
    flags = ["--training.steps", "5"]
    for argv in (["train", str(path), *flags], ["train", "--json", *flags, str(path)]):
        settings = tyro.cli(subcommands(argv), args=argv)
        assert (settings.task.noise, settings.training.steps) == (0.7, 5)
    with pytest.raises(ValueError, match="got 'nosuch'"):
        subcommands(["train", "--json", "nosuch"])


def test_a_finished_run_is_not_relabelled(run, capsys):
    """Other settings than its weights were trained with are named, whatever is left of it."""
    before = (run / "recipe.json").read_text()
    assert main(["train", str(run), "--task.noise", "0.7"]) == 2
    said = capsys.readouterr().err
    assert "task.noise: stored 0.0, given 0.7" in said
    assert f"; choose another --out, and add --model.start {run} to train on from its" in said
    assert main(["train", str(run), "--model.width", "2"]) == 2
    assert capsys.readouterr().err.endswith("given 2; choose another --out\n")
    assert (run / "recipe.json").read_text() == before


@pytest.mark.slow
def test_metrics_are_not_what_a_run_hangs_on(tmp_path, capsys):
    """Gone, they are not shown; of another kind, the file is named. The weights are the same."""
    command, metrics = [*TRAIN, str(tmp_path)], tmp_path / "metrics.csv"
    assert main(command) == 0
    weights = (tmp_path / "model.msgpack").read_bytes()
    metrics.unlink()
    assert main(command) == 0
    assert (tmp_path / "model.msgpack").read_bytes() == weights
    metrics.write_text("step,loss\nmany,1\n")
    capsys.readouterr()
    assert main(command) == 2
    assert "metrics.csv must hold the metrics of this run" in capsys.readouterr().err


def test_a_family_that_is_predicted_exactly_has_a_ratio():
    x = jax.random.normal(jax.random.key(0), (20, 3))
    constant = ik.tasks.Rows(x, np.zeros(20), num_supports=8, num_queries=2)
    _, rows = train_small(family=constant)
    assert rows[-1]["exact"] == 0
    assert rows[-1]["ratio"] == np.inf


def test_starts_that_do_not_fit_are_refused():
    task = TaskRecipe(num_features=2, num_supports=4)
    ns = ModelRecipe(start="newton_schulz")
    for model, changes, message in (
        (ns, {}, "kernel must be one of linear, polynomial to start"),
        (ModelRecipe(start="richardson"), {"noise": 0.0}, "ridge must be given to start from"),
        (ModelRecipe(ridge=0.5), {}, "ridge must be None unless start is a solver"),
        (ModelRecipe(), {"table": Path("a.csv"), "target": "y"}, "table must be None for family"),
    ):
        recipe = Recipe(dataclasses.replace(task, **changes), model)
        with pytest.raises(ValueError, match=message):
            first_model(recipe, family(recipe.task))
    with pytest.raises(ValueError, match="depth must be <= 20"):
        ik.tasks.DecisionTree(depth=40)


def test_every_family_of_a_recipe_is_drawn():
    for name in TaskRecipe.__dataclass_fields__["family"].type.split('"')[1::2]:
        columns = 10 if name == "table" else 2
        drawn = family(TaskRecipe(family=name, num_features=columns, num_supports=5))
        task = jax.jit(ik.tasks.sample)(jax.random.key(0), drawn)
        assert task.x.shape == (5, columns)
        assert np.all(np.isfinite(task.y))


REACHED = {
    "gp-encoder": 1.02,
    "gp-encoder-2d": 1.05,
    "gp-decoder": 1.02,
    "gp-decoder-4": 1.09,
    "gp-decoder-8": 1.06,
    "gp-decoder-12": 1.06,
    "gp-decoder-start": 1.07,
    "linear-decoder": 1.07,
    "linear-encoder": 1.07,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", REACHED)
def test_reference_runs_reach_what_is_said_of_them(name):
    """By their log, and on tasks that neither training nor its validation has seen."""
    folder = records.folder_of(name)
    run = load(folder)
    *_, last = csv.DictReader((folder / "metrics.csv").read_text().splitlines())
    assert int(last["step"]) == run.recipe.training.steps
    assert float(last["ratio"]) < REACHED[name]
    assert json.loads((folder / "meta.json").read_text())["recipe"]["task"]["noise"] == 0.05
    tasks = jax.jit(draw, static_argnums=2)(jax.random.key(987), run.family, 1024)
    exact = reference(run.family, jax.random.key(0)).losses(tasks)["exact"]
    ours = np.mean((numpy(ik.predict_batch(run.model, tasks)) - tasks.y_query) ** 2)
    assert ours / exact < REACHED[name] + 0.01


def test_every_recipe_that_ships_can_be_run():
    """Those for a GPU too: nothing but compilation and time stands before them."""
    assert {"gp-decoder-gpu", "linear-decoder-gpu"} < set(run_names())
    for name in run_names():
        recipe = Recipe.read(name)
        drawn = family(recipe.task)
        check(jax.eval_shape(partial(first_model, recipe, drawn)), drawn, recipe.training)


def test_runs_are_loaded_in_their_own_precision(x64):
    run = load("linear")
    assert run.model.dtype == np.float32
    task = numpy(ik.tasks.sample(jax.random.key(0), run.family))
    single = jax.tree.map(lambda leaf: leaf.astype("f4"), task)
    assert ik.predict(run.model, single).dtype == np.float32


@pytest.fixture
def weights(tmp_path):
    save_weights(tmp_path / "model.msgpack", small())
    return tmp_path / "model.msgpack"


def test_weights_of_another_shape_are_named(weights):
    with pytest.raises(Mismatch, match=r"readout\.blocks\.stream: stored \[8, 1\], given \[8, 2\]"):
        ik.training.load_weights(weights, small(num_outputs=2))


def test_weights_in_half_precision_are_read_in_single_precision(weights):
    like = small()
    ik.training.save_half_precision(weights, weights)
    assert {leaf.dtype.name for leaf in jax.tree.leaves(read(weights)["model"])} == {"float16"}
    loaded = ik.training.load_weights(weights, like)
    chex.assert_trees_all_equal_dtypes(loaded, like)
    chex.assert_trees_all_close(loaded, like, rtol=2**-11)
    save_weights(weights, {"w": np.full(3, 1e5)})
    with pytest.raises(ValueError, match=r"weights of .* in float16 must be finite, got inf"):
        ik.training.save_half_precision(weights, weights)


@pytest.mark.parametrize(("flips", "end"), [(220, None), (100, 200)])
def test_weights_with_one_bit_flipped_are_refused(weights, flips, end):
    like = small()
    for _ in with_one_bit_flipped(weights, flips, end=end):
        with pytest.raises(ValueError, match="must be a checkpoint, but cannot be read"):
            ik.training.load_weights(weights, like)


def test_weights_of_another_format_are_refused(weights):
    """Also those without a checksum, which could not be told from damaged ones."""
    for content, message in (
        ({"model": {}}, "no checksum; files of earlier versions had none"),
        ({"checksum": NO_CHECKSUM}, "no entry model"),
        ({"checksum": NO_CHECKSUM, "model": {"weights": "text"}}, "does not match"),
    ):
        weights.write_bytes(with_checksum(serialization.msgpack_serialize(content)))
        with pytest.raises(ValueError, match=message):
            ik.training.load_weights(weights, small())
