"""The oracles against NumPy, SciPy and scikit-learn."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from helpers import draw, kernel_matrix, numpy, relative
from references import gram
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import LeaveOneOut, cross_val_predict

import icl_krr as ik

KERNELS = (ik.Linear(), ik.Exponential(temperature=1.7), ik.Gaussian(lengthscale=0.8))


@pytest.mark.parametrize("kernel", [*KERNELS, ik.Mixture(KERNELS[1:], np.array([1.0, 0.5]))])
def test_the_diagonal_is_that_of_the_kernel_matrix(kernel):
    x = draw(0).x
    assert relative(jax.jit(kernel.diagonal)(x), np.diag(kernel_matrix(kernel, x, x))) < 1e-6


def test_the_gaussian_kernel_far_from_0_in_float32():
    """Two clusters, one at 1e4: |x|^2 + |z|^2 - 2 <x, z> has no digit left of the distances."""
    x = np.array([[0.0, 1.0], [1.0, 1.5], [1e4, 1e4], [1e4 + 1, 1e4 - 0.5]], "f4")
    kernel, tilted = ik.Gaussian(1.3), ik.Gaussian(1.3, np.array([[0.6, 0.77]], "f4"))

    @jax.jit
    def derivatives(kernel, tilted, x):
        def squares(x):
            return jnp.sum(kernel(x, x[::-1]) ** 2)

        in_projection = tilted.derivative_in_projection(x, x)
        return jax.grad(squares)(x), tilted.derivative_in_x(x, x), in_projection

    values = [kernel_matrix(kernel, x, x), kernel_matrix(tilted, x[2:], x[2:])]
    values += derivatives(kernel, tilted, x[2:])
    with jax.enable_x64(True):
        x, tilted = jax.tree.map(np.float64, (x, tilted))
        differences = x[2:] - x[2:3]
        on_line = differences @ tilted.projection.T
        expected = [gram(kernel, x, x), gram(kernel, on_line, on_line)]
        expected += derivatives(kernel, tilted, differences)
    for value, reference in zip(values, expected, strict=True):
        assert relative(value, reference) < 2e-5


@pytest.mark.parametrize("family", [ik.Exponential, ik.Gaussian])
def test_bandwidths_do_not_count_masked_points(family):
    x, keep = draw(0).x, np.arange(7) % 3 > 0
    padded = np.where(keep[:, None], x, np.nan)
    assert relative(family.bandwidths(padded, keep), family.bandwidths(x[keep])) < 1e-6
    assert family.bandwidths(x, keep & ~keep)[8] == 1
    if family is ik.Gaussian:
        assert relative(family.bandwidths(x + 1e4), family.bandwidths(x)) < 1e-3


@pytest.mark.parametrize("r", [None, 1, 3])
@pytest.mark.parametrize("kernel", KERNELS)
def test_exact_equals_scipy(x64, kernel, r):
    task = draw(1, p=3, n=20, r=r)
    solution = numpy(ik.solvers.exact(kernel, task, ridge=0.3))
    A = gram(kernel, task.x, task.x) + 0.3 * np.eye(20)
    alpha = scipy.linalg.solve(A, task.y, assume_a="pos")
    assert relative(solution.alpha, alpha) < 1e-12
    assert relative(solution.prediction, gram(kernel, task.x_query, task.x) @ alpha) < 1e-12
    assert solution.residual < 1e-13


def test_nadaraya_watson_does_not_overflow():
    task = draw(2, n=20)
    assert np.all(np.isfinite(ik.solvers.nadaraya_watson(ik.Exponential(1e-3), task).prediction))


@pytest.fixture
def masked_and_short(x64):
    """A task whose last three supports are masked and no numbers, and one without them."""
    task, keep = draw(7, p=8, n=9), np.arange(9) < 6
    masked = task.replace(mask=keep, x=np.where(keep[:, None], task.x, np.nan))
    return masked, task.replace(x=task.x[:6], y=task.y[:6])


def test_masked_supports_do_not_count(masked_and_short):
    for kernel in KERNELS:
        a, b = (ik.solvers.exact(kernel, task, ridge=0.2) for task in masked_and_short)
        assert relative(a.prediction, b.prediction) < 1e-12
        assert not np.any(a.alpha[..., 6:])
    bounds = [numpy(ik.spectral_bounds(ik.Linear(), t, ridge=0.2)) for t in masked_and_short]
    assert np.allclose(*bounds, rtol=1e-12)


def test_masked_supports_do_not_smooth(masked_and_short):
    for kernel in KERNELS[1:]:
        ours, theirs = (ik.solvers.smoother_leave_one_out(kernel, t) for t in masked_and_short)
        assert relative(ours[:6], theirs) < 1e-12
        assert not np.any(ours[6:])


def test_leave_one_out_equals_refitting(x64):
    task = draw(8, p=3, n=12)
    model = KernelRidge(alpha=0.4, kernel="linear")
    refitted = cross_val_predict(model, np.asarray(task.x), np.asarray(task.y), cv=LeaveOneOut())
    ours = numpy(ik.solvers.leave_one_out(ik.Linear(), task, ridge=0.4))
    assert relative(ours, np.asarray(task.y) - refitted) < 1e-10
    kernel = ik.Exponential(temperature=2.0)
    ours = numpy(ik.solvers.smoother_leave_one_out(kernel, task))
    for i in range(12):
        keep = np.arange(12) != i
        left = ik.Task(x=task.x[keep], y=task.y[keep], x_query=task.x[i : i + 1])
        prediction = numpy(ik.solvers.nadaraya_watson(kernel, left).prediction)
        assert np.allclose(ours[i], task.y[i] - prediction[0], rtol=1e-11)


def test_residual_reports_what_rounding_left():
    """No hidden jitter: at cond 1e9 the answer is wrong, and the result says by how much."""
    task = ik.Task(x=np.linspace(0, 1, 40)[:, None], y=np.ones(40), x_query=np.zeros((1, 1)))
    kernel = ik.Gaussian(lengthscale=5.0)
    assert not ik.solvers.exact(kernel, task, ridge=1e-9).residual < 1e-3
    for ridge in (1e-6, 1e-4, 1e-3, 0.1):
        solution = numpy(ik.solvers.exact(kernel, task, ridge=ridge))
        A = np.asarray(kernel(task.x, task.x), np.float64) + ridge * np.eye(40)
        alpha = np.asarray(solution.alpha, np.float64)
        expected = np.linalg.norm(1 - A @ alpha) / np.sqrt(40)
        rounding = np.finfo(np.float32).eps * np.max(A @ np.abs(alpha))  # of the residual itself
        assert np.isclose(solution.residual, expected, rtol=0.5, atol=rounding)


def test_effective_dimension_is_a_trace(x64):
    task = draw(9, n=20)
    K = gram(ik.Linear(), task.x, task.x)
    expected = np.trace(K @ np.linalg.inv(K + 0.7 * np.eye(20)))
    sigma = numpy(ik.theory.eigenvalues(ik.Linear(), task))
    assert np.isclose(ik.theory.effective_dimension(sigma, 0.7), expected, rtol=1e-12)
    bounds = numpy(ik.spectral_bounds(ik.Linear(), task, ridge=0.7))
    expected = np.linalg.eigvalsh(K + 0.7 * np.eye(20))[[0, -1]]
    assert np.allclose(bounds, expected, rtol=1e-10)
