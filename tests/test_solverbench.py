"""SolverBench: its files, its labels, its scores, and that its open set runs no candidate."""

import csv
import json
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from helpers import dense, kernel_matrix, numpy
from jax.flatten_util import ravel_pytree

import icl_krr as ik
from benchmarks import fast_weights_naming, streams, trained, what_networks_run
from icl_krr import cli
from icl_krr.catalogue import SOLVERS, candidates, compared
from icl_krr.experiments import solverbench
from icl_krr.experiments.solverbench import (
    NONE,
    OUTCOMES,
    QUICK,
    BenchConfig,
    Share,
    Verdict,
    _distractor_functions as functions,
    _distractor_solvers as solvers,
    _folder as files,
    _verdicts as verdicts,
    outcome,
    read_labels,
    read_models,
    read_verdicts,
    score,
)
from icl_krr.experiments.solverbench._folder import LABELS, MANIFEST, MODELS, TRUTHS
from icl_krr.experiments.solverbench._models import OPEN, VARIANTS
from icl_krr.experiments.solverbench._verdicts import STATUSES
from icl_krr.probes import layerwise

CONFIG = BenchConfig(quick=True, **QUICK)


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench")
    with jax.enable_x64(True):
        files.write_bench(folder, CONFIG)
    return folder


def labels_of(bench):
    return read_labels(bench / LABELS / TRUTHS)["models"]


def test_studies_of_a_few_solvers_take_them_from_those_that_are_compared():
    """Noise, fewer channels and training change the weights of a few, of each sort of step one."""
    superposed = (name for name, _ in solverbench.SUPERPOSED_CASES)
    of_weights = (*solverbench.VARIED_SOLVERS, *superposed)
    named = (*streams.FIRST, *what_networks_run.SOLVERS)
    assert {*of_weights, *named} <= {*compared()}
    assert {*fast_weights_naming.RULES} == {name for name in candidates() if SOLVERS[name].causal}


def submit(path, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("model", "status", "names"), *rows])
    return path


def scored(labels, path, rows):
    return score(labels, read_verdicts(submit(path, rows), labels))


def perfect(labels):
    return [
        (name, "identified", label["solver"]) if label["names"] else (name, "none", "")
        for name, label in labels.items()
    ]


def test_every_variant_is_written_with_its_checksums(bench, x64):
    manifest, models = read_models(bench / MODELS)
    labels = labels_of(bench)
    assert {label["variant"] for label in labels.values()} == {*VARIANTS}
    assert [one.name for one in models] == [*labels] == [row["model"] for row in manifest["models"]]
    assert (manifest["config"].seed, manifest["dtype"]) == (0, "float64")
    for one, row in zip(models, manifest["models"], strict=True):
        b, n, q = 2 * CONFIG.tasks, one.tasks.num_supports, CONFIG.num_queries
        assert one.answers.answers.shape == (b, CONFIG.steps + 1, q)
        assert one.answers.hats.shape == (b, CONFIG.steps + 1, q, n)
        assert row["weights"] == (bench / MODELS / one.name / "model.safetensors").exists()


def test_the_weights_that_are_written_give_the_answers(bench, x64):
    manifest, models = read_models(bench / MODELS)
    compared = 0
    for one, row in zip(models, manifest["models"], strict=True):
        if row["weights"] and not row["probed"] and row["steps"] is None:
            weights = ik.export.load(bench / MODELS / one.name / "model.safetensors")
            task = jax.tree.map(lambda leaf: leaf[0], one.tasks)
            assert np.allclose(layerwise(weights, task), one.answers.answers[0], atol=1e-10)
            compared += 1
    assert compared >= 5


def test_the_truth_is_apart_and_is_that_of_the_oracle(bench, x64):
    """Nothing that a participant may see names a solver; what is exact equals the oracle."""
    labels = json.loads((bench / LABELS / TRUTHS).read_text())["models"]
    manifest = (bench / MODELS / MANIFEST).read_text()
    assert not any(name in manifest for name in (*candidates(), OPEN, *STATUSES[:3]))
    for name, label in labels.items():
        truth = bench / LABELS / f"{name}.npz"
        assert truth.exists() == (label["variant"] != OPEN)
        if label["variant"] in ("exact", "causal"):
            answers = np.load(bench / MODELS / name / "answers.npz")["answers"]
            with np.load(truth) as states:
                assert np.allclose(states["prediction"], answers, atol=1e-10)
                assert states["alpha"].shape[1] == CONFIG.steps + 1
        if "its own readout" in label["about"]:
            assert label["distance to truth"] < 1e-10


