"""A kernel is one class: it is defined here, and everything takes it after one registration."""

import dataclasses
import subprocess
import sys
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import dense, draw, kernel_matrix, numpy, often, relative, sample

import icl_krr as ik
from icl_krr import catalogue
from icl_krr._core.pytree import pytree_dataclass
from icl_krr.catalogue import SOLVERS, taken
from icl_krr.experiments import SweepConfig, run as run_study
from icl_krr.experiments._sweep.grid import last, study as sweep
from icl_krr.kernels import LogBilinear, Matern, PositiveKernel
from icl_krr.tabular import DepthConfig, build, run


@pytree_dataclass
class Tilted(LogBilinear):
    """exp(c <Ux, Uz> - d (|Ux|^2 + |Uz|^2) / 2) with c and d of its own."""

    inner: Any = 0.3
    norm: Any = 0.2
    projection: Any = None

    def coefficients(self, dtype):
        return jnp.asarray(self.inner, dtype), jnp.asarray(self.norm, dtype)


@pytest.fixture
def registered():
    row = catalogue.KernelEntry("tilted", "positive", kernel=Tilted)
    catalogue.register(row)
    yield row
    del catalogue.KERNELS["tilted"]


def gram(kernel, x, z):
    norms = (x**2).sum(1)[:, None] + (z**2).sum(1)[None]
    return np.exp(kernel.inner * x @ z.T - kernel.norm * norms / 2)


@pytest.mark.parametrize(
    ("kernel", "c", "d"),
    [(ik.Exponential(0.5), 2.0, 0.0), (ik.Gaussian(2.0), 0.25, 0.25), (Tilted(0.7, 0.4), 0.7, 0.4)],
)
def test_the_form_of_a_kernel_is_the_kernel(x64, kernel, c, d):
    """Exponential and Gaussian evaluate themselves: their coefficients must say the same."""
    x, z = np.random.default_rng(0).normal(size=(2, 5, 3))
    form = Tilted(c, d)
    expected = gram(form, x, z)
    assert relative(kernel_matrix(kernel, x, z), expected) < 1e-12
    assert relative(jax.jit(kernel.diagonal)(x), np.diag(gram(form, x, x))) < 1e-12
    P = np.random.default_rng(1).normal(size=(3, 2))
    assert relative(kernel_matrix(kernel.sketched(P), x, z), gram(form, x @ P, z @ P)) < 1e-12
    log = jax.jit(lambda kernel: LogBilinear.log(kernel, x, z))(kernel)
    assert relative(log, np.log(expected)) < 1e-12
    (pattern,) = kernel.patterns(x.dtype)
    assert (float(pattern.inner), float(pattern.norm or 0)) == pytest.approx((c, d))


@pytest.mark.parametrize(
    "kernel",
    [
        *(Tilted(0.7, 0.4), ik.Linear(), ik.Polynomial(3), ik.Exponential(), ik.Gaussian()),
        *(ik.Matern12(), ik.Matern32(), ik.Matern52()),
    ],
)
def test_derivatives_by_hand_are_differences(x64, kernel):
    """Also at 0, and where points coincide."""
    x, z = np.random.default_rng(0).normal(size=(2, 6, 3))
    x[0], z[2] = 0, x[4]
    at = {"x": x, "projection": np.random.default_rng(2).normal(size=(2, 3))}
    at |= {"bandwidth": np.array(0.7)} if kernel.bandwidth else {}

    def of(at):
        names = {"projection": "projection", "bandwidth": kernel.bandwidth}
        fields = {names[name]: at[name] for name in at if name != "x"}
        return dataclasses.replace(kernel, **fields)

    for name, value in at.items():
        direction = np.random.default_rng(3).normal(size=value.shape)
        more, less = (at | {name: value + step * direction} for step in (1e-6, -1e-6))
        more, less = (kernel_matrix(of(moved), moved["x"], z) for moved in (more, less))
        derivative = getattr(of(at), f"derivative_in_{name}")(x, z)
        axes = {"x": "nmp,np->nm", "projection": "nmdp,dp->nm", "bandwidth": "nm,->nm"}[name]
        assert relative(np.einsum(axes, derivative, direction), (more - less) / 2e-6) < 1e-8
        if isinstance(kernel, Matern):
            assert np.all(derivative[4, 2] == 0)


@pytest.mark.parametrize(("symmetric", "error"), [(True, 1e-7), (False, 1e-3)])
def test_the_patterns_of_the_linear_kernel_sum_to_it(x64, symmetric, error):
    task = draw(0)
    s = task.x_query @ task.x.T
    patterns = ik.Linear().patterns(float, epsilon=1e-4, symmetric=symmetric)
    total = sum(p.weight * np.exp(0.0 if p.inner is None else p.inner * s) for p in patterns)
    assert relative(total, s) < error


@pytree_dataclass
class Forgetful(LogBilinear):
    """A kernel without its one method."""

    projection: Any = None


