"""The iterative oracles against closed forms, SciPy and NumPy."""

from itertools import product

import jax
import numpy as np
import pytest
import scipy.sparse.linalg
from helpers import draw, kernel_matrix, numpy, often, relative, spectral_bounds

import icl_krr as ik

KERNELS = (ik.Linear(), ik.Exponential(temperature=6.0), ik.Gaussian(lengthscale=2.0))
SLOW = {"marks": pytest.mark.slow}
each_kernel_and_shape = pytest.mark.parametrize(
    ("kernel", "r"),
    [
        pytest.param(KERNELS[0], 2, id="linear"),
        pytest.param(KERNELS[1], 2, id="exponential", **SLOW),
        pytest.param(KERNELS[2], 2, id="gaussian", **SLOW),
        pytest.param(KERNELS[2], None, id="gaussian, one output"),
    ],
)


KEEP = np.arange(12) != 5
nystrom = jax.jit(ik.nystrom, static_argnames="rank")


def masked(seed, r=None):
    return draw(seed, p=3, n=12, r=r).replace(mask=KEEP)


def problem(kernel, task, ridge):
    """K + ridge I, k and y of the supports that count."""
    x, y = (np.asarray(a)[KEEP] for a in (task.x, task.y))
    K = kernel_matrix(kernel, x, x)
    return K + ridge * np.eye(len(x)), kernel_matrix(kernel, task.x_query, x), y


def solve(name, kernel, task, **options):
    """The path of an oracle, in NumPy."""
    return numpy(getattr(ik.solvers, name)(kernel, task, **({"ridge": 0.7} | options)))


def check(path, alphas, A, cross, y, tolerance=1e-10):
    """All fields of a trajectory that follow from alpha."""
    alphas = np.stack(alphas)
    assert relative(path.alpha[:, KEEP], alphas) < tolerance
    assert not np.any(path.alpha[:, ~KEEP])
    assert relative(path.r[:, KEEP], y - np.einsum("ij,tj...->ti...", A, alphas)) < tolerance
    assert relative(path.prediction, np.einsum("ij,tj...->ti...", cross, alphas)) < tolerance


@each_kernel_and_shape
def test_gradient_descent_in_alpha_is_its_closed_form(x64, kernel, r):
    """alpha_t = (I - (I - eta K A)^t) A^-1 y."""
    task = masked(0, r)
    A, cross, y = problem(kernel, task, 0.7)
    spectrum = numpy(ik.spectral_bounds(kernel, task, ridge=0.7))
    path = solve("gradient_descent_in_alpha", kernel, task, steps=5, spectrum=spectrum)
    low, high = np.linalg.eigvalsh(A)[[0, -1]]
    eta = 2 / (low * (low - 0.7) + high * (high - 0.7))
    if isinstance(kernel, ik.Linear):  # K is singular
        eta = 1 / (high * (high - 0.7))
    step, exact = np.eye(11) - eta * (A - 0.7 * np.eye(11)) @ A, np.linalg.solve(A, y)
    check(path, [exact - np.linalg.matrix_power(step, t) @ exact for t in range(6)], A, cross, y)
    again = solve("gradient_descent_in_alpha", kernel, task, steps=5, step_size=eta)
    assert relative(again.alpha, path.alpha) < 1e-12


@each_kernel_and_shape
def test_chebyshev_is_the_chebyshev_polynomial(x64, kernel, r):
    """The error is T_t((theta - A) / delta) / T_t(theta / delta) times the first one."""
    task = masked(1, r)
    A, cross, y = problem(kernel, task, 0.7)
    low, high = 0.5, float(np.linalg.eigvalsh(A)[-1]) * 1.1
    path = solve("chebyshev", kernel, task, steps=9, spectrum=(low, high))
    sigma, vectors = np.linalg.eigh(A)
    theta, delta, exact = (high + low) / 2, (high - low) / 2, np.linalg.solve(A, y)
    alphas = []
    for t in range(10):
        polynomial = np.polynomial.chebyshev.Chebyshev.basis(t)
        factors = polynomial((theta - sigma) / delta) / polynomial(theta / delta)
        alphas.append(exact - (vectors * factors) @ vectors.T @ exact)
    check(path, alphas, A, cross, y, 1e-9)
    flat = solve("chebyshev", kernel, task, steps=3, spectrum=(high, high))
    plain = solve("gradient_descent", kernel, task, steps=3, step_size=1 / high)
    assert relative(flat.alpha, plain.alpha) < 1e-12
    if isinstance(kernel, ik.Linear):  # the same polynomial at the queries; of CG it is another
        primal = solve("prefix_chebyshev", kernel, task, steps=9, spectrum=(low, high))
        assert relative(primal.prediction, path.prediction) < 1e-12
        dual, primal = (solve(f"{name}conjugate_gradient", kernel, task, steps=2).prediction
                        for name in ("", "prefix_"))  # fmt: skip
        assert relative(primal, dual) > 1e-3


