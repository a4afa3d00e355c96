"""Bad input: one sentence that names it, the rule and the remedy, before anything is compiled.

A row of a kind of bad input has the start of the sentence and the call.
"""

from functools import cache

import jax
import numpy as np
import pytest

import icl_krr as ik
from icl_krr import constructions as build, probes, residual, sketches, solvers, theory
from icl_krr.experiments import ExplorerConfig, SweepConfig
from icl_krr.tabular import DepthConfig

X = np.linspace(-1, 1, 10, dtype="f4").reshape(5, 2)
Y, Q, KEY = X[:, 0], X[:3], np.zeros(2, "u4")
TASK = ik.Task(x=X, y=Y, x_query=Q)
HALF = jax.tree.map(lambda leaf: np.asarray(leaf, "f2"), TASK)
NARROW = ik.Task(x=X[:, :1], y=Y, x_query=Q[:, :1])
BATCH = ik.Task(*(np.stack([part] * 4) for part in (X, Y, Q)))
NAN, LINEAR, GAUSSIAN = np.where(X > 0.9, np.nan, X), ik.Linear(), ik.Gaussian()
PROCESS = ik.tasks.GaussianProcess(GAUSSIAN, num_supports=5)
LAYOUT = residual.Layout(SLOTS := (residual.Slot("p", 2), residual.Slot("flag", 1)))
READ, FLAG = LAYOUT.read("p"), LAYOUT.read("flag")
NORMAL = ik.Predictive(*(np.full((3, 1), value, "f4") for value in (1, 0, 1)))
CG, DELTA = {"num_features": 2, "ridge": 0.1, "steps": 2}, {"num_features": 2, "step_size": 0.1}


class Frame(np.ndarray):
    """What a table of pandas has, with columns of text."""

    columns, iloc = ("city", "day"), property(np.asarray)


FRAME = np.array([["Oslo", "Monday"]]).view(Frame)


@cache
def model(norm=None):
    """A construction, or a model with random weights; without values, which take time."""
    if norm is None:
        return jax.eval_shape(lambda: build.conjugate_gradient(LINEAR, **CG))
    architecture = ik.Architecture(num_features=2, width=8, depth=1, heads=1, layer_norm=norm)
    return jax.eval_shape(lambda: ik.init(jax.random.wrap_key_data(KEY), architecture))