def test_a_kernel_is_made_of_its_temperature_and_needs_its_method():
    assert ik.Exponential.of_temperature(4.0).temperature == 4.0
    assert ik.Gaussian.of_temperature(4.0).lengthscale == 2.0
    with pytest.raises(TypeError, match="coefficients"):
        Forgetful()  # pyright: ignore[reportAbstractUsage]


U = np.random.default_rng(1).normal(size=(2, 3)) / 3
KERNELS = {
    "exponential": Tilted(0.2, 0.1),  # is taken by the same solvers
    "matern52": ik.Matern52(1.5),
    "polynomial": ik.Polynomial(3, U),
}
TAKEN = [(like, name) for like in KERNELS for name in SOLVERS if like in taken(name)]
QUICK = [
    *(("exponential", name) for name in ("conjugate_gradient", "richardson", "delta_rule")),
    *(("matern52", name) for name in ("richardson", "nadaraya_watson")),
    *(("polynomial", name) for name in ("conjugate_gradient", "prefix_posterior")),
    ("polynomial", "gradient_descent_plus_plus"),
]


@often(("like", "solver"), QUICK, TAKEN)
def test_every_construction_runs_on_it(x64, like, solver):
    """With masked supports and three outputs. A Matern kernel is a sum of Gaussian heads."""
    task = draw(0, p=3, n=9, q=4, r=3).replace(mask=np.arange(9) % 4 != 1)
    steps = 9 if SOLVERS[solver].sequential else 3
    model, oracle = build(solver, KERNELS[like], task, 0.5, steps)
    _, cache = numpy(ik.run_with_cache(model, task))
    low, high = (1e-9, 2e-4) if like == "matern52" else (0, 1e-11)
    assert low <= relative(cache["prediction"], oracle) < high
    if like == "matern52" and model.problem is not None:
        assert ik.kernels.name_of(model.problem.kernel) == like
    if (like, solver) == ("polynomial", "conjugate_gradient"):
        assert relative(ik.predict(dense(model), task), oracle[-1]) < 1e-9


def test_it_is_sketched_and_has_nystrom_features(x64):
    task, kernel = draw(0, p=3, n=9, q=4), Tilted(0.2, 0.1)
    sketches = (
        np.random.default_rng(1).normal(size=(3, 2)),
        ik.sketches.nystrom_features(kernel, task.x[:4]),
        ik.sketches.positive_features(jax.random.key(0), kernel, num_features=3, width=6),
    )
    construct, options = ik.constructions.conjugate_gradient, {"ridge": 0.3, "steps": 5}
    for sketch in sketches:
        model = construct(kernel, sketch=sketch, num_features=3, **options)
        features = ik.sketched(kernel, sketch)
        oracle = numpy(ik.solvers.conjugate_gradient(features, task, **options).prediction)[-1]
        assert relative(ik.predict(model, task), oracle) < 1e-9


@pytest.mark.slow
def test_it_is_swept(registered):
    options = {"kernel": "tilted", "seeds": 1, "num_supports": 8, "num_queries": 5, "steps": 8}
    for cell, rows in run_study(sweep(SweepConfig("ridge", (0.1, 1.0), **options))).cells:
        assert np.isfinite([row["gap"] for row in rows]).all(), cell
        if cell["line"] == "conjugate_gradient":
            assert max(row["gap"] for row in last(rows)) < 0.02


@pytest.mark.slow
def test_identify_has_it_as_a_candidate(x64, registered):
    keys = jax.random.split(jax.random.key(0), (2, 6))
    sampler = ik.tasks.GaussianProcess(Tilted(), num_supports=10, num_queries=4)
    batches = [jax.vmap(sample, in_axes=(0, None))(key, sampler) for key in keys]
    model = ik.constructions.nadaraya_watson(Tilted(), num_features=2)
    compare = partial(ik.probes.identify, partial(ik.probes.layerwise, model), *batches)
    result = compare(candidates=("nadaraya_watson",), steps=1)
    assert (result.status, result.best.fit.kernel) == ("identified", "tilted")
    assert result.best.distances["prediction"].mean < 1e-9
    candidates = ("newton_schulz", "nadaraya_watson")  # the first takes no such kernel
    assert compare(candidates=candidates, kernels=("tilted",)).remain == ("nadaraya_watson",)


@pytree_dataclass
class Laplace(PositiveKernel):
    """Positive, and no softmax head."""

    def log(self, x, z):
        return -jnp.sum(jnp.abs(x[:, None] - z[None]), axis=-1)


