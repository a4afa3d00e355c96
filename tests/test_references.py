"""Every solver against its reference, which shares no code with it, and what theory proves of it.

That the weights of constructions compute the same as the solvers, tests/test_keystone.py says.
"""

from functools import cache

import helpers
import numpy as np
import pytest
import references
import scipy.linalg
import scipy.stats
from helpers import draw, numpy, relative

import icl_krr as ik
from icl_krr.catalogue import SOLVERS, taken

pytestmark = pytest.mark.usefixtures("x64")

KERNELS = {"linear": ik.Linear(), "exponential": ik.Exponential(6.0), "gaussian": ik.Gaussian(2.0)}
Q, RIDGE, KEEP = 2, 0.7, np.arange(9) != 5
STEPS = N = int(KEEP.sum())
TOKENS = {N: KEEP, N + Q: np.append(KEEP, [True] * Q)}
DELTA, WIDE = {"step_size": 0.3}, {"spectrum": (0.5, 40.0)}
NUMBERS = {
    "gradient_descent": ({}, {"step_size": 0.02}),
    "gradient_descent_in_alpha": ({}, {"step_size": 0.002}),
    "heavy_ball": ({}, {"step_size": 0.05, "momentum": 0.3}),
    "chebyshev": ({}, WIDE),
    "richardson": ({}, {"step_size": 1.5, "sink": 2.0}),
    "preconditioned_chebyshev": ({"num_supports": N}, {"num_supports": 5, "largest": 2.0}),
    "nystrom_conjugate_gradient": ({"rank": 2},),
    "gradient_descent_plus_plus": ({"step_size": 0.02, "curvature": 0.01},),
    "delta_rule": (DELTA,),
    "implicit_delta_rule": (DELTA,),
    "momentum_delta_rule": (DELTA | {"momentum": 0.5, "decay": 0.9},),
    "preconditioned_delta_rule": (
        DELTA | {"initial": 0.7},
        DELTA | {"initial": 0.7, "squash": 1.5, "center": -0.2},
    ),
    "kalman_delta_rule": ({"process_noise": 0.1, "info_scale": 2.0},),
    "prefix_conjugate_gradient": ({}, {"preconditioner": "jacobi"}),
    "prefix_chebyshev": (WIDE,),
    "bayesian_average": ({"ridges": np.array([0.2, 0.7, 3.0]), "sharpness": 0.5},),
}
"""What a solver is told beside the ridge. If it is {}, the reference has it from the spectrum."""


def kernels_of(name):
    """Those of the row; Nystrom's preconditioner needs features in weights, not in the solver."""
    names = KERNELS if name == "nystrom_conjugate_gradient" else taken(name)
    return [kernel for kernel in KERNELS if kernel in names]


EXTREME = {
    "gradient_descent": (0, -1),
    "heavy_ball": (-1,),
    "chebyshev": (0, -1),
    "richardson": (0,),
    "preconditioned_chebyshev": (0, -1),
}
"""The eigenvectors along which errors fall no faster than theory says."""


def cases(name):
    """A kernel for two outputs, and one for one where errors are compared; others once a day."""
    often = {(kernels_of(name)[0], 2), *[("gaussian", None)] * (name in EXTREME)}
    for kernel in kernels_of(name):
        for r in (2, None):
            marks = [pytest.mark.slow] * ((kernel, r) not in often)
            yield pytest.param(name, kernel, r, id=f"{name}-{kernel}-{r}", marks=marks)


@cache
def problem(kernel, r):
    """A task with a masked support, which is no number, and the regression without it."""
    task = draw(0, p=3, n=len(KEEP), q=Q, r=r)
    task = numpy(task.replace(mask=KEEP, x=np.where(KEEP[:, None], task.x, np.nan)))
    x, y, at = task.x[KEEP], task.y[KEEP].reshape(N, -1), task.x_query
    points = np.concatenate([x, at])
    K = references.gram(KERNELS[kernel], points, points)
    if kernel != "linear":  # features of these points alone
        s, V = np.linalg.eigh(K)
        x, at = np.split(V * np.sqrt(np.maximum(s, 0)), [N])
    return task, references.Regression(K[:N, :N], K[N:, :N], y, RIDGE, x, at)


