"""The table of constructions, and tasks to run them on."""

import shlex
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from types import SimpleNamespace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

import icl_krr as ik
from icl_krr.catalogue import SOLVERS
from icl_krr.tabular import _model_selection, leave_one_out_errors, solver_keywords
from icl_krr.tabular._held_out import squared


def nothing(kernel, task, ridge):
    return {}


class Case(NamedTuple):
    """A construction, its oracle, and the states they share after every step.

    `solver` is its name in the catalogue; `needs` gives what construction and oracle must be told
    of the task beside the ridge, `route` what the construction alone is told, and
    `sketch` what its channels carry in place of x: the oracle is given the kernel of that.
    `sums` says whether the solver has inner products, whose rounding grows from step to step,
    `tolerance` how far the arithmetic is from exact, `rounding` how much more than others it
    rounds, `tables` whether it is that of ReLU tables.
    """

    name: str
    solver: str
    kernel: Callable  # task -> Kernel
    states: tuple[str, ...]
    blocks_per_step: int
    needs: Callable = nothing
    route: Callable = nothing
    sketch: Callable | None = None  # kernel, task -> sketch
    sums: bool = False
    ridged: bool = True
    tolerance: float = 1e-9
    rounding: float = 1.0
    tables: bool = False

    @property
    def row(self):
        return SOLVERS[self.solver]

    def options(self, task, ridge, steps):
        """What the construction is told beside the kernel."""
        kernel = self.sketched_kernel(task)
        options = {**sizes(task), **self.needs(kernel, task, ridge)}
        options |= self.route(kernel, task, ridge)
        if self.row.iterates:
            options["steps"] = steps
            options |= {"ridge": ridge} if self.ridged else {}
        if self.sketch is not None:
            options["sketch"] = self.sketch(self.kernel(task), task)
        return options

    def build(self, task, ridge, steps, **options):
        kwargs = self.options(task, ridge, steps) | options
        return ik.constructions.lookup(self.row)(self.kernel(task), **kwargs)

    def sketched_kernel(self, task):
        kernel = self.kernel(task)
        return kernel if self.sketch is None else ik.sketched(kernel, self.sketch(kernel, task))

    def oracle(self, task, ridge, steps):
        path = numpy(self.oracle_of(task, ridge, steps))
        if self.row.iterates:
            return path
        return SimpleNamespace(prediction=np.stack([0 * path.prediction, path.prediction]))

    def oracle_of(self, task, ridge, steps):
        """Its result, also inside of a transformation."""
        kernel, solver = self.sketched_kernel(task), ik.solvers.lookup(self.row)
        if not self.row.iterates:
            return solve(solver, kernel, task)
        options = self.needs(kernel, task, ridge) | ({"ridge": ridge} if self.ridged else {})
        return solve(solver, kernel, task, steps=steps, **options)

    def exact(self, task, ridge):
        return ik.solvers.exact(self.sketched_kernel(task), task, ridge=ridge).prediction


def solve(solver, kernel, task, **options):
    """The result of a solver without its status, which is half of the program."""
    words = {k: v for k, v in options.items() if isinstance(v, str | int)}
    numbers = {k: v for k, v in options.items() if k not in words}
    return iterates(solver, tuple(words.items()), kernel, task, numbers)


@partial(jax.jit, static_argnums=(0, 1))
def iterates(solver, words, kernel, task, numbers):
    result = solver(kernel, task, **dict(words), **numbers)
    return result.replace(status=None) if hasattr(result, "status") else result


def sizes(task):
    return {"num_features": task.num_features, "num_outputs": task.num_outputs}


def linear(task):
    return ik.Linear()


def exponential(task):
    """Logits of unit size for standard normal features."""
    return ik.Exponential(temperature=1.5 * task.num_features)


def projected(task):
    """Two directions of the features, or one where there is no more."""
    return ik.Exponential(1.5, projection=np.eye(min(2, task.num_features), task.num_features))


