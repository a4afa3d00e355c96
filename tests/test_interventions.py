"""Interventions: what is taken out is out, nothing else is, and algorithms answer as expected."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import CASES, cut_off, dense, draw, moved, numpy, one, relative, stacked

import icl_krr as ik
from icl_krr.catalogue import SOLVERS
from icl_krr.experiments import AblateConfig
from icl_krr.experiments._ablate.ablation import examine, table
from icl_krr.experiments._ablate.expected import EXPECTED, Without
from icl_krr.kernels import kernel_class
from icl_krr.plots import ablation_figure
from icl_krr.probes import ablate, patch, sites, transplant
from icl_krr.probes._changing import interventions
from icl_krr.probes._changing.interventions import captured_points, run_interventions
from icl_krr.tabular import solver_keywords

ENCODER = ik.Architecture(num_features=4, width=8, depth=2, heads=2, hidden=6)


def batch(count=3, seed=0, **sizes):
    return stacked(*(draw(seed + i, **sizes) for i in range(count)))


def named(model, name, kinds=("head", "unit", "slot", "role"), **options):
    (site,) = [site for site in sites(model, kinds, **options) if site.name == name]
    return site


@pytest.mark.slow
@pytest.mark.parametrize("solver", [*EXPECTED])
def test_without_a_part_a_construction_is_its_algorithm_without_that_part(x64, solver):
    ablation = examine(AblateConfig(solver, steps=3, tasks=2, num_queries=3))
    expected = {row["site"]: row for row in ablation.rows if row.get("expectation")}
    assert len(expected) == len(EXPECTED[solver].words)
    for name, row in expected.items():
        assert row["distance to expectation"] < 1e-9, name
    assert max(row["change"] for row in ablation.rows if "change" in row) > 0.1
    header, lines = table(ablation)
    assert all(len(line) == len(header) for line in lines)
    assert not cut_off(ablation_figure(ablation, solver))


@pytest.mark.parametrize("solver", [*EXPECTED])
def test_an_algorithm_without_nothing_is_the_solver(x64, solver):
    """What expectations are computed with, against the oracle of the same name."""
    expectation, task = EXPECTED[solver], draw(0)
    kernel = kernel_class(expectation.kernel)()
    needs = solver_keywords(SOLVERS[solver], kernel, task, 0.3) | {"steps": 4}
    ours = np.asarray(expectation.compute(kernel, task, Without((), -1), **needs))[:, 0]
    oracle = ik.solvers.lookup(SOLVERS[solver])(kernel, task, **needs)
    assert relative(ours, np.asarray(oracle.prediction)[-1]) < 1e-10


def test_conjugate_gradient_without_beta_is_steepest_descent(x64):
    """By the textbook, in NumPy: gamma = r.r / r.Ar along r itself."""
    tasks, steps, ridge = batch(n=9, q=2), 6, 0.3
    model = CASES["cg"].build(one(tasks, 0), ridge, steps)
    (without,) = np.asarray(ablate(model, tasks, [named(model, "step.4.heads.0.p")]))
    for prediction, x, r, at in zip(without, tasks.x, tasks.y, tasks.x_query, strict=True):
        A, alpha = x @ x.T + ridge * np.eye(9), np.zeros(9)
        for _ in range(steps):
            gamma = r @ r / (r @ A @ r)
            alpha, r = alpha + gamma * r, r - gamma * (A @ r)
        assert np.allclose(prediction, at @ x.T @ alpha, atol=1e-10)
    assert relative(without, ik.predict_batch(model, tasks)) > 1e-3


def zeroed(array, *where):
    array = np.array(array)
    array[where] = 0
    return array


def test_a_head_is_its_weights_and_nothing_else(x64):
    """A trained head without its values, and hooks on what a construction's heads write."""
    model, tasks = numpy(ik.init(jax.random.key(0), ENCODER)), batch()
    model_sites = sites(model, ("head", "unit"), each_step=True, each_unit=True)
    assert len(model_sites) == 2 * (2 + 6 + 8)
    ours = np.asarray(ablate(model, tasks, model_sites, chunk=8))
    weights = model.weights.steps[0]
    heads, unit = weights.attention[0], weights.mlp[0]
    (write,) = heads.writes
    blocks = {k: zeroed(b, 1, ..., slice(4, None)) for k, b in write.value.blocks.items()}
    headless = heads.replace(writes=(write.replace(value=write.value.replace(blocks=blocks)),))
    silent = unit.replace(out=zeroed(unit.out, 0, 3))
    for name, changed in {
        "blocks.1.heads.0[1]": weights.replace(attention=(headless,)),
        "blocks.0.units.0[3]": weights.replace(mlp=(silent, *weights.mlp[1:])),
    }.items():
        (prediction,) = (p for site, p in zip(model_sites, ours, strict=True) if site.name == name)
        without = model.replace(weights=model.weights.replace(steps=(changed,)))
        assert relative(prediction, ik.predict_batch(without, tasks)) < 1e-12
        assert relative(prediction, ik.predict_batch(model, tasks)) > 1e-4


