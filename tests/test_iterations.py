"""What iterative solvers do beside their iterates: exact limits and refused arguments."""

import jax
import numpy as np
import pytest
from helpers import draw, kernel_matrix, numpy, relative

import icl_krr as ik

nystrom = jax.jit(ik.nystrom, static_argnames="rank")


def test_nystrom_of_full_rank_solves_in_one_step(x64):
    task, kernel = draw(7, n=6), ik.Gaussian(2.0)
    full = numpy(nystrom(kernel, task.x, ridge=0.5, rank=6))
    solve = ik.solvers.preconditioned_conjugate_gradient
    path = solve(kernel, task, ridge=0.5, steps=1, preconditioner=full)
    assert relative(path.alpha[1], ik.solvers.exact(kernel, task, ridge=0.5).alpha) < 1e-9
    twice = np.concatenate([task.x[:2], task.x])  # a singular matrix of landmarks
    singular = nystrom(kernel, twice, ridge=0.5, rank=4)
    assert all(bool(np.all(np.isfinite(a))) for a in (singular.mix, singular.core))
    with pytest.raises(ValueError, match="rank must be <= n = 6, the number of points, got 7"):
        ik.nystrom(kernel, task.x, ridge=0.5, rank=7)


def test_posterior_needs_a_model_of_one_output():
    sizes = {"num_features": 3, "num_outputs": 2, "steps": 4}
    model = ik.constructions.conjugate_gradient(ik.Linear(), ridge=0.7, **sizes)
    with pytest.raises(ValueError, match="model must have one output"):
        ik.posterior(model, ik.Linear(), draw(0, p=3, n=12, r=2))


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
    *(("heavy_ball", ik.Gaussian(), numbers, message) for numbers, message in (
        ({"step_size": 1.0, "spectrum": (1.0, 2.0)}, "got both"),
        ({"step_size": 1.0}, "momentum must be given with step_size, got None"),
        ({"spectrum": (1.0, 2.0), "momentum": 0.5}, "momentum must be None if spectrum is given"),
    )),
    ("richardson", ik.Gaussian(), {"step_size": 2.0}, "step_size must be < 2 to converge, got 2.0"),
    ("preconditioned_conjugate_gradient", ik.Gaussian(), {"preconditioner": "ilu"},
     "preconditioner must be one of 'jacobi'"),
    ("newton_schulz", ik.Gaussian(), {"spectrum": (1.0, 2.0)}, "kernel must be"),
    ("richardson", ik.Linear(), {}, "kernel must be"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "kernel", "numbers", "message"), WRONG)
def test_missing_and_wrong_arguments_are_one_sentence(name, kernel, numbers, message):
    common = {"ridge": 1.0, "steps": 2, **numbers}
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
        ("richardson", ik.Gaussian(), {"attention": "linear"}, "attention must be 'softmax' for"),
        ("preconditioned_conjugate_gradient", ik.Gaussian(), {"preconditioner": preconditioner},
         "attention must be 'linear' for a Nystrom"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            getattr(ik.constructions, name)(kernel, num_features=4, ridge=1.0, steps=2, **options)
