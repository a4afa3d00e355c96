"""How y of any size is computed in other units; test_equivariance has what comes out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import numpy, sample

import icl_krr as ik
from icl_krr._core.rescaling import power_of_two_scale, rescaled
from icl_krr.transformer._homogeneity import homogeneity

CONFIG = ik.tasks.LinearRegression(num_features=2, num_supports=6, num_queries=2)
LINEAR = ik.Linear()
REGRESSION = {"ridge": 0.5, "steps": 4}


@pytest.fixture(scope="module")
def task():
    return numpy(sample(jax.random.key(0), CONFIG).replace(y_query=None))


def built(name, kernel, **options):
    return getattr(ik.constructions, name)(kernel, num_features=2, **options)


def close(result, expected, rtol=1e-3):
    """Whether the largest error is small beside the largest number."""
    return np.max(np.abs(result - expected)) <= rtol * np.max(np.abs(expected))


def test_slots_are_told_in_the_units_of_y(task):
    model, size = built("conjugate_gradient", LINEAR, **REGRESSION), 2.0**-70
    _, expected = numpy(ik.run_with_cache(model, task, points=("resid_pre",)))
    small = task.replace(y=size * task.y)
    prediction, cache = numpy(ik.run_with_cache(model, small, points=("resid_pre",)))
    path = numpy(ik.solvers.conjugate_gradient(LINEAR, small, **REGRESSION))
    for name in ("alpha", "r", "p", "prediction"):
        assert close(cache[name] / size, expected[name]), name
        assert close(cache[name] / size, getattr(path, name) / size), name
    assert not np.any(cache["rr"])  # 2^-140 is no float32
    # points belong to the run on y in other units, and resume continues that run
    assert np.max(cache["blocks.1.resid_pre.y"]) > 0.1
    assert np.array_equal(ik.resume(model, small, cache["blocks.3.resid_pre"], 3), prediction)
    assert ik.check(model, small).ok


def test_variances_do_not_depend_on_the_size_of_y(task):
    model = built("prefix_posterior", LINEAR, **REGRESSION)

    @jax.jit
    @jax.vmap
    def run(size):
        def total(x):
            readouts = ik.readouts(model, task.replace(x=x, y=size * task.y), along=True)
            return jnp.sum(readouts["variances"]), readouts

        return jax.grad(total, has_aux=True)(task.x)

    slopes, readouts = run(np.array([2.0**-100, 1.0, 2.0**100]))
    assert close(readouts["prediction"][0] * 2.0**100, readouts["prediction"][1])
    for values in (slopes, readouts["variances"]):
        assert np.array_equal(values[0], values[1])
        assert np.array_equal(values[2], values[1])


def test_a_masked_support_does_not_choose_the_unit(task):
    model, mask = built("conjugate_gradient", LINEAR, **REGRESSION), np.arange(6) < 5
    masked = task.replace(y=np.where(mask, 2.0**-60 * task.y, 2.0**100), mask=mask)
    expected = numpy(ik.predict(model, masked.replace(y=np.where(mask, task.y, 0))))
    assert close(numpy(ik.predict(model, masked)) * 2.0**60, expected)


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
    g = lambda y, w: rescaled(power_of_two_scale(y), f, 1, y, w)  # noqa: E731
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
    def of(build, *args, **options):
        return homogeneity(jax.eval_shape(lambda: build(*args, **options)))

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
    units = np.asarray(jax.jit(jax.vmap(power_of_two_scale))(y))
    assert units[:3].tolist() == [1, 1, 1]
    assert units[5:].tolist() == [1, 1]
    mantissas, _ = np.frexp(np.asarray(units, "float32"))
    assert set(mantissas) == {0.5}
    assert np.all((y / units)[3:5] >= 1)
    assert np.array_equal(y[3:5] / units[3:5] * units[3:5], y[3:5])
