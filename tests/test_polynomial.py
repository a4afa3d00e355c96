"""The polynomial kernel of power attention: its features, and constructions that compute them."""

import jax
import numpy as np
import pytest
from helpers import draw, kernel_matrix, relative

import icl_krr as ik
from icl_krr.kernels._weighted import weighted

X, Z = np.random.default_rng(0).normal(size=(2, 6, 3))
U = np.random.default_rng(1).normal(size=(2, 3))


@pytest.mark.parametrize("degree", [1, 2, 3, 4])
def test_features_have_the_values_of_the_kernel(degree, x64):
    kernel = ik.Polynomial(degree, projection=U)
    values = (X @ U.T @ (Z @ U.T).T) ** degree
    phi, psi = map(np.asarray, map(kernel.feature_map, (X, Z)))
    assert phi.shape[1] == degree + 1
    assert relative(phi @ psi.T, values) < 1e-13
    assert relative(kernel_matrix(kernel, X, Z), values) < 1e-13
    assert relative(kernel_matrix(ik.sketched(ik.Polynomial(degree), U.T), X, Z), values) < 1e-13
    assert relative(kernel.diagonal(X), np.sum(phi**2, axis=1)) < 1e-13


@pytest.mark.parametrize(("degree", "mlps"), [(1, 0), (2, 1), (7, 3)])
def test_the_first_mlps_compute_the_features(degree, mlps, x64):
    """And sketches, factors of points and bandwidths of an average act before them."""
    task = draw(3, 3, 9)
    options = {"ridge": 0.5, "steps": 1}
    sizes = {"num_features": 3, **options}
    kernel = ik.Polynomial(degree)
    model = ik.constructions.gradient_descent(kernel, sketch=U.T, **sizes, step_size=0.1)
    path = ik.solvers.gradient_descent(ik.sketched(kernel, U.T), task, step_size=0.1, **options)
    assert len(model.weights.prologue) == mlps
    assert relative(ik.predict(model, task), path.prediction[-1]) < 1e-12
    both = weighted(kernel, 2)
    model = ik.constructions.gradient_descent(both, step_size=0.01, **sizes)
    path = ik.solvers.gradient_descent(both, task, step_size=0.01, **options)
    assert relative(ik.predict(model, task), path.prediction[-1]) < 1e-12


def test_landmarks_see_it(x64):
    """With weights, too; as many landmarks as features leave nothing out."""
    task, kernel = draw(4, 2, 9), ik.Polynomial(3)
    options = {"ridge": 0.5, "steps": 1, "step_size": 0.01}
    for one, points in ((kernel, task), (weighted(ik.Polynomial(3), 1), task)):
        phi = ik.sketches.nystrom_features(one, points.x[:4], width=3)
        model = ik.constructions.gradient_descent(one, num_features=2, sketch=phi, **options)
        path = ik.solvers.gradient_descent(ik.sketched(one, phi), points, **options)
        assert relative(ik.predict(model, points), path.prediction[-1]) < 1e-11


def test_power_attention_is_one_step_of_a_causal_machine(x64):
    """With queries that are not keys, as supports of strength 0, and with gates of tokens."""
    q, k, v = np.random.default_rng(2).normal(size=(3, 5, 2))
    gates = -np.random.default_rng(3).random(5)
    keys, reads = (np.column_stack([a, g, s]) for a, g, s in
                   ((k, gates, np.ones(5)), (q, 0 * gates, 0 * gates)))  # fmt: skip
    x = np.stack([keys, reads], axis=1).reshape(10, 4)
    task = ik.Task(x=x, y=np.repeat(v, 2, axis=0), x_query=x[:1])
    m = ik.constructions.prefix_sums(
        ik.Polynomial(2, projection=np.eye(2, 4)), num_features=4, num_outputs=2, ridge=1.0,
        prefix="inclusive", log_gate=np.eye(4)[2], strength=np.eye(4)[3],
    )  # fmt: skip
    output = m.state("output", ("support", "query"), "sum_j e^(G_i - G_j) <q_i, k_j>^2 v_j")
    sums = m.vector("sums", "sum_j e^(G_i - G_j) phi_j v_j", starts_as=m.right)
    model = m.transformer(lambda: m.add_fit(sums, None, to=output), steps=1, readout=output)
    total = np.cumsum(gates)
    weights = np.tril(np.exp(total[:, None] - total)) * (q @ k.T) ** 2
    assert relative(ik.predict_along(model, task)[1:10:2], weights @ v) < 1e-12


def test_what_overflows_is_reported():
    """In float32, where <x, z>^4 is infinite for x of size 1e10."""
    task = jax.tree.map(np.float32, draw(7, 2, 9))
    task = task.replace(x=task.x * np.float32(1e10), x_query=task.x_query * np.float32(1e10))
    kernel = ik.Polynomial(4)
    model = ik.constructions.conjugate_gradient(kernel, num_features=2, ridge=0.5, steps=3)
    for status in (ik.check(model, task), ik.solvers.exact(kernel, task, ridge=0.5).status):
        assert not status.ok
        assert "the kernel overflows float32: scale x down" in status.advice()
