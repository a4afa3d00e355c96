"""y -> c y gives c times the prediction and the same Jacobian, for c from 1e-30 to 1e30."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import numpy, often, sample

import icl_krr as ik
from icl_krr.transformer.degrees import degrees
from icl_krr.units import in_units, unit_of

SIZES = np.append(2.0 ** np.linspace(-100, 100, 41), 0)  # powers of 2: nothing is rounded anew
ONE = 20
CONFIG = ik.tasks.LinearRegression(num_features=2, num_supports=6, num_queries=2)
LINEAR, SOFT = ik.Linear(), ik.Exponential(2.0)
REGRESSION = {"ridge": 0.5, "steps": 4}
BOUNDS = {**REGRESSION, "spectrum": (0.5, 20.0)}


@pytest.fixture(scope="module")
def task():
    return numpy(sample(jax.random.key(0), CONFIG).replace(y_query=None))


def built(name, kernel, **options):
    return getattr(ik.constructions, name)(kernel, num_features=2, **options)


def close(found, known, rtol=1e-3):
    """Whether the largest error is small beside the largest number."""
    return np.max(np.abs(found - known)) <= rtol * np.max(np.abs(known))


MODELS = {
    "textbook": ("conjugate_gradient", LINEAR, REGRESSION),
    "softmax": ("conjugate_gradient", SOFT, {**REGRESSION, "form": "fused"}),
    "chebyshev": ("chebyshev", LINEAR, BOUNDS),
    "richardson": ("richardson", SOFT, REGRESSION),
    "nadaraya_watson": ("nadaraya_watson", SOFT, {}),
    "delta_rule": ("delta_rule", LINEAR, {"step_size": 0.1}),
    "prefix": ("prefix_conjugate_gradient", LINEAR, REGRESSION),
    "posterior": ("prefix_posterior", LINEAR, REGRESSION),
}


@often("name", ("textbook", "softmax", "prefix"), MODELS)
def test_the_prediction_of_a_model_follows_y_and_its_jacobian_stays(task, name):
    """Conjugate gradient lost the Jacobian below 1e-11 and above 1e12, the prediction later."""
    solver, kernel, options = MODELS[name]
    model = built(solver, kernel, **options)

    def run(size):
        f = lambda y: ik.predict(model, task.replace(y=y))[0]  # noqa: E731
        return jax.value_and_grad(f)(size * task.y)

    values, jacobians = jax.jit(jax.vmap(run))(SIZES)
    for size, value, jacobian in zip(SIZES[:-1], values, jacobians, strict=False):
        assert close(value / size, values[ONE]), size
        assert close(jacobian, jacobians[ONE]), size
    assert not np.any(values[-1])
    if name in ("textbook", "softmax", "prefix"):  # not linear in y: y = 0 has no Jacobian
        assert not np.any(jacobians[-1])
    else:
        assert close(jacobians[-1], jacobians[ONE])


SOLVERS = {
    "exact": (ik.Gaussian, {"ridge": 0.5}),
    "conjugate_gradient": (ik.Exponential, REGRESSION),
    "chebyshev": (ik.Gaussian, BOUNDS),
    "newton_schulz": (lambda bandwidth: LINEAR, BOUNDS),
    "prefix_conjugate_gradient": (lambda bandwidth: LINEAR, REGRESSION),
}


@often("name", ("exact", "conjugate_gradient"), SOLVERS)
def test_the_answer_of_a_solver_and_all_its_gradients_follow_y(task, name):
    """The gradient of conjugate gradient was NaN for y of 1e24."""
    make, options = SOLVERS[name]

    def run(size):
        def total(y, x, x_query, ridge, bandwidth):
            given = {**options, "ridge": ridge}
            one = task.replace(x=x, y=y, x_query=x_query)
            found = getattr(ik.solvers, name)(make(bandwidth), one, **given)
            return jnp.sum(found.prediction)

        given = size * task.y, task.x, task.x_query, jnp.array(0.5), jnp.array(1.0)
        return jax.value_and_grad(total, argnums=range(5))(*given)

    value, (of_y, *others) = jax.jit(jax.vmap(run))(SIZES)
    for i, size in enumerate(SIZES[:-1]):
        assert close(value[i] / size, value[ONE]), size
        assert close(of_y[i], of_y[ONE]), size
        for slope in others:
            assert close(slope[i] / size, slope[ONE]), size
    for slope in (value, of_y, *others):
        assert np.all(np.isfinite(slope[-1]))
    assert value[-1] == 0


def test_slots_are_told_in_the_units_of_y(task):
    model, size = built("conjugate_gradient", LINEAR, **REGRESSION), 2.0**-70
    _, known = numpy(ik.run_with_cache(model, task, points=("resid_pre",)))
    small = task.replace(y=size * task.y)
    prediction, found = numpy(ik.run_with_cache(model, small, points=("resid_pre",)))
    path = numpy(ik.solvers.conjugate_gradient(LINEAR, small, **REGRESSION))
    for name in ("alpha", "r", "p", "prediction"):
        assert close(found[name] / size, known[name]), name
        assert close(found[name] / size, getattr(path, name) / size), name
    assert not np.any(found["rr"])  # 2^-140 is no float32
    # points belong to the run on y in other units, and resume continues that run
    assert np.max(found["blocks.1.resid_pre.y"]) > 0.1
    assert np.array_equal(ik.resume(model, small, found["blocks.3.resid_pre"], 3), prediction)
    assert ik.check(model, small).ok


def test_variances_do_not_depend_on_the_size_of_y(task):
    model = built("prefix_posterior", LINEAR, **REGRESSION)

    @jax.jit
    @jax.vmap
    def run(size):
        def total(x):
            found = ik.read_outs(model, task.replace(x=x, y=size * task.y), along=True)
            return jnp.sum(found["variances"]), found

        return jax.grad(total, has_aux=True)(task.x)

    slopes, found = run(np.array([2.0**-100, 1.0, 2.0**100]))
    assert close(found["prediction"][0] * 2.0**100, found["prediction"][1])
    for values in (slopes, found["variances"]):
        assert np.array_equal(values[0], values[1])
        assert np.array_equal(values[2], values[1])


def test_a_masked_support_does_not_choose_the_unit(task):
    model, mask = built("conjugate_gradient", LINEAR, **REGRESSION), np.arange(6) < 5
    seen = task.replace(y=np.where(mask, 2.0**-60 * task.y, 2.0**100), mask=mask)
    known = numpy(ik.predict(model, seen.replace(y=np.where(mask, task.y, 0))))
    assert close(numpy(ik.predict(model, seen)) * 2.0**60, known)


def test_a_hook_that_closes_over_a_traced_array_is_differentiated(task):
    model = built("conjugate_gradient", LINEAR, **REGRESSION)

    def first(factor, size):
        hooks = {"blocks.2.mlp.gamma": lambda gamma, where: factor * gamma}
        return ik.run_with_hooks(model, task.replace(y=size * task.y), hooks)[0]

    slope = jax.jit(jax.grad(first))
    assert np.isclose(slope(1.0, 2.0**-60) * 2.0**60, slope(1.0, 1.0))


def test_second_derivatives_follow_y():
    f = lambda y, w: jnp.sum(w * y**3) / jnp.sum(y * y)  # noqa: E731
    y, w = np.array([1.0, 2.0]), np.array([3.0, 1.0])
    g = lambda y, w: in_units(unit_of(y), f, 1, y, w)  # noqa: E731
    of_f, of_g = (jax.jit(jax.hessian(one, argnums=(0, 1))) for one in (f, g))
    ((yy, yw), (_, ww)), size = of_f(y, w), 2.0**90
    ((of_yy, of_yw), (of_wy, of_ww)) = of_g(size * y, w)
    assert close(of_yy * size, yy)
    assert close(of_yw, yw)
    assert close(of_wy.T, yw)
    assert np.array_equal(of_ww, ww)


def test_each_output_of_a_solver_has_its_own_unit(task):
    sizes = np.array([2.0**-100, 1.0, 2.0**100])
    several = task.replace(y=task.y[:, None] * sizes[None])
    path = numpy(ik.solvers.conjugate_gradient(LINEAR, several, **REGRESSION))
    for i, size in enumerate(sizes):
        assert close(path.prediction[:, :, i] / size, path.prediction[:, :, 1])


def test_a_y_that_is_solved_early_has_finite_derivatives():
    """r = 0 after one step: later steps are 0 / 0. Along y, the derivative is exact."""
    task = ik.Task(x=np.eye(3), y=np.array([0.0, 2.0, 0.0]), x_query=np.ones((1, 3)))
    f = lambda y: ik.solvers.conjugate_gradient(  # noqa: E731
        LINEAR, task.replace(y=y), ridge=1.0, steps=3
    ).prediction[-1]
    jacobian = jax.jit(jax.jacobian(f))(task.y)
    assert np.all(np.isfinite(jacobian))
    assert np.allclose(jacobian @ task.y, 1.0)


def test_points_too_far_apart_for_their_square_have_derivative_zero():
    """The kernel is 0 there, and its derivative was 0 times infinity."""
    x = np.array([[0.0], [1.0], [1e25]], "f4")
    k = lambda lengthscale: jnp.sum(ik.Gaussian(lengthscale)(x, x))  # noqa: E731
    assert np.isclose(jax.jit(jax.grad(k))(1.0), 2 * np.exp(-0.5))


def test_only_a_structure_that_is_homogeneous_in_y_has_degrees():
    def of(build, *given, **options):
        return degrees(jax.eval_shape(lambda: build(*given, **options)))

    found = of(built, "conjugate_gradient", LINEAR, **REGRESSION)
    assert [found[name] for name in ("x", "gamma", "alpha", "rr")] == [0, 0, 1, 2]
    assert of(built, "prefix_posterior", LINEAR, **REGRESSION)["variance"] == 0

    def with_mixed_read_out():
        model = built("conjugate_gradient", LINEAR, **REGRESSION)
        mixed = {"mixed": model.weights.readout + model.weights.embedding["one"]}
        return model.replace(weights=model.weights.replace(readouts=mixed))

    tables = {**REGRESSION, "arithmetic": ik.ReLU(width=8, bound=9.0)}
    average = {"ridges": np.array([0.1, 1.0]), "steps": 2}
    trained = ik.Architecture(num_features=2, width=8, depth=1, heads=1)
    assert of(with_mixed_read_out) is None
    assert of(built, "conjugate_gradient", LINEAR, **tables) is None
    assert of(built, "bayesian_average", LINEAR, **average) is None
    assert of(ik.init, jax.random.key(0), trained) is None


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_units_are_powers_of_two_that_divide_without_rounding(dtype):
    y = np.array([0.0, 1.0, 5e5, 1e-9, 3e38, np.inf, np.nan], dtype)
    units = np.asarray(jax.jit(jax.vmap(unit_of))(y))
    assert units[:3].tolist() == [1, 1, 1]
    assert units[5:].tolist() == [1, 1]
    mantissas, _ = np.frexp(np.asarray(units, "float32"))
    assert set(mantissas) == {0.5}
    assert np.all((y / units)[3:5] >= 1)
    assert np.array_equal(y[3:5] / units[3:5] * units[3:5], y[3:5])