@each_kernel_and_shape
def test_heavy_ball_is_polyaks_two_term_recurrence(x64, kernel, r):
    task = masked(2, r)
    A, cross, y = problem(kernel, task, 0.7)
    low, high = np.linalg.eigvalsh(A)[[0, -1]]
    kappa = np.sqrt(high / low)
    eta, mu = 4 / (np.sqrt(high) + np.sqrt(low)) ** 2, ((kappa - 1) / (kappa + 1)) ** 2
    alphas = [0 * y, eta * y]
    for _ in range(8):
        last, before = alphas[-1], alphas[-2]
        alphas.append(last + eta * (y - A @ last) + mu * (last - before))
    for numbers in ({"spectrum": (low, high)}, {"step_size": eta, "momentum": mu}):
        path = solve("heavy_ball", kernel, task, steps=9, **numbers)
        check(path, alphas, A, cross, y)


@pytest.mark.parametrize(
    ("kernel", "sink", "r"),
    [
        (KERNELS[1], None, 2),
        (KERNELS[2], 2.0, None),
        pytest.param(KERNELS[2], None, 2, **SLOW),
        pytest.param(KERNELS[1], 2.0, None, **SLOW),
    ],
)
def test_richardson_equals_numpy(x64, kernel, sink, r):
    task = masked(3, r)
    A, cross, y = problem(kernel, task, 0.7)
    scale = np.diag(1.5 / ((A - 0.7 * np.eye(11)).sum(1) + (0.7 if sink is None else sink)))
    alphas = [0 * y]
    for _ in range(6):
        alphas.append(alphas[-1] + scale @ (y - A @ alphas[-1]))
    path = solve("richardson", kernel, task, steps=6, step_size=1.5, sink=sink)
    check(path, alphas, A, cross, y)


@pytest.mark.parametrize("r", [None, 2])
def test_newton_schulz_squares_its_error(x64, r):
    """I - C V_t = (I - s C)^(2^t)."""
    task = masked(4, r)
    A, _, y = problem(ik.Linear(), task, 0.7)
    x, spectrum = np.asarray(task.x)[KEEP], spectral_bounds(ik.Linear(), task, ridge=0.7)
    C, s = x.T @ x + 0.7 * np.eye(3), 2 / float(sum(spectrum))
    alphas = []
    for t in range(7):
        V = np.linalg.solve(C, np.eye(3) - np.linalg.matrix_power(np.eye(3) - s * C, 2**t))
        alphas.append((y - x @ V @ x.T @ y) / 0.7)
    path = solve("newton_schulz", ik.Linear(), task, steps=6, spectrum=spectrum)
    assert relative(path.alpha[:, KEEP], np.stack(alphas)) < 1e-10
    residuals = y - np.einsum("ij,tj...->ti...", A, np.stack(alphas))
    assert relative(path.r[:, KEEP], residuals) < 1e-9
    assert relative(path.prediction[-1], np.asarray(task.x_query) @ V @ x.T @ y) < 1e-10
    assert len(path.prediction) == 7