def gaussian(task):
    return ik.Gaussian(lengthscale=task.num_features**0.5)


def mixture(task):
    temperature = float(task.num_features)
    kernels = (ik.Exponential(2 * temperature), ik.Gaussian(temperature**0.5))
    return ik.Mixture(kernels, weights=np.array([1.0, 0.5]))


def matrix(kernel, task):
    """m = p - 1 channels that carry no basis."""
    p = task.num_features
    return np.random.default_rng(5).normal(size=(p, max(1, p - 1))).astype(task.x.dtype)


def random_features(kind, width):
    def sketch(kernel, task):
        options = {"num_features": task.num_features, "width": width}
        return getattr(ik.sketches, kind)(jax.random.key(5), kernel, **options)

    return sketch


positive = random_features("positive_features", 5)
trigonometric = random_features("trigonometric_features", 6)


def landmarks(kernel, task):
    return ik.sketches.nystrom_features(kernel, task.x[: min(3, task.num_supports)])


def spectrum(kernel, task, ridge):
    return {"spectrum": spectral_bounds(kernel, task, ridge=ridge)}


def sink(kernel, task, ridge):
    return {"attention": ik.Softmax(log_sink=log_sink(kernel, task))}


def emulated(kernel, task, ridge):
    size = abs(task.x @ task.x.T).max()
    epsilon = ik.theory.best_epsilon(size, dtype=jnp.result_type(float))
    return {"attention": ik.Softmax(epsilon=epsilon)}


def tables(solver, width, needs=nothing):
    """ReLU tables that cover what the twin of exact arithmetic works on."""

    def route(kernel, task, ridge):
        with jax.ensure_compile_time_eval():
            options = sizes(task) | needs(kernel, task, ridge) | sink(kernel, task, ridge)
            twin = getattr(ik.constructions, solver)(kernel, ridge=ridge, steps=16, **options)
            bounds = operand_bounds(twin, task, margin=2.0)
        return {"arithmetic": ik.ReLU(width, bounds), "attention": options["attention"]}

    return route


def from_row(solver, kernel, attention, name="", **changes):
    """A case whose needs, states, blocks and sums are those of the solver's row."""
    row = SOLVERS[solver]
    label, suffix = row.label.lower(), "" if kernel is linear else f"-{kernel.__name__}"
    options = {"needs": partial(needs_of, row), "sums": row.sums}
    options |= {"ridged": "ridge" in row.required_inputs} | changes
    return Case(
        name or label + suffix, solver, kernel, row.states, row.blocks[attention], **options
    )


def needs_of(row, kernel, task, ridge):
    keywords = solver_keywords(row, kernel, task, ridge)
    if "curvature" in keywords:  # half a step, so that more than one is seen before it is done
        keywords["step_size"] = keywords["step_size"] / 2
    return {name: value for name, value in keywords.items() if name != "ridge"}


ON_GAUSSIAN = ("gradient_descent_in_alpha", "heavy_ball", "fused_conjugate_gradient",
               "richardson", "nadaraya_watson")  # fmt: skip


def of_every_row():
    """Each solver of the catalogue by each kind of attention that it runs on."""
    for name, row in SOLVERS.items():
        for attention in row.blocks:
            if attention == "linear":
                yield from_row(name, linear, attention)
            else:
                narrow = name in ON_GAUSSIAN or row.kernels == "bounded"
                kernel = gaussian if narrow else exponential
                yield from_row(name, kernel, attention, route=sink if row.iterates else nothing)


