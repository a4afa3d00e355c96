"""What objects look like when they are printed, and in treescope."""

import dataclasses
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import treescope
from helpers import cg, draw

import icl_krr as ik
from icl_krr._core.readable import LINES, screen_repr

ROOMS = [ik, *filter(inspect.ismodule, (getattr(ik, name) for name in ik.__all__))]
SETTINGS = {"Architecture", "Cost", "Placement", "Sent", "Site", "Slot", "Spec", "Token"}
SETTINGS |= {"Training"}
"""Classes that hold no arrays."""


@pytest.fixture(scope="module")
def run():
    """A task, a model, the path of its solver, and the cache of all points."""
    task = draw(0)
    model = cg(task, 0.5, 8)
    path = ik.solvers.conjugate_gradient(ik.Linear(), task, ridge=0.5, steps=8)
    return task, model, path, ik.run_with_cache(model, task, everything=True)[1]


def test_every_public_class_with_arrays_is_readable():
    objects = [getattr(room, name) for room in ROOMS for name in room.__all__]
    classes = {cls for cls in objects if inspect.isclass(cls)}
    records = [cls for cls in classes if dataclasses.is_dataclass(cls) or hasattr(cls, "_fields")]
    records = [cls for cls in records if "catalogue" not in cls.__module__]
    others = {cls.__name__ for cls in records if cls.__repr__ is not screen_repr}
    assert others == SETTINGS | {"Cache"}
    assert len(records) > 40


def test_arrays_show_their_shape_and_scalars_their_value():
    task = draw(0, n=5, q=2).replace(y_query=None)
    p = task.num_features
    assert repr(task) == f"Task(x=f32[5,{p}], y=f32[5], x_query=f32[2,{p}])"
    masked = task.replace(mask=np.ones(5, bool))
    assert repr(masked).endswith("mask=bool[5])")
    assert repr(ik.Gaussian(jnp.array(0.1))) == "Gaussian(lengthscale=0.1)"
    projected = ik.Gaussian(0.1, jnp.ones((2, 3)))
    assert repr(projected) == "Gaussian(lengthscale=0.1, projection=f32[2,3])"
    assert repr(jax.eval_shape(lambda: task)) == repr(task)
    texts = []
    jax.jit(jax.vmap(lambda kernel: texts.append(repr(kernel))))(ik.Gaussian(jnp.ones(2)))
    jax.grad(lambda kernel: texts.append(repr(kernel)) or kernel.lengthscale)(ik.Gaussian(1.0))
    assert texts == ["Gaussian(lengthscale=f32[])"] * 2
    assert repr(jax.tree.map(lambda _: None, task)) == "Task(x=None, y=None, x_query=None)"


def test_a_status_shows_what_is_not_usual(run):
    status = run[2].status
    assert repr(status).replace("\n ", "").startswith("Status( ok=True, residual=")
    assert "overflow" not in repr(status)
    assert "overflow=True" in repr(status._replace(overflow=jnp.array(True)))
    assert "overflow=bool[2]" in repr(jax.tree.map(lambda a: jnp.stack([a, a]), status))


def test_everything_fits_on_one_screen(run):
    """What does not is folded, and shows when it is printed alone."""
    for thing in run:
        assert repr(thing).count("\n") <= LINES
        assert "[-" not in repr(thing)
    text = repr(run[1])
    assert "weights=Weights(" in text
    assert "Block(" in text
    assert " numbers)" in text
    assert "spec=Spec(num_features=4, attention='linear')" in text
    assert "problem=Problem(kernel=Linear(), ridge=0.5, sharpness=" in text
    assert " numbers)" not in repr(run[1].weights.steps[0])
    assert repr(run[1].layout).startswith("Layout(\n  x: 4, y: 1, aggregator: 1,")


def test_a_cache_is_a_tree(run):
    task, model, _, everything = run
    _, cache = ik.run_with_cache(model, task, points=("attn", "resid_mid.alpha"))
    lines = repr(cache).splitlines()
    n, tokens = task.num_supports, 1 + task.num_supports + task.num_queries
    assert lines[:2] == ["Cache", f"├── alpha: f32[9,{n}]"]
    at = lines.index("├── blocks.3, 8, ..., 38")
    assert lines[at + 1 : at + 3] == ["│   ├── attn", f"│   │   ├── alpha: f32[{tokens},1]"]
    assert cache["blocks.8.attn.alpha"].shape == (tokens, 1)
    assert "├── blocks.0: attn, heads.0, heads.0.mixed, heads.0.pattern," in repr(everything)
    leaves = []
    jax.jit(lambda cache: leaves.append(repr(cache)))(cache)
    assert leaves == [repr(cache)]
    assert "alpha: 0" in repr(jax.tree.map(lambda _: 0, cache))


def test_treescope_draws_every_object(run):
    for thing in (*run, run[2].status, ik.Gaussian()):
        text = treescope.render_to_text(thing)
        assert text.startswith(type(thing).__name__ + "(")
        assert "<" in treescope.render_to_html(thing)
    assert "'blocks.3, 8, ..., 38': {'attn': " in treescope.render_to_text(run[3])
