"""Factorisations: right, and never batched on the CPU."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import numpy, relative

import icl_krr as ik
from icl_krr._core import linalg

KERNEL = ik.Exponential(0.5)
CONFIG = ik.tasks.GaussianProcess(KERNEL, num_supports=5, num_queries=2)


def systems():
    random = np.random.default_rng(0)
    roots = random.normal(size=(6, 5, 5))
    return roots @ roots.swapaxes(1, 2) + np.eye(5), random.normal(size=(6, 5, 2))


def test_solutions_and_eigenvectors(x64):
    A, b = systems()
    assert relative(jax.jit(jax.vmap(linalg.solve))(A, b), np.linalg.solve(A, b)) < 1e-13
    sigma, vectors = numpy(jax.jit(linalg.eigh)(A[0]))
    assert relative(vectors * sigma[None] @ vectors.T, A[0]) < 1e-13
    assert relative(linalg.eigenvalues(A[0]), sigma) < 1e-13


def test_an_indefinite_matrix_is_not_a_number():
    assert np.all(np.isnan(linalg.solve(-np.eye(2), np.ones((2, 1)))))


PROGRAMS = {
    "exact": lambda task: ik.solvers.exact(KERNEL, task, ridge=0.1).prediction,
    "gradient of exact": lambda task: jax.grad(
        lambda y: jnp.sum(ik.solvers.exact(KERNEL, task.replace(y=y), ridge=0.1).prediction)
    )(task.y),
    "posterior": lambda task: ik.solvers.posterior(KERNEL, task, ridge=0.1).variance,
    "leave one out": lambda task: ik.solvers.leave_one_out(KERNEL, task, ridge=0.1),
    "spectral bounds": lambda task: jnp.stack(ik.spectral_bounds(KERNEL, task, ridge=0.1)),
    "nystrom": lambda task: ik.nystrom(KERNEL, task.x, ridge=0.1, rank=2).core,
    "preconditioned": lambda task: ik.theory.preconditioned_eigenvalues(
        KERNEL, task, ridge=0.1, sink=1.0
    ),
    "draws": lambda task: ik.tasks.sample(jax.random.key(0), CONFIG).y,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_public_function_batches_a_factorisation(name):
    """Two nested vmaps: every LAPACK call works on one matrix (or on a batch of one)."""
    keys = jax.random.split(jax.random.key(0), (3, 2))
    program = PROGRAMS[name]

    def run(key):
        task = ik.tasks.sample(key, CONFIG)
        return ik.tasks.sample(key, CONFIG).y if name == "draws" else program(task)

    text = jax.jit(jax.vmap(jax.vmap(run))).lower(keys).as_text()
    calls = re.findall(r"custom_call @(lapack_\w+|\w*(?:potrf|trsm|syevd|geqrf)\w*)\((.*)", text)
    assert calls
    for called, line in calls:
        shapes = re.findall(r"tensor<([\dx]+)xf32>", line)
        assert all(shape.count("x") <= 1 for shape in shapes), (called, shapes)