def test_one_step_by_itself_is_a_hook_there(x64):
    tasks = batch(2)
    model = CASES["cg"].build(one(tasks, 0), 0.2, 3)
    places = {
        "blocks.8.heads.1.r": "blocks.8.attn.r",
        "blocks.11.resid_post.r": "blocks.11.resid_post.r",
        "blocks.12.units.0.gamma": "blocks.12.mlp.gamma",
    }
    model_sites = [named(model, name, each_step=True) for name in places]
    zero = lambda value, name: 0 * value  # noqa: E731
    without = np.asarray(ablate(model, tasks, model_sites))
    for site, point, ours in zip(model_sites, places.values(), without, strict=True):
        theirs = [ik.run_with_hooks(model, one(tasks, i), {point: zero}) for i in range(2)]
        assert relative(ours, np.stack(theirs)) < 1e-12, site


def test_what_is_patched_comes_from_the_other_task(x64):
    tasks, others = batch(3), batch(3, seed=7)
    model = CASES["nw-gaussian"].build(one(tasks, 0), 0.2, 3)
    model_sites = sites(model, ("head", "slot", "role"))
    same = patch(model, tasks, model_sites, tasks)
    assert relative(same, np.broadcast_to(ik.predict_batch(model, tasks), same.shape)) < 1e-12
    names = [site.name for site in model_sites]
    patched = np.asarray(patch(model, tasks, model_sites, others))
    theirs = ik.predict_batch(model, others)
    assert relative(patched[names.index("query tokens")], theirs) < 1e-12
    assert relative(patched[names.index("support tokens")], theirs) > 1e-2


def test_the_mean_is_over_tasks_and_the_tokens_of_a_role(x64):
    tasks = batch(4)
    model = ik.init(jax.random.key(1), ENCODER)
    site = named(model, "blocks.0.units.0.stream", each_step=True)
    (ours,) = np.asarray(ablate(model, tasks, [site], replace="mean"))
    hidden = "blocks.0.units.0.hidden"
    runs = (ik.run_with_cache(model, one(tasks, i), points=("units.0.hidden",)) for i in range(4))
    values = np.stack([cache[hidden] for _, cache in runs])
    roles = slice(0, 1), slice(1, 8), slice(8, 11)
    means = [np.mean(values[:, at], axis=(0, 1)) for at in roles]
    value = np.stack([means[0], *[means[1]] * 7, *[means[2]] * 3])
    hooks = {hidden: lambda old, name: value}
    theirs = [ik.run_with_hooks(model, one(tasks, i), hooks) for i in range(4)]
    assert relative(ours, np.stack(theirs)) < 1e-12


def test_the_forward_goes_on_from_a_block_within_a_step(x64):
    """Of a model whose weights differ from step to step."""
    task = draw(0)
    model = moved(ik.untie(CASES["cg"].build(task, 0.3, 3)))
    block = len(model.weights.prologue) + model.blocks_per_step + 1
    whole, cache = ik.run_with_cache(model, task, points=("resid_pre",))
    assert ik.transformer.tail(model, block).depth == model.depth - block
    rest = ik.resume(model, task, cache[f"blocks.{block}.resid_pre"], block)
    assert relative(rest, whole) < 1e-12


def test_what_only_some_blocks_have_is_not_stacked():
    task = draw(0)
    model = CASES["cg"].build(task, 0.3, 2)
    _, cache = ik.run_with_cache(model, task, points=("attn", "attn.alpha", "resid_post.alpha"))
    assert cache.stack("resid_post.alpha").shape == (model.depth, 11, 1)
    with pytest.raises(KeyError, match="attn must have the same slots in every block"):
        cache.stack("attn")
    with pytest.raises(KeyError, match=r"attn\.alpha must be in every block to be stacked"):
        cache.stack("attn.alpha")
    with pytest.raises(ValueError, match="points must not be given with everything=True"):
        ik.run_with_cache(model, task, points=("attn",), everything=True)


def test_states_of_the_oracle_take_the_place_of_the_models(x64):
    """Three steps of the solver by another hand, then the model's own."""
    task, ridge = draw(0, n=9), 0.2
    model = CASES["cg"].build(task, ridge, 5)
    path = numpy(ik.solvers.conjugate_gradient(ik.Linear(), task, ridge=ridge, steps=5))
    fitted = task.x @ (task.x.T @ path.alpha[3])
    state = {name: getattr(path, name)[3] for name in ("alpha", "r", "p")}
    state["rr"] = np.sum(path.r[3] ** 2)[None]
    state["prediction"] = np.concatenate([np.zeros(1), fitted, path.prediction[3]])
    ours = transplant(model, task, 16, state)
    assert relative(ours, path.prediction[5]) < 1e-9
    assert relative(transplant(model, task, 16, {"r": 0 * path.r[3]}), ours) > 1e-3
    assert relative(transplant(dense(model), task, 16, state), ours) < 1e-9