CG, GD, CHE, RIC = "conjugate_gradient", "gradient_descent", "chebyshev", "richardson"
# fmt: off
CONSTRUCTIONS = (
    *of_every_row(),
    from_row("fused_conjugate_gradient", exponential, "softmax"),
    from_row("pipelined_conjugate_gradient", projected, "softmax"),
    from_row(RIC, exponential, "softmax", route=sink),
    from_row(GD, linear, "softmax", "gd-emulated", route=emulated, tolerance=1e-6, rounding=1e6),
    from_row(CHE, exponential, "softmax", "che-tables", route=tables(CHE, 256, spectrum),
             tolerance=5e-2, tables=True),
    from_row(RIC, gaussian, "softmax", "ric-tables", route=tables(RIC, 256), tolerance=5e-2,
             tables=True),
    from_row(CG, linear, "linear", "cg-sketched", sketch=matrix),
    from_row(CG, exponential, "linear", "cg-positive-features", sketch=positive),
    from_row(CHE, gaussian, "linear", "che-landmarks", sketch=landmarks),
    from_row("newton_schulz", exponential, "linear", "ns-features", sketch=trigonometric),
    from_row(CG, mixture, "softmax", route=sink),
    from_row("nadaraya_watson", mixture, "softmax"),
)
# fmt: on
CASES = {case.name: case for case in CONSTRUCTIONS}
# between them, every verb, attention and arithmetic: the others are these with other coefficients
KINDS = "cg", "picg", "cg-exponential", "gd-emulated", "ric-gaussian", "ns-features", "nw-gaussian"


def parametrize(names, quick=CASES):
    """Cases, of which those that are not quick are run once a day."""
    marks = {name: [pytest.mark.slow] * (name not in quick) for name in names}
    cases = [pytest.param(CASES[name], id=name, marks=marks[name]) for name in names]
    return pytest.mark.parametrize("case", cases)


def often(names, often, cases):
    """All cases, of which those that are not among `often` are run once a day."""
    params = []
    for case in cases:
        values = case if isinstance(case, tuple) else (case,)
        params.append(pytest.param(*values, marks=[pytest.mark.slow] * (case not in often)))
    return pytest.mark.parametrize(names, params)


EXPONENTIAL = ik.Exponential(temperature=1.5)


SPECS = {
    "encoder": {},
    "gpt2": {"causal": True, "tokens": "interleaved", "max_tokens": 16},
    "causal": {"causal": True, "max_tokens": 9},
    "looped": {"tied": True},
    "attention-only": {"hidden": 0},
    "linear": {"attention": "linear", "layer_norm": False, "activation": "relu"},
    "bilinear": {"activation": "identity", "num_outputs": 3, "hidden": 5},
}
"""Options of an `ik.Architecture` of each kind."""


def moved(model):
    """Biases, norms and positions start at 0 or 1: move them, so that they matter."""
    leaves, tree = jax.tree.flatten(model)
    rng = np.random.default_rng(0)
    return tree.unflatten([np.asarray(w) + 0.1 * rng.normal(size=w.shape) for w in leaves])


def of_random_weights(**options):
    """A model of this `ik.Architecture`; nothing is compiled, and no weight is 0 or 1."""
    model = jax.eval_shape(lambda: ik.init(jax.random.key(0), ik.Architecture(**options)))
    rng = np.random.default_rng(0)
    return jax.tree.map(lambda w: 0.5 * rng.normal(size=w.shape).astype(w.dtype), model)


def in_tiles(model, streaming=True):
    return model.replace(spec=replace(model.spec, streaming=streaming))


def built(kernel, steps, solver="conjugate_gradient", **options):
    build = getattr(ik.constructions, solver)
    return build(kernel, num_features=4, ridge=0.5, steps=steps, **options)


def cg(task, ridge, steps, **options):
    return CASES["cg"].build(task, ridge, steps, **options)


# one program for each shape, not one for each operation
sample, dense, operand_bounds, log_sink, spectral_bounds = map(
    jax.jit, (ik.tasks.sample, ik.dense, ik.operand_bounds, ik.theory.log_sink, ik.spectral_bounds)
)


def draw(seed, p=4, n=7, q=3, r=None, noise=0.1):
    """Linear regression with noise, in NumPy and drawn once: it compiles nothing."""
    return drawn(seed, p, n, q, r, noise, jax.config.jax_enable_x64)