def reference(name, kernel, r, numbers):
    return getattr(references, name)(problem(kernel, r)[1], STEPS, **numbers)


def solve(name, kernel, r, numbers, y=None):
    (task, system), row = problem(kernel, r), SOLVERS[name]
    if y is not None:
        task = task.replace(y=np.insert(y, np.flatnonzero(~KEEP), 0))
    options = {"steps": STEPS} if row.iterates else {}
    if "ridge" in row.required_inputs:
        options["ridge"] = RIDGE
    if "spectrum" in row.required_inputs and "step_size" not in numbers:
        options["spectrum"] = tuple(system.spectrum)
    options |= {**row.options, **numbers}
    if rank := options.pop("rank", None):
        landmarks = {"ridge": options["ridge"], "rank": rank}
        options["preconditioner"] = ik.nystrom(KERNELS[kernel], task.x[KEEP], **landmarks)
    return numpy(helpers.solve(ik.solvers.lookup(row), KERNELS[kernel], task, **options))


def gap(result, expected, iterates=STEPS + 1):
    """The largest error of a field, relative to its largest entry; masked supports have zeros."""
    worst = 0
    for field, value in expected.items():
        ours, tokens = getattr(result, field), TOKENS.get(value.shape[1])
        if ours is None:
            continue
        if tokens is None:
            ours = ours.reshape(value.shape)
        else:
            ours = ours.reshape(len(value), len(tokens), *value.shape[2:])
            if tokens is KEEP or field in ("w", "r", "d", "along"):
                assert not np.any(ours[:, ~tokens])
            ours = ours[:, tokens]
        worst = max(worst, relative(ours[:iterates], value[:iterates]))
    return worst


@pytest.mark.parametrize(("name", "kernel", "r"), [case for row in SOLVERS for case in cases(row)])
def test_all_iterates_equal_the_reference(name, kernel, r):
    """Rounding grows from step to step where there are inner products, but not before the 5th."""
    for numbers in NUMBERS.get(name, ({},)):
        result, expected = solve(name, kernel, r, numbers), reference(name, kernel, r, numbers)
        assert all(s in expected and getattr(result, s) is not None for s in SOLVERS[name].states)
        assert gap(result, expected, 6) < 1e-12
        assert gap(result, expected) < (1e-10 if SOLVERS[name].sums else 1e-12)


def test_a_row_without_a_reference_is_refused():
    missing = [name for name in SOLVERS if not hasattr(references, name)]
    assert not missing, f"tests/references.py needs a textbook formula for {missing}"


@pytest.mark.parametrize("name", [name for name, row in SOLVERS.items() if row.iterates])
def test_a_number_that_is_a_tenth_off_shows(name):
    """Each number of a solver, also a bound of the spectrum: the references would find it wrong."""
    kernel, row = kernels_of(name)[0], SOLVERS[name]
    for numbers in NUMBERS.get(name, ({},)):
        expected = reference(name, kernel, 2, numbers)
        defaults = {"ridge": RIDGE} if "ridge" in row.required_inputs else {}
        if "spectrum" in row.required_inputs and not numbers:
            defaults |= {"spectrum": problem(kernel, 2)[1].spectrum}
        for field, value in (defaults | numbers).items():
            for i in range(0 if field in ("rank", "preconditioner") else np.size(value)):
                wrong = np.array(value, float)
                wrong.flat[i] *= 1.1
                wrong = float(wrong) if wrong.ndim == 0 else wrong
                wrong = tuple(wrong) if field == "spectrum" else wrong
                assert gap(solve(name, kernel, 2, numbers | {field: wrong}), expected) > 1e-4, field


