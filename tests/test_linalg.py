"""Factorisations: right, differentiable, and never batched on the CPU."""

import os
import re
import subprocess
import sys
from functools import partial
from itertools import product

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


def derivatives(function, *arrays):
    """First and second ones in every argument."""
    each = [*product((jax.grad, jax.jacfwd, jax.hessian), range(len(arrays)))]
    return jax.jit(lambda *arrays: [derive(function, at)(*arrays) for derive, at in each])(*arrays)


def test_solve_with_first_and_second_derivatives(x64):
    A, b = systems()
    assert relative(jax.jit(jax.vmap(linalg.solve))(A, b), np.linalg.solve(A, b)) < 1e-13
    solvers = (linalg.solve, jnp.linalg.solve)
    ours, theirs = (lambda A, b, f=f: jnp.sum(jnp.sin(f(A + A.T, b))) for f in solvers)
    for result, expected in zip(*(derivatives(f, A[0], b[0]) for f in (ours, theirs)), strict=True):
        assert relative(result, expected) < 1e-11
    sums = [lambda A, f=f: jnp.sum(jax.vmap(f)(A, b)) for f in (ours, theirs)]
    batched = [jax.jit(jax.grad(f))(A) for f in sums]
    assert relative(*batched) < 1e-11


def test_eigh_with_first_and_second_derivatives(x64):
    A = systems()[0][0]
    sigma, vectors = numpy(linalg.eigh(A))
    assert relative(vectors * sigma[None] @ vectors.T, A) < 1e-13

    def loss(A, eigh):
        sigma, vectors = eigh(A + A.T)
        return jnp.sum(jnp.cos(sigma)) + jnp.sum(vectors**4)

    both = (derivatives(partial(loss, eigh=eigh), A) for eigh in (linalg.eigh, jnp.linalg.eigh))
    for result, expected in zip(*both, strict=True):
        assert relative(result, expected) < 1e-9


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


SCRIPT = """
import sys, threading, jax, jax.numpy as jnp, icl_krr as ik
config = ik.tasks.GaussianProcess(ik.Exponential(0.5), inputs="sphere")
keys = jax.random.split(jax.random.key(0), 512)
tasks = jax.jit(jax.vmap(lambda key: ik.tasks.sample(key, config)))(keys)
solve = jax.vmap(lambda task: ik.solvers.exact(config.kernel, task, ridge=1.0).alpha)
if sys.argv[1] == "one program":
    shifted = [tasks.replace(y=tasks.y + i, x=tasks.x * (1 + i)) for i in range(4)]
    program = jax.jit(lambda parts: [solve(part) for part in parts])
    for _ in range(10):
        jax.block_until_ready(program(shifted))
else:
    program = jax.jit(solve)
    def work():
        for _ in range(10):
            jax.block_until_ready(program(tasks))
    threads = [threading.Thread(target=work) for _ in range(2)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
print("done")
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["one program", "two threads"])
def test_factorisations_that_run_at_once_do_not_hang(how):
    """With `jax.vmap(jnp.linalg.cholesky)` in place of `linalg.solve` both hang (jaxlib 0.10.2)."""
    as_users_do = {name: value for name, value in os.environ.items() if "OPENBLAS" not in name}
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, how],
        env=as_users_do,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert run.stdout == "done\n"