def test_a_perfect_table_an_empty_table_and_a_random_table(bench, tmp_path):
    labels = labels_of(bench)
    path = tmp_path / "table.csv"
    best = scored(labels, path, perfect(labels))
    assert all(shares["right"].share == 1 for shares in best["variants"].values())
    assert best["open set"]["false positives"].cases == 0
    nothing = [(name, "none", "") for name in labels]
    with pytest.raises(ValueError, match=f"none for 1 of {len(labels)} models, such as"):
        scored(labels, path, nothing[1:])
    none = scored(labels, path, nothing)
    assert all(shares["none"].share == 1 for shares in none["variants"].values())
    assert none["open set"][NONE].share == 1
    rng = np.random.default_rng(0)
    rows = [(name, "identified", rng.choice(candidates())) for name in labels]
    drawn = scored(labels, path, rows)
    assert drawn["open set"]["false positives"].share == 1
    right = sum(name_said == labels[name]["solver"] for name, _, name_said in rows)
    assert sum(shares["right"].cases for shares in drawn["variants"].values()) == right
    assert sum(map(sum, (line.values() for line in drawn["confusion"].values()))) == len(labels)
    assert Share.of(0, 0) == (0, 0, None, None)
    assert Share.of(3, 9).interval == pytest.approx((0.120584, 0.645798), abs=1e-6)  # Wilson's


@pytest.mark.parametrize(
    ("status", "names", "expected"),
    [
        ("identified", ("chebyshev",), "right"),
        ("identified", ("heavy_ball",), "wrong"),
        ("not distinguishable", ("heavy_ball", "chebyshev"), "among"),
        ("not distinguishable", ("heavy_ball", "richardson"), "wrong"),
        ("close to", ("chebyshev",), "close"),
        ("close to", ("richardson",), "close to another"),
        ("none", (), "none"),
    ],
)
def test_what_a_verdict_is(status, names, expected):
    assert outcome({"names": ["chebyshev"]}, Verdict(status, names)) == expected
    assert expected in OUTCOMES


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model,status,names\nm999,none,\n", "line 2: model must be a model of the labels"),
        ("model,status,names\nm000,none,\nm000,none,\n", "line 3: model must have one line"),
        ("model,status,names\nm000,sure,cg\n", "line 2: status must be identified, "),
        ("model,status,names\nm000,identified,cg gd\n", "names must be one name for 'identified'"),
        ("model,status,names\nm000,not distinguishable,cg\n", "names must be two or more names"),
    ],
)
def test_a_table_that_is_no_table_of_verdicts_is_one_line(tmp_path, text, message):
    path = tmp_path / "table.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_verdicts(path, {"m000": {}, "m001": {}})