@pytest.mark.parametrize(("kind", "r"), [("cg", 2), ("ric-exponential", None), ("trained", 2)])
def test_transplant_takes_what_a_cache_gives(x64, kind, r):
    """Values of another task's run, in every form: the prediction is then that of the other task.

    The tasks differ in y only, which no state after the first block depends on in another way.
    """
    task = draw(0).replace(y_query=None)
    y = task.y if r is None else np.stack([task.y, task.y**2], axis=1)
    task, other = task.replace(y=0 * y), task.replace(y=y)
    if kind == "trained":
        model, step = ik.init(jax.random.key(0), ENCODER), 1
    else:
        model, step = CASES[kind].build(draw(0), 0.3, 3), 2
    prediction, cache = ik.run_with_cache(model, other, points=("resid_pre",))
    block = len(model.weights.prologue) + step * model.blocks_per_step
    values = [cache, cache[f"blocks.{block}.resid_pre"]]
    if kind != "trained":
        values.append({name: value[step] for name, value in cache.slots.items()})
    if kind == "cg":
        parts = {slot: cache[f"blocks.{block}.resid_pre.{slot}"] for slot in ("r", "p", "rr")}
        values.append(parts | {"prediction": cache["prediction"][step]})
    for slots in values:
        ours = transplant(model, task, block, slots)
        assert ours.shape == prediction.shape
        assert relative(ours, prediction) < 1e-12
    assert relative(transplant(model, task, block, {}), prediction) > 0.01


def test_transplant_refuses_a_cache_where_no_step_starts():
    task = draw(0, n=4, q=1)
    model = CASES["cg"].build(task, 0.3, 5)
    _, cache = ik.run_with_cache(model, task)
    _, short = ik.run_with_cache(model.replace(steps=3), task)
    for block, run in ((0, cache), (2, cache), (21, short)):
        with pytest.raises(ValueError, match="block must be the first of a step, 1 and every 5"):
            transplant(model, task, block, run)
    with pytest.raises(ValueError, match="slot alpha must have shape"):
        transplant(model, task, 1, {"alpha": cache["alpha"]})  # of all steps
    rest = ik.transformer.tail(model, 24)  # the last two blocks, without a step
    assert transplant(rest, task, 1, {"alpha": cache["alpha"][5]}).shape == (1,)
    with pytest.raises(TypeError, match=r"slots must be \{name: value\} or a cache"):
        transplant(model, task, 1, [cache["alpha"]])


def scratch(model, tasks, model_sites, source, chunk):
    """Bytes of memory beside the arguments and the result, for these sites."""
    ids, codes = interventions.encoded(model, model_sites)
    program = run_interventions.lower(model, tasks, codes, source, ids, chunk).compile()
    return program.memory_analysis().temp_size_in_bytes


@pytest.mark.parametrize("source", [False, True])
def test_memory_is_bounded_for_many_tasks_too(source):
    model = ik.constructions.nadaraya_watson(ik.Exponential(), num_features=4)
    tasks, task = stacked(*[draw(0, n=64)] * 512), draw(0, n=64)
    model_sites = (sites(model, ("head", "slot")) * 99)[:200]
    points = interventions.point_names(interventions.encoded(model, model_sites)[0])
    captured = jax.tree.leaves(jax.eval_shape(lambda: captured_points(model, task, points)))
    activations = sum(leaf.size * leaf.dtype.itemsize for leaf in captured)
    one_run, returned = ik.transformer.memory(model, task).scratch, 200 * 512 * 3 * 4
    used = scratch(model, tasks, model_sites, tasks if source else None, 16)
    assert used <= 16 * 2 * one_run + returned + source * activations


def test_a_hook_of_all_blocks_is_told_where_it_is(x64):
    task = draw(0)
    model = CASES["ric-gaussian"].build(task, 0.2, 3)
    places = []

    def halve(value, where):
        places.append(where.position)
        return jnp.where(where.step == 1, value / 2, value)

    ours = ik.run_with_hooks(model, task, {"blocks.*.attn.smoothed": halve})
    half = {"blocks.3.attn.smoothed": lambda value, name: value / 2}
    theirs = ik.run_with_hooks(model, task, half)
    assert set(places) == {2}
    assert relative(ours, theirs) == 0


def test_interventions_refuse():
    task, tasks = draw(0), batch(2)
    cg = lambda steps: CASES["cg"].build(task, 0.2, steps)  # noqa: E731
    model = cg(2)
    model_sites = sites(model)
    refusals = {
        "sites must belong to this model, got 'blocks.45.heads.0.p'": lambda: ablate(
            model, tasks, sites(cg(9), ("head",), each_step=True)[-1:]
        ),
        "must have num_outputs = 1 like the model, got 2": lambda: ablate(
            model, batch(2, r=2), model_sites, replace="mean"
        ),
        "sites must not be empty": lambda: ablate(model, tasks, []),
        "source must have x, y and x_q": lambda: patch(model, tasks, model_sites, batch(2, n=5)),
        "stream must have the slots": lambda: ik.resume(model, task, {}, 3),
        "block must be <= depth = 11, got 12": lambda: ik.transformer.tail(model, 12),
        "point must exist in some": lambda: ik.run_with_cache(model, task, points=("nowhere",)),
        "exist in some block": lambda: ik.run_with_hooks(model, task, {"blocks.*.x": max}),
    }
    for message, refused in refusals.items():
        with pytest.raises(ValueError, match=message):
            refused()