@pytest.mark.parametrize("r", [None, 2])
def test_gd_plus_plus_equals_numpy(x64, r):
    task = masked(5, r)
    x, q, res = np.asarray(task.x)[KEEP], np.asarray(task.x_query), np.asarray(task.y)[KEEP]
    f = 0 * q[:, 0] if r is None else np.zeros((3, r))
    rs, fs = [res], [f]
    for _ in range(5):
        flat = np.eye(3) - 0.01 * x.T @ x
        f, res, x, q = f + 0.02 * q @ x.T @ res, res - 0.02 * x @ x.T @ res, x @ flat, q @ flat
        rs.append(res)
        fs.append(f)
    options = {"steps": 5, "step_size": 0.02, "curvature": 0.01}
    path = numpy(ik.solvers.gradient_descent_plus_plus(ik.Linear(), task, **options))
    assert relative(path.r[:, KEEP], np.stack(rs)) < 1e-12
    assert relative(path.prediction, np.stack(fs)) < 1e-12
    assert path.alpha is None


@often(
    ("kernel", "kind"),
    ((KERNELS[0], "nystrom"), (KERNELS[2], "jacobi")),
    [*product(KERNELS, ("jacobi", "nystrom")), *product(KERNELS[1:], ["normaliser"])],
)
def test_preconditioned_conjugate_gradient_equals_scipy(x64, kernel, kind):
    task = masked(6)
    A, cross, y = problem(kernel, task, 0.7)
    x = task.x[KEEP]
    preconditioner, M = kind, np.diag(np.diag(A))
    if kind == "normaliser":
        M = np.diag(A.sum(1))  # of K, plus the ridge
    if kind == "nystrom":
        preconditioner = numpy(nystrom(kernel, x, ridge=0.7, rank=2))
        F = np.asarray(preconditioner.features(x))
        W, C = kernel_matrix(kernel, x[:2], x[:2]), kernel_matrix(kernel, x, x[:2])
        assert relative(F @ F.T, C @ np.linalg.solve(W, C.T)) < 1e-9
        M = F @ F.T + 0.7 * np.eye(11)
    alphas = [0 * y]
    scipy.sparse.linalg.cg(
        A, y, M=np.linalg.inv(M), maxiter=4, rtol=0, callback=lambda a: alphas.append(a.copy())
    )
    path = solve(
        "preconditioned_conjugate_gradient", kernel, task, steps=4, preconditioner=preconditioner
    )
    check(path, alphas, A, cross, y, 1e-9)
    assert relative(path.p[0, KEEP], np.linalg.solve(M, y)) < 1e-10


def test_nystrom_of_full_rank_solves_in_one_step(x64):
    task, kernel = draw(7, n=6), ik.Gaussian(2.0)
    full = numpy(nystrom(kernel, task.x, ridge=0.5, rank=6))
    path = solve(
        "preconditioned_conjugate_gradient", kernel, task, ridge=0.5, steps=1, preconditioner=full
    )
    assert relative(path.alpha[1], ik.solvers.exact(kernel, task, ridge=0.5).alpha) < 1e-9
    twice = np.concatenate([task.x[:2], task.x])  # a singular matrix of landmarks
    singular = nystrom(kernel, twice, ridge=0.5, rank=4)
    assert all(bool(np.all(np.isfinite(a))) for a in (singular.mix, singular.core))
    with pytest.raises(ValueError, match="rank must be <= n = 6, the number of points, got 7"):
        ik.nystrom(kernel, task.x, ridge=0.5, rank=7)


@often(
    ("kernel", "form"),
    ((KERNELS[0], "fused"), (KERNELS[2], "pipelined")),
    [*product(KERNELS, ("fused", "pipelined"))],
)
def test_forms_of_conjugate_gradient_agree(x64, kernel, form):
    task = masked(8)
    options = {"ridge": 2.0, "steps": 80}
    plain = solve("conjugate_gradient", kernel, task, **options)
    other = solve("conjugate_gradient", kernel, task, form=form, **options)
    for state in ("alpha", "r", "p", "prediction"):
        assert relative(getattr(other, state)[:4], getattr(plain, state)[:4]) < 1e-10
    exact = solve("exact", kernel, task, ridge=2.0)
    assert relative(other.prediction[-1], exact.prediction) < 1e-11