def test_a_short_name_and_the_words_of_identify_are_understood(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("names,model,status\ncg,m000,Identified\nPCG,m001,none is close\n")
    expected = {"m000": ("identified", ("conjugate_gradient",)), "m001": ("none", ())}
    assert read_verdicts(path, {"m000": {}, "m001": {}}) == expected


def test_an_interrupted_write_is_seen(bench, tmp_path, x64, monkeypatch):
    family = solverbench.bench_family("linear", CONFIG)
    one = solverbench.candidate_model("gradient_descent", "linear", family)
    monkeypatch.setattr(files, "all_models", lambda config: [one])
    monkeypatch.setattr(files, "write_truth", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        files.write_bench(tmp_path, CONFIG)
    for read, where in ((read_models, MODELS), (lambda path: read_labels(path / TRUTHS), LABELS)):
        with pytest.raises(ValueError, match=r"must exist, because .* writes it last"):
            read(tmp_path / where)
    assert not [path for path in tmp_path.rglob(".*") if path.is_file()]
    read_models(bench / MODELS)


TASKS = ik.tasks.LinearRegression(num_features=4, num_supports=8, num_queries=4, noise=0.1)
RIDGE, STEPS = 0.3, 4


@pytest.fixture(scope="module")
def task():
    with jax.enable_x64(True):
        return ik.tasks.sample(jax.random.key(3), TASKS)


def iterate(task, kernel, change):
    """Predictions of alpha <- alpha + change(A, y, alphas so far), in NumPy."""
    A = kernel_matrix(kernel, task.x, task.x) + RIDGE * np.eye(task.num_supports)
    at, alphas = kernel_matrix(kernel, task.x_query, task.x), [np.zeros(task.num_supports)]
    for t in range(STEPS):
        alphas.append(alphas[-1] + change(A, np.asarray(task.y), alphas, t))
    return np.array(alphas) @ at.T


def accelerated(A, y, alphas, t):
    ahead = alphas[-1] + (t / (t + 3) * (alphas[-1] - alphas[-2]) if t else 0)
    return ahead - alphas[-1] + 0.02 * (y - A @ ahead)


def steepest(A, y, alphas, t):
    r = y - A @ alphas[-1]
    return (r @ r) / (r @ A @ r) * r


def relaxed(A, y, alphas, t):
    lower = np.tril(A, -1) + np.diag(np.diag(A)) / 1.4
    return np.linalg.solve(lower, y - A @ alphas[-1])


SHARED = {"num_features": 4, "ridge": RIDGE}
SIZES = np.array([0.01, 0.03, 0.02, 0.005])


def test_the_weights_of_a_rival_run_it(task, x64):
    sizes, kernel = ik.per_step(SIZES), ik.Gaussian(2.0)
    varying = ik.compile(solverbench.descent, kernel, steps=4, step_size=sizes, **SHARED)
    predictions = iterate(task, kernel, lambda A, y, a, t: SIZES[t] * (y - A @ a[-1]))
    assert np.allclose(layerwise(varying, task), predictions, atol=1e-10)
    rest = {"steps": STEPS, **SHARED}
    fast = ik.compile(solverbench.nesterov, kernel, step_size=0.02, **rest)
    assert np.allclose(layerwise(fast, task), iterate(task, kernel, accelerated), atol=1e-10)
    searched = ik.compile(solverbench.steepest_descent, kernel, **rest)
    assert np.allclose(layerwise(searched, task), iterate(task, kernel, steepest), atol=1e-10)
    plain = iterate(task, kernel, lambda A, y, a, t: 0.02 * (y - A @ a[-1]))
    means = np.cumsum(plain[1:], 0) / np.arange(1, STEPS + 1)[:, None]
    averaged = ik.compile(solverbench.averaged_descent, kernel, step_size=0.02, **rest)
    assert np.allclose(numpy(layerwise(averaged, task))[1:], means, atol=1e-10)


def test_the_functions_of_the_open_set(task, x64):
    kernel, shares = ik.Linear(), np.array([0.0, 0.25, 1.0])

    @jax.jit
    def run(task):
        arguments = kernel, task, RIDGE
        return (
            functions.over_relaxation(*arguments, STEPS),
            ik.solvers.exact(kernel, task, ridge=RIDGE).prediction,
            functions.anderson(*arguments, 60, 0.02),
            functions.descent(*arguments, 60, 0.02),
            functions.exact(kernel, task, np.full(3, RIDGE), shares),
            functions.exact(kernel, task, np.array([1.0, 3.0, RIDGE]), np.array([0.0, 1.0, 1.0])),
            functions.gradient_flow(*arguments, np.array([0.0, 0.001, 1e4])),
            functions.descent(*arguments, 100, 1e-5),
        )

    overrelaxed, exact, mixed, plain, towards, everywhere, flow, slow = numpy(run(task))
    assert np.allclose(overrelaxed, iterate(task, kernel, relaxed), atol=1e-10)
    gap = lambda path: np.linalg.norm(path[-1] - exact) / np.linalg.norm(exact)  # noqa: E731
    assert gap(mixed) < 0.2 * gap(plain)
    assert np.allclose(towards, shares[:, None] * exact[None])
    assert np.allclose(everywhere[-1], exact)
    assert np.allclose(flow[0], 0)
    assert np.allclose(flow[1], slow[-1], rtol=1e-2)
    assert np.allclose(flow[2], exact)


def test_a_rotation_changes_no_answer_and_all_channels(task, x64):
    model = ik.constructions.conjugate_gradient(ik.Linear(), steps=STEPS, **SHARED)
    turned = solverbench.rotated(model, jax.random.key(0))
    assert turned.layout.names == ("stream",)
    assert np.allclose(layerwise(turned, task), layerwise(model, task), atol=1e-8)
    few, many = (
        np.sum(abs(np.asarray(one.weights.steps[0].attention[0].writes[0].out)) > 1e-6)
        for one in (dense(model), turned)
    )
    assert few < many


def test_noise_has_its_level(x64):
    model = ik.constructions.gradient_descent(ik.Linear(), steps=STEPS, step_size=0.01, **SHARED)
    moved = solverbench.perturbed(dense(model), jax.random.key(0), 0.05)
    moved, original = (np.asarray(ravel_pytree(one)[0]) for one in (moved, dense(model)))
    assert abs(np.std(moved[original != 0] / original[original != 0]) / 0.05 - 1) < 0.25
    same = solverbench.perturbed(model, jax.random.key(0), 0.0)
    assert all(map(np.array_equal, *map(jax.tree.leaves, (same, ik.untie(model)))))


def test_the_command_writes_and_scores(bench, tmp_path, capsys):
    labels = labels_of(bench)
    table = submit(tmp_path / "table.csv", perfect(labels))
    out = tmp_path / "score"
    argv = ["solverbench", "score", str(table), "--labels", str(bench / LABELS), "--out", str(out)]
    assert cli.main([*argv, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["variants"]["exact"]["right"][:3] == [1, 1, 1.0]
    assert json.loads((out / "score.json").read_text())["rows"] == printed["rows"]
    text = (out / "score.md").read_text()
    assert text.count("| --- |") >= 2
    assert all(name in text for name in labels)


FEW = {"candidates": ("gradient_descent", "conjugate_gradient"), "kernels": ("linear",)}


@pytest.mark.slow
def test_identify_is_a_participant(bench, tmp_path, capsys, monkeypatch):
    """It continues an interrupted run, and its table is one that can be scored."""
    real, calls = verdicts.identify_answers, []

    def few(tasks, answers, **options):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return real(tasks, answers, **FEW, **options)

    monkeypatch.setattr(verdicts, "identify_answers", few)
    out = tmp_path / "out"
    argv = ["solverbench", "identify", "--models", str(bench / MODELS), "--out", str(out)]
    assert cli.main(argv) == 130
    assert cli.main(argv) == 0
    capsys.readouterr()
    labels = labels_of(bench)
    assert len(calls) == len(labels) + 1
    submitted = read_verdicts(out / "verdicts.csv", labels)
    verdict_of_truth = {label["about"]: submitted[name] for name, label in labels.items()}
    truth = "gradient_descent, linear kernel"
    for about in (truth, f"{truth}, read by its own readout"):
        assert verdict_of_truth[about] == ("identified", ("gradient_descent",))
    for about in ("steepest descent", "a share of exact KRR"):
        assert verdict_of_truth[about].status == NONE
    assert cli.main([*argv, "--seed", "1"]) == 2
    assert "other settings: seed: stored 0, given 1" in capsys.readouterr().err


def test_answers_that_are_not_finite_have_no_name(bench, x64):
    _, models = read_models(bench / MODELS)
    broken = models[0].answers._replace(answers=np.full_like(models[0].answers.answers, np.nan))
    assert verdicts.verdict_of(verdicts.identify_answers(models[0].tasks, broken)) == (NONE, ())


def test_solvers_of_no_candidate_are_in_no_entry_of_the_catalogue():
    """If one is added, records that count it as "runs no candidate" must be measured again."""
    names = {k for k, one in vars(solvers).items() if isinstance(one, ik.solvers.Solver)}
    assert {"nesterov", "averaged_descent"} <= names
    hint = "choose another name, or run python -m benchmarks.streams again"
    assert not names & {*SOLVERS}, hint


def test_candidates_that_diverge_or_stay_where_they_are_have_no_distance():
    reasons = ("", "diverges on the scored tasks", "its steps are nearly the mean of y", "farther")
    names = ("chebyshev", "richardson", "newton_schulz", "conjugate_gradient")
    every = [
        SimpleNamespace(
            reason=reason,
            fit=SimpleNamespace(candidate=name),
            distances=dict.fromkeys(streams.SPACES, SimpleNamespace(mean=size)),
        )
        for name, reason, size in zip(names, reasons, (2e-3, 0, 0, 1e-3), strict=True)
    ]
    result = SimpleNamespace(candidates=every, status="", remain=(), baselines={})
    assert [*trained.names_and_distances(result)["candidates"]] == [*names[::3]]
    readings = streams.own_readings(result)
    assert [readings[space].names for space in streams.SPACES] == [names[3:], names[3:]]
    assert readings["streams"].names == names[:1]
