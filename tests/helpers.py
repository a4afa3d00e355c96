"""The table of constructions, and tasks to run them on."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import icl_krr as ik


class Case(NamedTuple):
    """A construction, its oracle, and the states they share after every step.

    `oracle` has the name of the construction unless it says otherwise; `needs` gives what both
    must be told of the task beside the ridge, `route` what the construction alone is told, and
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
    needs: Callable = lambda kernel, task, ridge: {}
    route: Callable = lambda kernel, task, ridge: {}
    sketch: Callable | None = None  # kernel, task -> sketch
    sums: bool = False
    ridged: bool = True
    tolerance: float = 1e-9
    rounding: float = 1.0
    tables: bool = False

    def build(self, task, ridge, steps, **options):
        kernel = self.seen(task)
        options = {**self.needs(kernel, task, ridge), **self.route(kernel, task, ridge), **options}
        if self.solver != "nadaraya_watson":
            options["steps"] = steps
            options |= {"ridge": ridge} if self.ridged else {}
        kernel = self.kernel(task)
        if self.sketch is not None:
            options["sketch"] = self.sketch(kernel, task)
        construct = getattr(ik.constructions, self.solver)
        return construct(kernel, **sizes(task), **options)

    def seen(self, task):
        kernel = self.kernel(task)
        return kernel if self.sketch is None else ik.sketched(kernel, self.sketch(kernel, task))

    def oracle(self, task, ridge, steps):
        kernel = self.seen(task)
        if self.solver == "nadaraya_watson":
            smooth = ik.solvers.nadaraya_watson(kernel, task).prediction
            return Smoothed(jnp.stack([0 * smooth, smooth]))
        options = self.needs(kernel, task, ridge) | ({"ridge": ridge} if self.ridged else {})
        return getattr(ik.solvers, self.solver)(kernel, task, steps=steps, **options)

    def exact(self, task, ridge):
        return ik.solvers.exact(self.seen(task), task, ridge=ridge).prediction


class Smoothed(NamedTuple):
    prediction: jax.Array


def sizes(task):
    return {"num_features": task.num_features, "num_outputs": task.num_outputs}


def linear(task):
    return ik.Linear()


def exponential(task):
    """Logits of unit size for standard normal features."""
    return ik.Exponential(temperature=1.5 * task.num_features)


def projected(task):
    """Two directions of the features, or one where there is no more."""
    return ik.Exponential(
        temperature=1.5, projection=jnp.eye(min(2, task.num_features), task.num_features)
    )


def gaussian(task):
    return ik.Gaussian(lengthscale=task.num_features**0.5)


def mixture(task):
    temperature = float(task.num_features)
    kernels = (ik.Exponential(2 * temperature), ik.Gaussian(temperature**0.5))
    return ik.Mixture(kernels, weights=jnp.array([1.0, 0.5]))


def matrix(kernel, task):
    """m = p - 1 channels that carry no basis."""
    p = task.num_features
    return jnp.asarray(np.random.default_rng(5).normal(size=(p, max(1, p - 1))), task.x.dtype)


def positive(kernel, task):
    return ik.sketches.positive_features(
        jax.random.key(5), kernel, num_features=task.num_features, width=5
    )


def trigonometric(kernel, task):
    return ik.sketches.trigonometric_features(
        jax.random.key(5), kernel, num_features=task.num_features, width=6
    )


def landmarks(kernel, task):
    return ik.sketches.nystrom_features(kernel, task.x[: min(3, task.num_supports)])


def spectrum(kernel, task, ridge):
    return {"spectrum": ik.spectral_bounds(kernel, task, ridge=ridge)}


def sink(kernel, task, ridge):
    return {"attention": ik.Softmax(log_sink=ik.theory.log_sink(kernel, task))}


def nystrom(kernel, task, ridge):
    rank = min(2, task.num_supports)
    return {"preconditioner": ik.nystrom(kernel, task.x, ridge=ridge, rank=rank)}


def plus_plus(kernel, task, ridge):
    _, high = ik.spectral_bounds(kernel, task, ridge=ridge)
    return {"step_size": 0.5 / high, "curvature": 0.3 / high}


def emulated(kernel, task, ridge):
    size = jnp.max(jnp.abs(task.x @ task.x.T))
    epsilon = ik.theory.best_epsilon(size, dtype=jnp.result_type(float))
    return {"attention": ik.Softmax(epsilon=epsilon)}


def tables(solver, width, needs=lambda kernel, task, ridge: {}):
    """ReLU tables that cover what the twin of exact arithmetic works on."""

    def route(kernel, task, ridge):
        with jax.ensure_compile_time_eval():
            options = {**needs(kernel, task, ridge), **sink(kernel, task, ridge)}
            twin = getattr(ik.constructions, solver)(
                kernel, ridge=ridge, steps=16, **sizes(task), **options
            )
            bounds = ik.operand_bounds(twin, task, margin=2.0)
        return {"arithmetic": ik.ReLU(width, bounds), "attention": options["attention"]}

    return route


PATH = ("alpha", "r", "p", "prediction")
CG, PCG, GD = "conjugate_gradient", "preconditioned_conjugate_gradient", "gradient_descent"


def form(name):
    return lambda kernel, task, ridge: {"form": name}