@each_kernel_and_shape
def test_posterior_equals_numpy(x64, kernel, r):
    task = masked(9, r)
    A, cross, y = problem(kernel, task, 0.7)
    prior = np.diag(kernel_matrix(kernel, task.x_query, task.x_query))
    variance = prior - np.sum(cross * np.linalg.solve(A, cross.T).T, axis=1)
    oracle = solve("posterior", kernel, task)
    model = ik.constructions.conjugate_gradient(kernel, num_features=3, ridge=0.7, steps=24)
    for mean, spread in (oracle, ik.posterior(model, kernel, task)):
        assert relative(mean, cross @ np.linalg.solve(A, y)) < 1e-9
        assert relative(spread, variance) < 1e-9


def test_posterior_needs_a_model_of_one_output():
    model = ik.constructions.conjugate_gradient(
        ik.Linear(), num_features=3, ridge=0.7, steps=4, num_outputs=2
    )
    with pytest.raises(ValueError, match="model must have one output"):
        ik.posterior(model, ik.Linear(), masked(0, 2))


def test_a_projection_is_a_change_of_features(x64):
    task = draw(10)
    U = np.asarray(np.random.default_rng(0).normal(size=(2, 4)))
    kernel = ik.Exponential(temperature=3.0, projection=U)
    expected = kernel_matrix(ik.Exponential(temperature=3.0), task.x_query @ U.T, task.x @ U.T)
    assert relative(kernel_matrix(kernel, task.x_query, task.x), expected) < 1e-13
    with pytest.raises(ValueError, match=r"projection must be \[d, p\] with p = 4 features to"):
        ik.Exponential(projection=U.T)(task.x, task.x)
    with pytest.raises(ValueError, match=r"projection must be \[d, p\] with p = 3, the width of x"):
        ik.constructions.conjugate_gradient(kernel, num_features=3, ridge=1.0, steps=1)


WRONG = [
    *((name, ik.Linear(), {}, r"spectrum must be given; .*spectral_bounds")
      for name in ("chebyshev", "newton_schulz")),
    *(("heavy_ball", ik.Gaussian(), given, message) for given, message in (
        ({"step_size": 1.0, "spectrum": (1.0, 2.0)}, "got both"),
        ({"step_size": 1.0}, "momentum must be given with step_size, got None"),
        ({"spectrum": (1.0, 2.0), "momentum": 0.5},
         "momentum must be None if spectrum is given, got 0.5"),
    )),
    ("richardson", ik.Gaussian(), {"step_size": 2.0}, "step_size must be < 2 to converge, got 2.0"),
    ("preconditioned_conjugate_gradient", ik.Gaussian(), {"preconditioner": "ilu"},
     "preconditioner must be one of 'jacobi'"),
    ("newton_schulz", ik.Gaussian(), {"spectrum": (1.0, 2.0)}, "kernel must be"),
    ("richardson", ik.Linear(), {}, "kernel must be"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "kernel", "given", "message"), WRONG)
def test_missing_and_wrong_arguments_are_one_sentence(name, kernel, given, message):
    common = {"ridge": 1.0, "steps": 2, **given}
    for call in (
        lambda: getattr(ik.solvers, name)(kernel, draw(0), **common),
        lambda: getattr(ik.constructions, name)(kernel, num_features=4, **common),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            call()


def test_attention_must_be_able_to_apply_the_kernel():
    preconditioner = nystrom(ik.Gaussian(), draw(0).x, ridge=1.0, rank=2)
    for name, kernel, options, message in (
        ("conjugate_gradient", ik.Gaussian(), {"attention": "linear"}, "to be applied by linear"),
        ("conjugate_gradient", ik.Linear(), {"attention": "softmax"},
         r"Softmax\(epsilon=...\) to emulate the linear kernel"),
        ("conjugate_gradient", ik.Linear(), {"attention": "sparse"},
         "attention must be one of 'linear', 'softmax'"),
        ("richardson", ik.Gaussian(), {"attention": "linear"},
         "attention must be 'softmax' for this solver"),
        ("preconditioned_conjugate_gradient", ik.Gaussian(), {"preconditioner": preconditioner},
         "attention must be 'linear' for a Nystrom"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            getattr(ik.constructions, name)(kernel, num_features=4, ridge=1.0, steps=2, **options)
