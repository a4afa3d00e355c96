"""Sketches, feature maps and mixtures: what they are, and what theory says they lose."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import draw, kernel_matrix, relative
from test_kernel_of_ones_own import Tilted

import icl_krr as ik
from icl_krr import sketches, theory
from icl_krr.transformer._evaluate import embed_task

KEY = jax.random.key(0)
EXPONENTIAL, GAUSSIAN = ik.Exponential(2.0), ik.Gaussian(1.5)


def gram(kernel, task):
    return kernel_matrix(kernel, task.x, task.x)


def norm(matrix):
    return np.linalg.norm(matrix, 2)


def test_the_best_sketch_is_that_of_the_singular_values(x64):
    task = draw(0, p=6, n=20)
    x = np.asarray(task.x)
    U, s, _ = np.linalg.svd(x, full_matrices=False)
    for m in (1, 3, 6):
        P = np.asarray(sketches.best(task.x, m))
        assert np.allclose(x @ P @ P.T @ x.T, (U[:, :m] * s[:m] ** 2) @ U[:, :m].T)
        lost = norm(x @ x.T - x @ P @ P.T @ x.T)
        assert np.isclose(lost, theory.sketch_error_best(np.sort(s**2), m), atol=1e-12)
    both = np.stack([task.x, draw(1, p=6, n=20).x])
    together, alone = (np.asarray(sketches.best(x, 2)) for x in (both, both.reshape(40, 6)))
    assert relative(together @ together.T, alone @ alone.T) < 1e-12


def test_random_sketches(x64):
    P = np.asarray(sketches.orthonormal(KEY, 5, 3))
    assert np.allclose(P.T @ P, np.eye(3))
    draws = jax.jit(jax.vmap(lambda key: sketches.gaussian(key, 3, 2)))
    many = np.asarray(draws(jax.random.split(KEY, 20_000)))
    mean = np.mean(many @ np.swapaxes(many, 1, 2), axis=0)
    assert np.allclose(mean, np.eye(3), atol=0.05)
    assert np.array_equal(sketches.coordinates(4, 2), np.eye(4)[:, :2])


def test_landmarks_project_on_their_span(x64):
    """Two that are the same count once."""
    task = draw(0, p=5, n=12)
    x = np.asarray(task.x)
    for rows in (x[:3], np.concatenate([x[:2], x[:1]])):
        points = np.asarray(np.concatenate([rows, x[3:]]))
        P = np.asarray(sketches.landmarks(points, 3))
        assert np.allclose(P @ P.T, np.linalg.pinv(rows) @ rows)


@pytest.mark.parametrize("kernel", [EXPONENTIAL, GAUSSIAN])
def test_nystrom_features(x64, kernel):
    task = draw(0, p=3, n=15)
    K, m = gram(kernel, task), 5
    phi = sketches.nystrom_features(kernel, task.x[:m])
    assert np.allclose(gram(ik.Features(phi), task), K[:, :m] @ np.linalg.inv(K[:m, :m]) @ K[:m])
    best = gram(ik.Features(sketches.nystrom_features(kernel, task.x, width=m)), task)
    sigma, V = np.linalg.eigh(K)
    assert np.allclose(best, (V[:, -m:] * sigma[-m:]) @ V[:, -m:].T)
    assert np.isclose(norm(K - best), theory.sketch_error_best(np.asarray(sigma), m))


POSITIVE = partial(sketches.positive_features, num_features=3)
TRIGONOMETRIC = partial(sketches.trigonometric_features, num_features=3)
MAPS = {
    "positive": lambda key, kernel, m: POSITIVE(key, kernel, width=m, orthogonal=False),
    "orthogonal": lambda key, kernel, m: POSITIVE(key, kernel, width=m),
    "trigonometric": lambda key, kernel, m: TRIGONOMETRIC(key, kernel, width=m),
    "orthogonal trigonometric": lambda key, kernel, m: TRIGONOMETRIC(
        key, kernel, width=m, orthogonal=True
    ),
}
PROJECTION = np.array([[1.0, 0.5, 0.0], [0.0, 1.0, -1.0]])
RANDOM = [
    *(("positive", ik.Exponential, False), ("orthogonal", ik.Gaussian, True)),
    *(("trigonometric", ik.Exponential, False), ("trigonometric", ik.Gaussian, False)),
    *((kind, partial(Tilted, 0.3), True) for kind in ("positive", "trigonometric")),
    *(("trigonometric", kernel, True) for kernel in (ik.Matern12, ik.Matern52)),
    ("orthogonal trigonometric", ik.Matern32, True),
]


@pytest.mark.parametrize(("kind", "kernel", "projected"), RANDOM)
def test_random_features_are_unbiased(x64, kind, kernel, projected):
    kernel = kernel(2.0, PROJECTION if projected else None)
    x, z = np.array([[0.5, -0.3, 0.8]]), np.array([[-0.2, 0.6, 0.4]])
    estimates = np.asarray(
        jax.lax.map(
            lambda key: ik.Features(MAPS[kind](key, kernel, 6))(x, z)[0, 0],
            jax.random.split(KEY, 20_000),
            batch_size=1000,
        )
    )
    error = np.mean(estimates) - kernel_matrix(kernel, x, z)[0, 0]
    assert abs(error) < 4 * np.std(estimates) / np.sqrt(len(estimates))
    if kind != "orthogonal" and isinstance(kernel, ik.Exponential) and not projected:
        name = f"{kind}_variance"
        assert np.isclose(np.var(estimates), getattr(theory, name)(x[0], z[0], 2.0, 6), rtol=0.1)
    if "trigonometric" not in kind:
        assert np.min(estimates) > 0


def test_orthogonal_frequencies(x64):
    W = np.asarray(MAPS["orthogonal"](KEY, EXPONENTIAL, 7).frequencies)
    for block in (W[:3], W[3:6]):
        product = block @ block.T
        assert np.allclose(product, np.diag(np.diag(product)))
    assert len(W) == 7


def test_a_mixture_is_a_sum(x64):
    task = draw(0)
    mixture = ik.Mixture((EXPONENTIAL, GAUSSIAN), weights=np.array([0.3, 2.0]))
    expected = 0.3 * gram(EXPONENTIAL, task) + 2 * gram(GAUSSIAN, task)
    assert np.allclose(gram(mixture, task), expected)
    model = ik.constructions.nadaraya_watson(mixture, num_features=task.num_features)
    assert model.num_heads == 2
    kernels = EXPONENTIAL, GAUSSIAN
    smoothers = [ik.solvers.nadaraya_watson(kernel, task).prediction for kernel in kernels]
    mixed = (0.3 * smoothers[0] + 2 * smoothers[1]) / 2.3
    assert relative(ik.predict(model, task), mixed) < 1e-12
    assert relative(ik.solvers.nadaraya_watson(mixture, task).prediction, mixed) < 1e-12
    P = np.eye(4, 2)
    parts = (ik.sketched(EXPONENTIAL, P), ik.sketched(GAUSSIAN, P))
    expected = 0.3 * gram(parts[0], task) + 2 * gram(parts[1], task)
    assert np.allclose(gram(ik.sketched(mixture, P), task), expected)


def sketched_model(kernel, P, **options):
    return ik.constructions.conjugate_gradient(
        kernel, num_features=P.shape[0], ridge=0.3, steps=4, sketch=P, **options
    )


@pytest.mark.parametrize("kernel", [ik.Linear(), EXPONENTIAL, GAUSSIAN])
def test_m_channels_carry_the_features(x64, kernel):
    task = draw(0, p=5, n=12)
    P = sketches.gaussian(KEY, 5, 2)
    model = sketched_model(kernel, P, width=2)
    stream = embed_task(model, task)
    assert stream["x"].shape == (1 + 12 + task.num_queries, 2)
    x = task.x - np.mean(task.x, axis=0, keepdims=True) * model.spec.centred
    assert np.allclose(stream["x"][1:13], x @ P)
    full = ik.constructions.conjugate_gradient(kernel, num_features=5, ridge=0.3, steps=4)
    assert model.layout.width == full.layout.width - 3


TOLD = {
    "sketch": (np.eye(3, 2) + 0.1, lambda P: (GAUSSIAN, P)),
    "projection": (PROJECTION / 3, lambda U: (ik.Polynomial(4, U), None)),
}


@pytest.mark.parametrize("name", TOLD)
def test_gradients_reach_what_features_are_told(x64, name):
    """Through the weights, equal to those through the solver."""
    task, (at, of) = draw(0, p=3, n=10), TOLD[name]

    def by_weights(at):
        kernel, sketch = of(at)
        model = cg(kernel, sketch=sketch).rebuild(ridge=0.3, steps=4)
        return jnp.sum(ik.predict(model, task) ** 2)

    def by_solver(at):
        kernel, sketch = of(at)
        sketched_kernel = kernel if sketch is None else ik.sketched(kernel, sketch)
        path = ik.solvers.conjugate_gradient(sketched_kernel, task, ridge=0.3, steps=4)
        return jnp.sum(path.prediction[-1] ** 2)

    assert relative(*(jax.jit(jax.grad(of))(at) for of in (by_weights, by_solver))) < 1e-9


def cg(kernel=ik.Linear(), **kwargs):  # noqa: B008
    return ik.constructions.conjugate_gradient(kernel, num_features=3, ridge=1.0, steps=1, **kwargs)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sketched_model(ik.Linear(), jnp.eye(4, 2), width=3),
         "width must be 2, the width of the sketch, got 3"),
        (lambda: cg(sketch=jnp.eye(4, 2)),
         r"sketch must be \[p, m\] with p = num_features = 3, got shape \[4, 2\]"),
        (lambda: ik.constructions.richardson(
            EXPONENTIAL, num_features=3, ridge=1.0, steps=1,
            sketch=MAPS["positive"](KEY, EXPONENTIAL, 4)), "kernel must be"),
        (lambda: sketches.trigonometric_features(KEY, GAUSSIAN, num_features=2, width=3),
         "width must be even, got 3; use 4"),
        (lambda: sketches.positive_features(KEY, ik.Linear(), num_features=2, width=3),
         "another LogBilinear to have random features"),
        (lambda: cg(ik.Features(lambda x: x)),
         "map must have a method layer, as RandomFeatures and NystromFeatures have"),
        (lambda: cg(GAUSSIAN, sketch=sketches.nystrom_features(
            ik.Mixture((GAUSSIAN,), weights=jnp.ones(1)), jnp.ones((2, 3)))),
         "another LogBilinear to be computed at landmarks"),
        (lambda: ik.Mixture((), weights=jnp.ones(0)), "kernels must be a tuple of at least one"),
        (lambda: ik.Mixture((ik.Linear(),), weights=jnp.ones(1)), "kernels must be positive"),
        (lambda: ik.Mixture((GAUSSIAN,), weights=jnp.ones(2)), "weights must have one entry"),
        (lambda: cg(EXPONENTIAL, sketch=MAPS["positive"](KEY, EXPONENTIAL, 4),
                    arithmetic=ik.ReLU(16, 4.0)), "arithmetic"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_one_sentence(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()