@cache
def drawn(seed, p, n, q, r, noise, x64):
    rng = np.random.default_rng(seed)
    x, w = rng.normal(size=(n + q, p)), rng.normal(size=(p, r or 1)) / p**0.5
    f = x @ w
    y = f[:n] + noise**0.5 * rng.normal(size=(n, r or 1))
    parts = x[:n], y, x[n:], f[n:]
    if r is None:
        parts = x[:n], y[:, 0], x[n:], f[n:, 0]
    x, y, x_query, y_query = (part.astype(float if x64 else np.float32) for part in parts)
    return numpy(ik.Task(x=x, y=y, x_query=x_query, y_query=y_query))


def numpy(tree):
    return jax.tree.map(np.asarray, tree)


apply = jax.jit(lambda kernel, x, z: kernel(x, z))


def kernel_matrix(kernel, x, z):
    """k(x, z) by one program for each kind of kernel and shape."""
    return np.asarray(apply(kernel, x, z))


def stacked(*tasks):
    return jax.tree.map(lambda *leaves: np.stack(leaves), *tasks)


def one(tasks, i):
    """The task i of a batch, in NumPy."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[i], tasks)


def ridge_grid(kernel, task):
    """13 ridges from 1e-3 to 1e3 times tr K / n, the grid before it grows."""
    return float(_model_selection.sizes(kernel, task)[0]) * np.logspace(-3, 3, 13)


def left_out_losses(kernel, task, grid, centred=False):
    """Squared leave-one-out errors of regression at every ridge."""
    return squared(np.asarray(leave_one_out_errors(kernel, task, np.asarray(grid), centred)))


def numpy_exact(x, y, x_query, ridge):
    """Kernel ridge regression on the linear kernel, written once more in NumPy."""
    x, y, x_query = (np.asarray(a, np.float64) for a in (x, y, x_query))
    return x_query @ x.T @ np.linalg.solve(x @ x.T + ridge * np.eye(len(x)), y)


TRAIN = shlex.split("""train
    --task.num-features 2 --task.num-supports 6 --task.num-queries 2
    --model.width 8 --model.depth 1 --model.heads 1
    --training.steps 12 --training.batch 5 --training.log-every 4
    --training.validation 7 --training.warmup 4 --out
""")
"""A short run of `icl-krr train`, as arguments that its folder follows."""


def with_one_bit_flipped(path, flips, start=0, end=None):
    """Write the file anew so many times, each time as it was but for a bit between two bytes."""
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    for bit in rng.integers(8 * start, 8 * (end or len(whole)), flips):
        harmed = bytearray(whole)
        harmed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(harmed)
        yield bit


def cut_off(figure):
    """Labels, titles and legends that are not whole within the figure."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    parts = [*figure.legends, *figure.texts]
    for axis in figure.axes:
        parts += [axis.title, axis.xaxis.label, axis.yaxis.label]
    boxes, whole = [part.get_window_extent(canvas.get_renderer()) for part in parts], figure.bbox
    return [
        part
        for part, box in zip(parts, boxes, strict=True)
        if box.width and (np.any(box.min < whole.min - 1) or np.any(box.max > whole.max + 1))
    ]


def relative(a, b):
    """The largest error of a against b, relative to the largest entry of b."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    assert a.shape == b.shape
    scale = np.max(np.abs(b))
    return np.max(np.abs(a - b)) / (scale if scale > 0 else 1)


def equations(jaxpr, name=None):
    """All equations of a program, or those with this primitive, outer ones first."""
    for equation in jaxpr.eqns:
        if name in (None, equation.primitive.name):
            yield equation
        for inner in jax.tree.leaves(list(equation.params.values())):
            inner = getattr(inner, "jaxpr", inner)
            if hasattr(inner, "eqns"):
                yield from equations(inner, name)