@pytest.mark.parametrize(
    "name",
    [name for name, row in SOLVERS.items() if "conjugate_gradient" in (name, row.variant_of)],
)
def test_directions_are_conjugate_and_n_steps_and_more_are_exact(name):
    """Those before convergence, at most four, which rounding leaves alone; exact from then on."""
    kernel = kernels_of(name)[0]
    (numbers,), (_, system) = NUMBERS.get(name, ({},)), problem(kernel, 2)
    result = solve(name, kernel, 2, numbers)
    for p in result.p[:4, KEEP].T:
        sizes = np.sqrt(np.sum(p * (system.A @ p), axis=0))
        p = (p / sizes)[:, sizes > 1e-6 * sizes[0]]
        assert p.shape[1] > 1
        assert relative(p.T @ system.A @ p, np.eye(p.shape[1])) < 1e-10
    exact = np.linalg.solve(system.A, system.y)
    assert relative(result.alpha[-1, KEEP], exact) < 1e-10
    later = solve(name, kernel, 2, numbers | {"steps": 10 * STEPS})
    assert relative(later.alpha[-1, KEEP], exact) < 1e-10


def test_posterior_and_evidence_are_those_of_gaussians():
    _, system = problem("linear", 2)
    K, (numbers,) = system.gram, NUMBERS["bayesian_average"]
    less = system.cross @ np.linalg.solve(system.A, system.cross.T)
    variance = np.sum(system.at**2, axis=1) - np.diag(less)
    assert relative(solve("prefix_posterior", "linear", 2, {}).variance[-1, -Q:], variance) < 1e-12
    evidence = [
        scipy.stats.multivariate_normal(cov=K + ridge * np.eye(N)).logpdf(system.y.T).sum()
        for ridge in numbers["ridges"]
    ]
    result = solve("bayesian_average", "linear", 2, numbers)
    assert relative(result.log_evidence[-1, -1], evidence) < 1e-12


def test_chebyshev_but_not_conjugate_gradient_is_the_same_for_the_coefficients_of_features():
    for name, numbers, same in (("chebyshev", WIDE, True), ("conjugate_gradient", {}, False)):
        dual, primal = (solve(f"{of}{name}", "linear", 2, numbers) for of in ("", "prefix_"))
        error = relative(primal.prediction, dual.prediction)
        assert error < 1e-12 if same else error > 1e-3


@pytest.mark.parametrize(("name", "worst"), EXTREME.items())
def test_errors_fall_at_the_rate_of_theory(name, worst):
    """In the A-norm, for any y; and not faster for an error along some extreme eigenvectors."""
    _, system = problem("gaussian", None)
    A, t = system.A, np.arange(STEPS + 1)
    normalised = name in ("richardson", "preconditioned_chebyshev")
    s, V = scipy.linalg.eigh(A, np.diag(A.sum(axis=1)) if normalised else None)
    (low, high), numbers = s[[0, -1]], {}
    assert not normalised or RIDGE / (N + RIDGE) < low < high < 1 + 1e-12
    if name == "preconditioned_chebyshev":  # so that its lower bound is attained
        numbers = {"num_supports": N, "largest": RIDGE * (1 / low - 1) / N}
    q = (np.sqrt(high) - np.sqrt(low)) / (np.sqrt(high) + np.sqrt(low))
    if name == "gradient_descent":
        rate = ((high - low) / (high + low)) ** t
    elif name == "heavy_ball":
        rate = q**t * (1 + t + q * t)
    elif name == "richardson":
        rate = (1 - low) ** t
    else:
        rate = 2 * q**t / (1 + q ** (2 * t))
    for i in (None, *worst):
        exact = np.linalg.solve(A, system.y[:, 0]) if i is None else V[:, i]
        errors = solve(name, "gaussian", None, numbers, A @ exact).alpha[:, KEEP] - exact
        norms = np.sqrt(np.einsum("ti,ij,tj->t", errors, A, errors))
        if i is None:
            assert np.all(norms <= norms[0] * rate * (1 + 1e-12))
        else:
            assert np.allclose(norms / norms[0], rate, rtol=1e-10)