def test_a_positive_kernel_that_is_no_pattern_is_refused_by_name(x64):
    task = draw(0, p=3, n=9, q=4)
    mixture = ik.Mixture((Laplace(), Tilted()), weights=np.ones(2))
    assert np.isfinite(ik.solvers.exact(mixture, task, ridge=0.1).prediction).all()
    assert np.isfinite(ik.solvers.nadaraya_watson(mixture, task).prediction).all()
    for kernel in (Laplace(), mixture):
        with pytest.raises(ValueError, match="LogBilinear to be applied by softmax attention"):
            ik.constructions.conjugate_gradient(kernel, num_features=3, ridge=0.1, steps=2)
    with pytest.raises(ValueError, match="to have random features"):
        ik.sketches.positive_features(jax.random.key(0), Laplace(), num_features=3, width=4)
    phi = numpy(ik.sketches.nystrom_features(Laplace(), task.x))
    with pytest.raises(ValueError, match="to be computed at landmarks"):
        ik.constructions.conjugate_gradient(Laplace(), num_features=3, ridge=1, steps=2, sketch=phi)


def test_a_kernel_without_a_derivative_is_refused_by_name(x64):
    x = np.ones((2, 3))
    for derivative in ("derivative_in_x", "derivative_in_projection", "derivative_in_bandwidth"):
        with pytest.raises(TypeError, match=r"derivative in .*, got Laplace\(\)"):
            getattr(Laplace(), derivative)(x, x)


def test_what_was_silent_is_said():
    with pytest.raises(ValueError, match=r"kernel must be one of 'linear', .*'laplace'"):
        ik.kernels.make_kernel("laplace", {})
    with pytest.raises(TypeError, match="bandwidth if spread > 1"):
        ik.tasks.GaussianProcess(Tilted(), spread=5.0)
    with pytest.raises(TypeError, match="must have a bandwidth"):
        Tilted.bandwidths(jnp.eye(3))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: catalogue.KernelEntry("a", "smooth"), "kind must be one of"),
        (
            lambda: catalogue.register(catalogue.KernelEntry("a", "positive", ("Rbf",))),
            "short name must be new, but 'Rbf' already means 'gaussian'",
        ),
        (
            lambda: catalogue.SolverEntry("a", "A", required_inputs="ridge"),
            "inputs must be a tuple",
        ),
        (lambda: catalogue.SolverEntry("a", "A", blocks={"sofmax": 1}), "keys of blocks must be"),
    ],
)
def test_a_row_that_cannot_be_is_refused(make, sentence):
    with pytest.raises((ValueError, TypeError), match=sentence):
        make()


def test_it_is_run_by_name_with_its_own_hyperparameters(x64, registered):
    assert all(("tilted" in taken(name)) == ("exponential" in taken(name)) for name in SOLVERS)
    task = draw(0, p=3, n=9, q=4)
    result = run(task, DepthConfig("nadaraya_watson", "tilted", ridge=0.5, steps=3))
    assert max(row.oracle_gap for row in result.rows) < 1e-9
    with pytest.raises(ValueError, match="temperature must be None for kernel"):
        run(task, DepthConfig("chebyshev", "tilted", temperature=2.0, steps=2))
    config = SweepConfig("temperature", (0.5,), kernel="tilted", seeds=1, num_supports=8, steps=2)
    with pytest.raises(ValueError, match="kernel must have a bandwidth for the axis 'temperature'"):
        run_study(sweep(config))


def test_products_with_k_are_added_and_taken_away(x64):
    """By softmax attention, where they wait for the MLP, as by linear attention."""
    task = draw(0, p=3, n=9, q=4)
    for kernel in (ik.Linear(), Tilted(0.2, 0.1)):
        m = ik.constructions.machine(kernel, num_features=3)
        prediction = m.state("prediction", ("support", "query"), "k(x)^T y")

        def step(m=m, to=prediction):
            Ky = m.kernel_times(m.y) * (1 / m.scale)
            m.add(3 * Ky - m.y + 0.5 * (Ky - (Ky - m.y)) - Ky, to=to)

        model = m.transformer(step, steps=1, readout=prediction)
        expected = 2 * kernel_matrix(kernel, task.x_query, task.x) @ task.y
        assert relative(ik.predict(model, task), expected) < 1e-9


class Cubic:
    """A feature map that is no pytree."""

    width = 4

    def __call__(self, x):
        return jnp.concatenate([x, x**3], axis=1)


def test_what_is_no_pytree_runs_outside_of_a_program(x64):
    kernel, task = ik.Features(Cubic()), draw(0, p=2)
    phi = np.concatenate([task.x, np.asarray(task.x) ** 3], axis=1)
    assert np.allclose(kernel.diagonal(task.x), np.sum(phi**2, axis=1))
    low, high = ik.spectral_bounds(kernel, task, ridge=1.0)
    assert np.allclose([low, high], np.linalg.eigvalsh(phi @ phi.T)[[0, -1]] + 1)
    family = ik.tasks.GaussianProcess(kernel, num_features=2, num_supports=4)
    assert ik.tasks.sample(jax.random.key(0), family).y.shape == (4,)


def test_a_kernel_is_found_by_name_before_its_file_is_imported():
    code = "import icl_krr.kernels as k; print(k.kernel_class('polynomial').__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "Polynomial\n", done.stderr
