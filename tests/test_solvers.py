"""The oracles against NumPy, SciPy and scikit-learn."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import scipy.sparse.linalg
from helpers import draw, kernel_matrix, numpy, relative, sample, stacked
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import LeaveOneOut, cross_val_predict

import icl_krr as ik

KERNELS = (ik.Linear(), ik.Exponential(temperature=1.7), ik.Gaussian(lengthscale=0.8))


def gram(kernel, x, z):
    """The kernels, entry by entry."""
    x, z = np.asarray(x), np.asarray(z)
    if isinstance(kernel, ik.Linear):
        return np.array([[a @ b for b in z] for a in x])
    if isinstance(kernel, ik.Exponential):
        return np.array([[np.exp(a @ b / kernel.temperature) for b in z] for a in x])
    return np.array(
        [[np.exp(-((a - b) @ (a - b)) / (2 * kernel.lengthscale**2)) for b in z] for a in x]
    )


@pytest.mark.parametrize("kernel", KERNELS)
def test_kernels(x64, kernel):
    task = draw(0)
    found = kernel_matrix(kernel, task.x, task.x_query)
    assert relative(found, gram(kernel, task.x, task.x_query)) < 1e-14


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
        squares = lambda x: jnp.sum(kernel(x, x[::-1]) ** 2)  # noqa: E731
        in_projection = tilted.derivative_in_projection(x, x)
        return jax.grad(squares)(x), tilted.derivative_in_x(x, x), in_projection

    values = (
        kernel_matrix(kernel, x, x),
        kernel_matrix(tilted, x[2:], x[2:]),
        *derivatives(kernel, tilted, x[2:]),
    )
    with jax.enable_x64(True):
        x, tilted = jax.tree.map(np.float64, (x, tilted))
        near = x[2:] - x[2:3]
        on_line = near @ tilted.projection.T
        expected = (
            gram(kernel, x, x),
            gram(kernel, on_line, on_line),
            *derivatives(kernel, tilted, near),
        )
    for value, wanted in zip(values, expected, strict=True):
        assert relative(value, wanted) < 2e-5


@pytest.mark.parametrize("family", [ik.Exponential, ik.Gaussian])
def test_bandwidths_do_not_count_masked_points(family):
    x, keep = draw(0).x, np.arange(7) % 3 > 0
    padded = np.where(keep[:, None], x, np.nan)
    assert relative(family.bandwidths(padded, keep), family.bandwidths(x[keep])) < 1e-6
    assert family.bandwidths(x, keep & ~keep)[8] == 1
    if family is ik.Gaussian:
        assert relative(family.bandwidths(x + 1e4), family.bandwidths(x)) < 1e-3


@pytest.mark.parametrize("r", [None, pytest.param(1, marks=pytest.mark.slow), 3])
@pytest.mark.parametrize("kernel", KERNELS)
def test_exact_equals_scipy(x64, kernel, r):
    task = draw(1, p=3, n=20, r=r)
    solution = numpy(ik.solvers.exact(kernel, task, ridge=0.3))
    A = gram(kernel, task.x, task.x) + 0.3 * np.eye(20)
    alpha = scipy.linalg.solve(A, task.y, assume_a="pos")
    assert relative(solution.alpha, alpha) < 1e-12
    assert relative(solution.prediction, gram(kernel, task.x_query, task.x) @ alpha) < 1e-12
    assert solution.residual < 1e-13


def test_exact_equals_scikit_learn_on_the_shipped_table(x64):
    task = ik.tasks.split(ik.tasks.diabetes(), num_supports=300, seed=0)
    for kernel, options in (
        (ik.Linear(), {"kernel": "linear"}),
        (ik.Gaussian(lengthscale=3.0), {"kernel": "rbf", "gamma": 1 / 18}),
    ):
        theirs = KernelRidge(alpha=2.0, **options).fit(task.x, task.y)
        ours = numpy(ik.solvers.exact(kernel, task, ridge=2.0))
        assert relative(ours.prediction, theirs.predict(task.x_query)) < 1e-12
        assert relative(ours.alpha, theirs.dual_coef_) < 1e-10


@pytest.mark.parametrize("r", [None, 2])
def test_nadaraya_watson_equals_numpy(x64, r):
    task = draw(2, n=20, r=r)
    for kernel in KERNELS[1:]:
        weights = gram(kernel, task.x_query, task.x)
        weights = weights / weights.sum(axis=1, keepdims=True)
        ours = numpy(ik.solvers.nadaraya_watson(kernel, task))
        assert relative(ours.weights, weights) < 1e-12
        assert relative(ours.prediction, weights @ np.asarray(task.y)) < 1e-12
    with pytest.raises(TypeError, match="kernel must be positive"):
        ik.solvers.nadaraya_watson(ik.Linear(), task)


def test_nadaraya_watson_does_not_overflow():
    task = draw(2, n=20)
    assert np.all(np.isfinite(ik.solvers.nadaraya_watson(ik.Exponential(1e-3), task).prediction))


@pytest.mark.parametrize("r", [None, 2])
def test_gradient_descent_equals_numpy(x64, r):
    task = draw(3, r=r)
    path = numpy(
        ik.solvers.gradient_descent(ik.Linear(), task, ridge=0.5, steps=20, step_size=0.02)
    )
    K = np.asarray(task.x) @ np.asarray(task.x).T
    alpha = np.zeros(task.y.shape)
    for t in range(21):
        residual = task.y - (K + 0.5 * np.eye(7)) @ alpha
        assert relative(path.alpha[t], alpha) < 1e-12
        assert relative(path.r[t], residual) < 1e-12
        assert relative(path.prediction[t], np.asarray(task.x_query @ task.x.T) @ alpha) < 1e-12
        alpha = alpha + 0.02 * np.asarray(residual)


def test_gradient_descent_needs_exactly_one_step():
    task = draw(0)
    common = {"ridge": 0.1, "steps": 2}
    for options in (common, {**common, "step_size": 0.1, "spectrum": (1.0, 2.0)}):
        with pytest.raises(ValueError, match=r"one of step_size and spectrum.*spectral_bounds"):
            ik.solvers.gradient_descent(ik.Linear(), task, **options)
        with pytest.raises(ValueError, match=r"one of step_size and spectrum.*spectral_bounds"):
            ik.constructions.gradient_descent(ik.Linear(), num_features=4, **options)


def test_gradient_descent_converges_at_its_rate(x64):
    """|alpha_t - alpha*| <= ((cond - 1) / (cond + 1))^t |alpha*| for the step 2 / (low + high)."""
    task = draw(4, n=20)
    low, high = numpy(ik.spectral_bounds(ik.Linear(), task, ridge=5.0))
    path = numpy(
        ik.solvers.gradient_descent(ik.Linear(), task, ridge=5.0, steps=60, spectrum=(low, high))
    )
    exact = numpy(ik.solvers.exact(ik.Linear(), task, ridge=5.0).alpha)
    errors = np.linalg.norm(path.alpha - exact[None], axis=1) / np.linalg.norm(exact)
    bound = ((high - low) / (high + low)) ** np.arange(61.0)
    assert np.all(errors <= bound * (1 + 1e-9))
    assert np.all(errors >= 0.01 * bound)


@pytest.mark.parametrize("kernel", KERNELS)
def test_conjugate_gradient_equals_scipy(x64, kernel):
    task = draw(5, p=3, n=12)
    A = gram(kernel, task.x, task.x) + 0.3 * np.eye(12)
    iterates = []
    scipy.sparse.linalg.cg(A, task.y, rtol=1e-9, callback=lambda xk: iterates.append(xk.copy()))
    path = numpy(ik.solvers.conjugate_gradient(kernel, task, ridge=0.3, steps=len(iterates)))
    for t, alpha in enumerate(iterates[:6]):
        assert relative(path.alpha[t + 1], alpha) < 1e-12
    assert relative(path.alpha[-1], np.linalg.solve(A, task.y)) < 1e-7


def test_conjugate_gradient_solves_each_output_alone(x64):
    task = draw(6, r=3)
    together = numpy(ik.solvers.conjugate_gradient(ik.Linear(), task, ridge=0.1, steps=5))
    for o in range(3):
        one = task.replace(y=task.y[:, o], y_query=None)
        alone = numpy(ik.solvers.conjugate_gradient(ik.Linear(), one, ridge=0.1, steps=5))
        assert relative(together.alpha[..., o], alone.alpha) < 1e-12
        assert relative(together.p[..., o], alone.p) < 1e-12


@pytest.mark.parametrize("solver", ["exact", "gradient_descent", "conjugate_gradient"])
def test_masked_supports_do_not_count(x64, solver):
    task = draw(7, p=8, n=9)
    keep = np.arange(9) < 6
    masked = task.replace(mask=keep, x=np.where(np.arange(9)[:, None] < 6, task.x, np.nan))
    short = task.replace(x=task.x[:6], y=task.y[:6])
    options = {"ridge": 0.2}
    if solver != "exact":
        options["steps"] = 4
    if solver == "gradient_descent":
        options["spectrum"] = numpy(ik.spectral_bounds(ik.Linear(), short, ridge=0.2))
        ours = numpy(ik.spectral_bounds(ik.Linear(), masked, ridge=0.2))
        assert np.allclose(ours, options["spectrum"], rtol=1e-12)
    for kernel in KERNELS if solver == "exact" else KERNELS[:1]:
        a, b = (getattr(ik.solvers, solver)(kernel, t, **options) for t in (masked, short))
        assert relative(a.prediction, b.prediction) < 1e-12
        assert not np.any(a.alpha[..., 6:])


def test_masked_supports_do_not_smooth(x64):
    task = draw(7, n=9)
    masked = task.replace(
        mask=np.arange(9) < 6, x=np.where(np.arange(9)[:, None] < 6, task.x, np.nan)
    )
    short = task.replace(x=task.x[:6], y=task.y[:6])
    for kernel in KERNELS[1:]:
        ours, theirs = (ik.solvers.nadaraya_watson(kernel, t) for t in (masked, short))
        assert relative(ours.prediction, theirs.prediction) < 1e-12
        assert not np.any(ours.weights[:, 6:])
        ours, theirs = (ik.solvers.smoother_leave_one_out(kernel, t) for t in (masked, short))
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
        expected = np.linalg.norm(1 - A @ np.asarray(solution.alpha, np.float64)) / np.sqrt(40)
        assert np.isclose(solution.residual, expected, rtol=0.5, atol=1e-8)


def test_effective_dimension_is_a_trace(x64):
    task = draw(9, n=20)
    K = gram(ik.Linear(), task.x, task.x)
    expected = np.trace(K @ np.linalg.inv(K + 0.7 * np.eye(20)))
    sigma = numpy(ik.theory.eigenvalues(ik.Linear(), task))
    assert np.isclose(ik.theory.effective_dimension(sigma, 0.7), expected, rtol=1e-12)
    bounds = numpy(ik.spectral_bounds(ik.Linear(), task, ridge=0.7))
    expected = np.linalg.eigvalsh(K + 0.7 * np.eye(20))[[0, -1]]
    assert np.allclose(bounds, expected, rtol=1e-10)


def test_solvers_batch_by_vmap(x64):
    config = ik.tasks.LinearRegression(num_features=3, num_supports=10)
    tasks = numpy([sample(key, config) for key in jax.random.split(jax.random.key(0), 4)])
    solve = lambda task: ik.solvers.conjugate_gradient(ik.Linear(), task, ridge=0.1, steps=3)  # noqa: E731
    batched = numpy(jax.jit(jax.vmap(solve))(stacked(*tasks)))
    for i, task in enumerate(tasks):
        alone = numpy(ik.solvers.conjugate_gradient(ik.Linear(), task, ridge=0.1, steps=3))
        assert relative(batched.alpha[i], alone.alpha) < 1e-13