# fmt: off
CONSTRUCTIONS = (
    Case("cg", CG, linear, PATH, 5, sums=True),
    Case("cg-fused", CG, linear, PATH, 3, form("fused"), sums=True),
    Case("cg-pipelined", CG, linear, PATH, 2, form("pipelined"), sums=True),
    Case("cg-exponential", CG, exponential, PATH, 7, route=sink, sums=True),
    Case("cg-gaussian-fused", CG, gaussian, PATH, 5, form("fused"), sums=True),
    Case("cg-projected-pipelined", CG, projected, PATH, 4, form("pipelined"), sums=True),
    Case("pcg-jacobi", PCG, linear, PATH, 5, sums=True),
    Case("pcg-nystrom", PCG, linear, PATH, 6, nystrom, sums=True),
    Case("pcg-jacobi-exponential", PCG, exponential, PATH, 8, route=sink, sums=True),
    Case("gd", GD, linear, ("alpha", "r", "prediction"), 1, spectrum),
    Case("gd-exponential", GD, exponential, ("alpha", "r", "prediction"), 1, spectrum),
    Case("gd-emulated", GD, linear, ("alpha", "r", "prediction"), 1, spectrum, emulated,
         tolerance=1e-6, rounding=1e6),
    Case("gd-in-alpha", "gradient_descent_in_alpha", linear, ("alpha", "r", "prediction"), 2,
         spectrum),
    Case("gd-in-alpha-gaussian", "gradient_descent_in_alpha", gaussian,
         ("alpha", "r", "prediction"), 2, spectrum, sink),
    Case("heavy-ball", "heavy_ball", linear, PATH, 1, spectrum),
    Case("heavy-ball-gaussian", "heavy_ball", gaussian, PATH, 1, spectrum),
    Case("chebyshev", "chebyshev", linear, PATH, 1, spectrum),
    Case("chebyshev-exponential", "chebyshev", exponential, PATH, 1, spectrum, sink),
    Case("chebyshev-tables", "chebyshev", exponential, PATH, 1, spectrum,
         tables("chebyshev", 256, spectrum), tolerance=5e-2, tables=True),
    Case("richardson", "richardson", gaussian, ("alpha", "prediction"), 1),
    Case("richardson-exponential", "richardson", exponential, ("alpha", "prediction"), 1,
         route=sink),
    Case("richardson-tables", "richardson", gaussian, ("alpha", "prediction"), 1,
         route=tables("richardson", 256), tolerance=5e-2, tables=True),
    Case("newton-schulz", "newton_schulz", linear, ("alpha", "prediction"), 2, spectrum),
    Case("gd++", "gradient_descent_plus_plus", linear, ("r", "prediction"), 1, plus_plus,
         ridged=False),
    Case("cg-sketched", CG, linear, PATH, 5, sketch=matrix, sums=True),
    Case("cg-positive-features", CG, exponential, PATH, 5, sketch=positive, sums=True),
    Case("chebyshev-landmarks", "chebyshev", gaussian, PATH, 1, spectrum, sketch=landmarks),
    Case("newton-schulz-features", "newton_schulz", exponential, ("alpha", "prediction"), 2,
         spectrum, sketch=trigonometric),
    Case("cg-mixture", CG, mixture, PATH, 7, route=sink, sums=True),
    Case("nadaraya-watson-mixture", "nadaraya_watson", mixture, ("prediction",), 1),
    Case("nadaraya-watson", "nadaraya_watson", exponential, ("prediction",), 1),
    Case("nadaraya-watson-gaussian", "nadaraya_watson", gaussian, ("prediction",), 1),
)
# fmt: on
CASES = {case.name: case for case in CONSTRUCTIONS}
every_case = pytest.mark.parametrize("case", CONSTRUCTIONS, ids=lambda case: case.name)
# between them, every verb, attention and arithmetic: the others are these with other coefficients
KINDS = (
    "cg",
    "cg-pipelined",
    "cg-exponential",
    "gd-emulated",
    "richardson",
    "newton-schulz-features",
    "nadaraya-watson-gaussian",
)


def parametrize(names):
    return pytest.mark.parametrize("case", [CASES[name] for name in names], ids=names)


each_kind = parametrize(KINDS)
a_few = parametrize(("cg", "richardson", "nadaraya-watson-gaussian"))
each_kind_and_more = parametrize((*KINDS, "pcg-jacobi-exponential", "richardson-tables"))
EXPONENTIAL = ik.Exponential(temperature=1.5)


def cg(task, ridge, steps, **options):
    return CASES["cg"].build(task, ridge, steps, **options)


def cg_oracle(task, ridge, steps):
    return CASES["cg"].oracle(task, ridge, steps)


def gd(task, ridge, steps, **options):
    return CASES["gd"].build(task, ridge, steps, **options)


def nw(task, ridge, steps, **options):
    return ik.constructions.nadaraya_watson(EXPONENTIAL, **sizes(task), **options)


def train(model, loss, rate, steps):
    """Adam on all weights; the losses on the way, and the model at the end."""
    optimiser = optax.adam(rate)

    @jax.jit
    def update(model, state):
        value, gradient = jax.value_and_grad(loss)(model)
        updates, state = optimiser.update(gradient, state)
        return optax.apply_updates(model, updates), state, value

    state, losses = optimiser.init(model), []
    for _ in range(steps):
        model, state, value = update(model, state)
        losses.append(float(value))
    return losses, model


def draw(seed, p=4, n=7, q=3, r=None, noise=0.1):
    config = ik.tasks.LinearRegression(
        num_features=p, num_supports=n, num_queries=q, num_outputs=r, noise=noise
    )
    return ik.tasks.sample(jax.random.key(seed), config)


def numpy_exact(x, y, x_query, ridge):
    """Kernel ridge regression on the linear kernel, written once more in NumPy."""
    x, y, x_query = (np.asarray(a, np.float64) for a in (x, y, x_query))
    return x_query @ x.T @ np.linalg.solve(x @ x.T + ridge * np.eye(len(x)), y)


def relative(a, b):
    """The largest error of a against b, relative to the largest entry of b."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    assert a.shape == b.shape
    scale = np.max(np.abs(b))
    return np.max(np.abs(a - b)) / (scale if scale > 0 else 1)
