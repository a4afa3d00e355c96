"""One context over eight devices: `tests/test_devices.py` runs this file on them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import CASES, draw, numpy, of_random_weights, parametrize, relative
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import icl_krr as ik
from icl_krr.catalogue import SOLVERS
from icl_krr.transformer import predict_along

KINDS = AxisType.Auto, AxisType.Explicit
MESHES = {kind: jax.make_mesh((8,), ("context",), (kind,)) for kind in KINDS}
MESH = MESHES[AxisType.Auto]
# the last case of each solver: by softmax attention, if it runs on that, and some with features;
# Jacobi's by linear attention, for its program by softmax attention takes long to compile.
# The others of a batch, by any kernel, consist of the operations of CG.
BATCH = {name: row for name, row in SOLVERS.items() if not row.causal}
OTHERS = [n for n, row in BATCH.items() if row.kernels == "featured" or not row.iterates]
LAST_OF = {case.solver: name for name, case in CASES.items() if not case.tables}
WIDE = {"num_features": 4, "width": 8, "depth": 2, "heads": 2}
OWN = {"causal": True, "inclusive": True, "aggregator": False}
TRAINED = {
    "positions": dict(**WIDE, causal=True, tokens="interleaved", max_tokens=40),
    "no aggregator": dict(**WIDE, **OWN, tokens="interleaved", max_tokens=40),
    "linear, no aggregator": dict(**WIDE, **OWN, attention="linear"),
    "linear decoder": dict(**WIDE, causal=True, attention="linear"),
    "linear encoder": dict(**WIDE, attention="linear", layer_norm=True),
}


def pulled_back(model, task, mesh=None, run=ik.predict):
    """The predictions, and gradients with respect to all weights and to the task."""

    @jax.jit
    def both(model, task):
        out, back = jax.vjp(lambda model, task: run(model, task, mesh=mesh), model, task)
        return out, back(jnp.linspace(1, 2, out.size, dtype=out.dtype).reshape(out.shape))

    out, slopes = both(model, task.replace(y_query=None))
    return out, [leaf for leaf in jax.tree.leaves(slopes) if leaf.dtype == out.dtype]


def assert_equal(got, expected, tolerance):
    """Predictions, and gradients relative to the largest entry of all gradients."""
    assert relative(got[0], expected[0]) < tolerance
    got, expected = numpy(got[1]), numpy(expected[1])
    size = max(np.max(np.abs(leaf), initial=0) for leaf in expected)
    pairs = zip(got, expected, strict=True)
    assert max(np.max(np.abs(a - b), initial=0) for a, b in pairs) < tolerance * size


def of_a_case(case):
    task = draw(3, p=3, n=13, q=2)
    return case.build(task, 0.3, 2), task


@parametrize(["cg", "ric-gaussian", "jcg", *(LAST_OF[s] for s in OTHERS)], ("cg",))
def test_constructions_are_those_of_one_device(x64, case):
    """Thirteen supports on eight devices: the last device has only padding."""
    model, task = of_a_case(case)
    expected, got = pulled_back(model, task), pulled_back(model, task, MESH)
    assert_equal(got, expected, 1e-12 * case.rounding)


@pytest.mark.parametrize("name", TRAINED)
def test_trained_models_are_those_of_one_device(x64, name):
    model, task = of_random_weights(**TRAINED[name]), draw(3, p=4, n=13, q=2)
    task = task.replace(mask=np.arange(13) % 5 != 2)
    if name == "linear decoder":  # sums over the devices before
        assert_equal(pulled_back(model, task, MESH), pulled_back(model, task), 1e-12)
        return
    run = predict_along if name == "no aggregator" else ik.predict
    assert relative(run(model, task, mesh=MESH), run(model, task)) < 1e-12


@pytest.mark.parametrize("kind", KINDS)
def test_supports_that_are_divided_already_stay_where_they_are(x64, kind):
    model, _ = of_a_case(CASES["ric-gaussian"])
    task = draw(3, p=3, n=16, q=2)
    divided, whole = (NamedSharding(MESHES[kind], PartitionSpec(*at)) for at in (["context"], []))
    there = task.replace(
        x=jax.device_put(task.x, divided),
        y=jax.device_put(task.y, divided),
        x_query=jax.device_put(task.x_query, whole),
        y_query=None,
    )
    assert relative(ik.predict(model, there), ik.predict(model, task)) < 1e-12
    _, cache = ik.run_with_cache(model, there, names=("alpha",))
    assert cache["alpha"].sharding.spec == PartitionSpec(None, "context")


def test_slots_after_every_step(x64):
    """Also if the largest y, which one device has, chooses the unit of all."""
    model, task = of_a_case(CASES["cg"])
    task = task.replace(y=np.where(np.arange(13) == 0, 1e9, task.y))
    names = "alpha", "r", "rr", "prediction"
    expected, got = (ik.run_with_cache(model, task, names=names, mesh=m)[1] for m in (None, MESH))
    for slot in names:
        assert relative(got[slot], expected[slot]) < 1e-11, slot


def test_logits_far_beyond_the_range_of_exp():
    """In float32. Some devices hold no key that counts."""
    model = ik.constructions.nadaraya_watson(ik.Exponential(1e-3), num_features=3)
    got, expected = (pulled_back(model, draw(3, p=3, n=13, q=2), mesh) for mesh in (MESH, None))
    assert_equal(got, expected, 1e-3)
    assert relative(got[0], expected[0]) < 1e-6


def test_a_loss_over_tasks_and_contexts(x64):
    mesh = jax.make_mesh((2, 4), ("tasks", "context"))
    family = ik.tasks.LinearRegression(num_features=2, num_supports=6, num_queries=2)
    keys = jax.random.split(jax.random.key(0), 3)
    tasks = jax.jit(jax.vmap(ik.tasks.sample, in_axes=(0, None)))(keys, family)

    def build(ridge):
        sizes = {"num_features": 2, "steps": 2}
        return ik.constructions.conjugate_gradient(ik.Linear(), ridge=ridge, **sizes)

    of_mesh = (ik.training.held_out(build, tasks, mesh=mesh) for mesh in (None, mesh))
    (value, slope), (got, got_slope) = (jax.jit(jax.value_and_grad(loss))(1.0) for loss in of_mesh)
    assert relative(got, value) < 1e-12
    assert relative(got_slope, slope) < 1e-12


def test_refusals():
    model, task = of_a_case(CASES["cg"])
    with pytest.raises(ValueError, match="mesh must have an axis 'tasks'"):
        ik.predict(model, task, mesh=jax.make_mesh((8,), ("data",)))
    with pytest.raises(ValueError, match="mesh must have an axis 'context' for one task"):
        ik.predict(model, task, mesh=jax.make_mesh((8,), ("tasks",)))
    with pytest.raises(TypeError, match=r"mesh must be a jax.sharding.Mesh, got int"):
        ik.predict(model, task, mesh=8)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="task must be on one device"):
        ik.run_with_cache(model, task, everything=True, mesh=MESH)