KINDS = {
    "not a number": {
        "lengthscale must be a number": lambda: ik.Gaussian("a"),
        "ridge must be a number": lambda: solvers.exact(LINEAR, TASK, ridge=[0.1, 0.2]),
        "steps must be an integer": lambda: build.conjugate_gradient(LINEAR, **CG | {"steps": 2.0}),
        r"width of x must be an integer, got 1\.5": lambda: residual.Slot("x", 1.5),
        "seed must be an integer": lambda: SweepConfig("depth", seed="a"),
        "noise must be a number": lambda: ik.tasks.GaussianProcess(GAUSSIAN, noise=None),
        "low of spectrum must be a number": lambda: theory.chebyshev_rate("1", 2.0, 2),
        "symmetric must be True or False": lambda: ik.Softmax(symmetric="yes"),
        "level must be a number": lambda: ik.uncertainty.coverage(NORMAL, Y[:3], level=None),
        "parameters must be a number": lambda: ik.training.adapt(len, {"a": "b"}),
    },
    "out of range": {
        "weights must be > 0, got -1.0 at": lambda: ik.Mixture((GAUSSIAN, GAUSSIAN), weights=X[0]),
        "ridge must be > 0": lambda: build.conjugate_gradient(LINEAR, **CG | {"ridge": 0.0}),
        "temperature must be in the range of float32": lambda: ik.Exponential(1e39),
        "steps must be >= 1": lambda: solvers.richardson(GAUSSIAN, TASK, ridge=0.1, steps=0),
        "log_gate must be <= 0": lambda: build.delta_rule(LINEAR, **DELTA, log_gate=0.5),
        "squash must be > 1": lambda: build.preconditioned_delta_rule(LINEAR, **DELTA, squash=1.0),
        "width must be <= p = 2 features": lambda: sketches.best(X, 3),
        "width must be even": lambda: ik.ReLU(3),
        "gap must be >= 0 and finite": lambda: theory.subspace_sine(-1.0, 0.1),
        "probability must be > 0 and < 1": lambda: ik.uncertainty.quantile(NORMAL, 0.0),
        "spectrum must be .* with low <= high": lambda: theory.heavy_ball_rate(2.0, 1.0, 2),
        "width must be <= num_supports = 24, got 99": lambda: ExplorerConfig(widths=(99,)),
        "temperature must be > 0": lambda: ExplorerConfig(temperatures=(0.0,)),
        "values must be <= steps = 4, got 9": lambda: SweepConfig("depth", steps=4, values=(9,)),
        "values must be > 0, got -1.0": lambda: SweepConfig("ridge", values=(-1.0,)),
        "values must be <= num_features = 32": lambda: SweepConfig("width", values=(99,)),
        "values must be <= num_supports = 64, got 99": lambda: SweepConfig(
            "width", values=(99,), kernel="exponential"
        ),
        "values must be <= num_supports = 64": lambda: SweepConfig("context", values=(65,)),
        "values must be even, got 3; use 4": lambda: SweepConfig("arithmetic", values=(3,)),
        "values must be >= 1/80, because": lambda: SweepConfig("temperature", values=(1e-6,)),
        "temperature must be >= 1/80, because exp": lambda: SweepConfig("ridge", temperature=0.001),
        "values must be even, because": lambda: SweepConfig("features", values=(7,)),
        "bound of alpha must be > 0": lambda: ik.ReLU(8, {"alpha": 0.0}),
        "chunk must be >= 1": lambda: ik.predict_batch(model(), BATCH, chunk=0),
        "dtype must not be wider than": lambda: build.delta_rule(LINEAR, **DELTA, dtype="float64"),
        "ridge must be in the range of float32": lambda: solvers.exact(LINEAR, TASK, ridge=1e-60),
        "width of x must be >= 1, got 0": lambda: residual.Slot("x", 0),
    },
    "not finite": {
        "y must be finite, got -inf at index .0.": lambda: ik.Task(x=X, y=Y - np.inf, x_query=Q),
        "x_query must be finite, got nan at": lambda: ik.Task(x=X, y=Y, x_query=NAN),
        "x must be finite, got nan at index .4, 1.; remove": lambda: ik.Task(x=NAN, y=Y, x_query=Q),
        "projection must be finite": lambda: ik.Gaussian(projection=NAN),
        "x must be finite": lambda: sketches.best(NAN, 1),
        "log_sink must be finite": lambda: ik.Softmax(log_sink=np.inf),
        "means must be finite": lambda: ik.uncertainty.cdf(
            NORMAL._replace(means=NAN[2:, 1:]), Y[:3]
        ),
        "cost must be finite": lambda: probes.align(NAN),
    },
    "wrong dtype": {
        "x must be floating point": lambda: ik.Gaussian()(X.astype("i4"), X),
        "x must be an array of real numbers": lambda: ik.Task(x=X.astype(complex), y=Y, x_query=Q),
        "x must be an array of numbers": lambda: ik.Task(x=[[1.0, None]], y=Y, x_query=Q),
        "x must be an array": lambda: ik.nystrom(LINEAR, X.tolist(), ridge=0.1, rank=2),
        "y must have the dtype of x": lambda: ik.Task(x=X, y=HALF.y, x_query=Q),
        "x must be float32 or float64, got float16": lambda: solvers.exact(LINEAR, HALF, ridge=0.1),
        "dtype must be floating point": lambda: theory.best_epsilon(1.0, dtype="int32"),
        "dtype must be a floating dtype": lambda: build.delta_rule(LINEAR, **DELTA, dtype="f33"),
        "key must be a random key": lambda: ik.tasks.sample(0, PROCESS),
        "layer_predictions must be an array": lambda: probes.identify_arrays(BATCH, [1], None),
    },
    "wrong shape": {
        "x must be .n, p., got shape .2.; use jax.vmap": lambda: LINEAR(X[0], X),
        "x must be .n, p., got shape": lambda: ik.Task(x=Y, y=Y, x_query=Q),
        "mask must be .*, got float32": lambda: ik.Task(x=X, y=Y, x_query=Q, mask=Y),
        "x_query must be .* got shape .5.": lambda: ik.Task(x=X, y=Y, x_query=Y),
        "x must have at least one support": lambda: ik.Task(x=X[:0], y=Y[:0], x_query=Q),
        "y must have at least one output": lambda: ik.Task(x=X, y=X[:, :0], x_query=Q),
        "ridge must be a scalar": lambda: solvers.exact(LINEAR, TASK, ridge=X[0]),
        "task must be one task": lambda: ik.predict(model(), BATCH),
        "task must be a batch": lambda: ik.predict_batch(model(), TASK),
        "matrix must be .n, n. with n = 5 on both axes": lambda: theory.energy_norm(X, Y),
        "mask must be a bool array": lambda: ik.Task(x=X, y=Y, x_query=Q, mask=np.ones(4, bool)),
        "edges must be a vector": lambda: ik.uncertainty.bins(NORMAL, Y[:0]),
    },
    "widths that do not fit": {
        "y must be .* with n = 5 to match x": lambda: ik.Task(x=X, y=Y[:3], x_query=Q),
        "x_query must be .q, p. with p = 2": lambda: ik.Task(x=X, y=Y, x_query=Q[:, :1]),
        "y_query must have shape .3.": lambda: ik.Task(x=X, y=Y, x_query=Q, y_query=Y),
        "spectrum must hold num_features = 8": lambda: ik.tasks.LinearRegression(spectrum=Y + 2),
        "z must have p = 2 features to match x": lambda: LINEAR(X, X[:, :1]),
        "x must be .* its rows must have the same length": lambda: ik.Task([[1.0], []], Y, Q),
        "task must have num_features = 2 to fit the model": lambda: ik.predict(model(), NARROW),
        "width must be a multiple of heads": lambda: ik.Architecture(2, width=6, heads=4),
        "tasks must differ in n only": lambda: ik.tasks.batch([TASK, NARROW]),
        "hats must be .b, L, q, n., got shape": lambda: probes.spectral_filter(LINEAR, BATCH, X),
        "reads must have the same width to be added, got 2 for p and 1": lambda: READ + FLAG,
        r"matrix must be \[2, out\]": lambda: READ @ np.eye(3),
        "scale must be a scalar or a vector": lambda: READ * np.ones(3),
        "width of p must be 2": lambda: READ.matrix("p", 3),
        "slot x must have width 1": lambda: residual.Read({"x": X[:1]}, 2)({"x": X}),
    },
    "unknown name": {
        "keyword of exact .* did you mean 'ridge'": lambda: solvers.exact(LINEAR, TASK, lam=0.1),
        "keyword of Gaussian .* did you mean": lambda: ik.Gaussian(gamma=0.1),
        "keyword of .* got 'depth'": lambda: build.conjugate_gradient(LINEAR, **CG, depth=3),
        "form must be one of": lambda: build.conjugate_gradient(LINEAR, **CG, form="fast"),
        "inputs must be one of": lambda: ik.tasks.GaussianProcess(GAUSSIAN, inputs="cube"),
        "slot must be one of": lambda: ik.run_with_cache(model(), TASK, names=("delta",)),
        "slot must be one of 'p', 'flag', got 'z'": lambda: LAYOUT.read("z"),
        "role must be one of": lambda: residual.Slot("x", 1, at=("nobody",)),
        "kind must be one of .*got 'other'": lambda: residual.Slot("x", 1, kind="other"),
        "name must consist of letters": lambda: residual.Slot("a b", 1),
        "slots must have different names, got 'p' twice": lambda: residual.Layout(SLOTS + SLOTS),
        "kind must be one of": lambda: probes.sites(model(), ("neuron",)),
        "kernel must be positive for": lambda: build.nadaraya_watson(LINEAR, num_features=2),
        "kernel must be .*Features.* to be applied by linear": lambda: build.conjugate_gradient(
            GAUSSIAN, **CG, attention="linear"
        ),
        "kernel must be one of": lambda: ik.kernels.kernel_class("cubic"),
        "axis must be one of": lambda: SweepConfig("length"),
        "line on the exponential kernel must be": lambda: SweepConfig("depth", lines=("newton",)),
        "kernel along the width must be": lambda: SweepConfig("width", kernel="gaussian"),
        "values must be one of": lambda: SweepConfig("precision", values=("float8",)),
        "solver must be one of": lambda: DepthConfig(solver="newton"),
    },
    "wrong type": {
        "kernel must be .* write icl_krr.Gaussian": lambda: ik.tasks.GaussianProcess("rbf"),
        r"task must be .*; write icl_krr.Task\(x=..., y=": lambda: ik.predict(model(), (X, Y, Q)),
        "task must be an icl_krr.Task, got .* icl_krr.tasks.batch": lambda: solvers.exact(
            LINEAR, [TASK, TASK], ridge=0.1
        ),
        "model must be .*GPT2Model.*identify_arrays": lambda: ik.export.from_gpt2(len, None, None),
        "x must be an .*, got columns 'city', 'day';": lambda: ik.Task(FRAME, Y[:1], Q),
        "model must be an icl_krr.Transformer": lambda: ik.predict(None, TASK),
        "spectrum must be a pair": lambda: build.gradient_descent(LINEAR, **CG, spectrum=3.0),
        "names must be a tuple of names": lambda: ik.run_with_cache(model(), TASK, names="alpha"),
        "predictive must be": lambda: ik.uncertainty.log_density((Y, Y, Y), Y),
        "layer_predictions must be a function": lambda: probes.identify(None, BATCH, BATCH),
        "kernel must be positive": lambda: solvers.nadaraya_watson(LINEAR, TASK),
        "path must be a path, got NoneType": lambda: ik.export.save(None, model(False)),
        "path must be a path": lambda: ik.tasks.read_table(None, "y"),
        "slots must be a tuple of slots": lambda: ik.Layout("abc"),
        "config must be a sampler": lambda: ik.tasks.sample(KEY, {}),
        "settings must be": lambda: ik.training.check(model(True), PROCESS, {}),
    },
    "missing argument": {
        "spectrum must be given": lambda: solvers.chebyshev(LINEAR, TASK, ridge=0.1, steps=2),
        "exactly one of step_size and spectrum": lambda: solvers.gradient_descent(
            LINEAR, TASK, ridge=0.1, steps=2
        ),
        "bound must have an entry for slot '": lambda: build.richardson(
            GAUSSIAN, **CG, arithmetic=ik.ReLU(8, {"y": 1.0})
        ),
        "sketch must be given": lambda: build.conjugate_gradient(LINEAR, **CG, width=1),
        "targets must be given": lambda: probes.fit_probe(model(True), BATCH),
        "kernel must need no more than a bandwidth": lambda: ik.Mixture.of_bandwidth(1.0),
    },
    "option without effect": {
        "causal must be True if inclusive": lambda: ik.Spec(num_features=2, inclusive=True),
        "keyword of bayesian_average must be one of": lambda: build.bayesian_average(
            LINEAR, num_features=2, ridges=np.ones(2), steps=2, window=3
        ),
        "erase must be None": lambda: build.delta_rule(GAUSSIAN, **DELTA, erase=np.eye(2)),
        "stream_j.* must not be given": lambda: probes.identify_arrays(BATCH, stream_jacobians=X),
        "model must be causal to predict along": lambda: ik.predict_along(model(), TASK),
        "model must have no LayerNorm": lambda: probes.linear_maps(model(True)),
    },
}
ERRORS = dict.fromkeys(("not a number", "wrong dtype", "wrong type"), TypeError)
ERRORS |= dict.fromkeys(("out of range", "not finite", "wrong shape"), ValueError)


@pytest.mark.parametrize("kind", KINDS)
def test_bad_input_is_refused_by_one_sentence(kind):
    """By a check of this package, and not by what it calls."""
    for start, call in KINDS[kind].items():
        with pytest.raises(ERRORS.get(kind, (TypeError, ValueError)), match=f"^{start}") as caught:
            call()
        said, last = str(caught.value), caught.traceback[-1]
        assert "\n" not in said
        assert "icl_krr" in str(last.path), start
        assert str(last.statement).lstrip().startswith("raise "), f"{start}: {last}"


def test_nothing_is_compiled_before_the_error(programs):
    """Not even what other tests have compiled already."""
    model(), model(True), model(False)
    jax.clear_caches()
    programs.clear()
    for calls in KINDS.values():
        for call in calls.values():
            with pytest.raises((TypeError, ValueError)):
                call()
    assert programs == []


def test_the_smallest_even_width_is_taken():
    assert ik.ReLU(2).width == 2
