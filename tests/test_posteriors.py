"""Posterior, evidence and model averages that a causal model computes by itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import draw, numpy, relative
from scipy.special import softmax
from scipy.stats import norm
from sklearn.gaussian_process import GaussianProcessRegressor, kernels as sk

import icl_krr as ik
from icl_krr import constructions, solvers

P, N, RIDGE = 3, 9, 0.3
EDGES = np.array([-1.0, 0.0, 2.0])


def draw_task(seed=0, r=2):
    return numpy(draw(seed, P, N, r=r).replace(mask=np.arange(N) % 4 != 1))


def family(task):
    """Three kernels with different numbers of features, and their ridges."""
    sizes = ((1.0, 4), (2.5, 6))
    maps = [ik.sketches.nystrom_features(ik.Gaussian(s), task.x[:m]) for s, m in sizes]
    return (*map(ik.Features, maps), ik.Linear()), np.array([0.3, 0.2, 0.5])


def slots(model, task, *names):
    """The slots after the last step, at the supports of paired tokens and at the queries."""
    cache = ik.run_with_cache(model, task, names=names)[1]
    return [np.asarray(cache[name])[-1, 1:] for name in names]


def cut(task, i):
    """The supports before i, and as query the support i; all supports and the queries for N.

    The support is asked for as often as there are queries: one program answers every prefix.
    """
    if i == N:
        return task.replace(y_query=None)
    mask = (np.arange(N) < i) & task.mask
    return task.replace(mask=mask, x_query=np.repeat(task.x[i : i + 1], 3, axis=0), y_query=None)


def gap(a, b):
    return np.max(np.abs(np.asarray(a) - np.asarray(b)))


PAIRED = {"prefix": "inclusive", "strength": 0.5, "form": "fused"}
INTERLEAVED = {"tokens": "interleaved", "max_supports": N, "log_gate": -0.2}


@pytest.mark.parametrize("options", [PAIRED, INTERLEAVED | {"strength": np.eye(P)[2]}])
def test_gates_and_strengths_weigh_the_supports(x64, options):
    task = draw_task()
    x = task.x.copy()
    x[:, 2] = 1 / (1 + np.exp(-x[:, 2]))
    task = task.replace(x=x)
    needs = {"ridge": RIDGE, "steps": P + 1, "approximates": ik.Linear(2 * np.eye(P))}
    sizes = {"num_features": P, "num_outputs": 2}
    model = constructions.prefix_posterior(ik.Linear(), **sizes, **needs, **options)
    bare = {k: v for k, v in options.items() if k not in ("tokens", "max_supports", "form")}
    oracle = numpy(solvers.prefix_posterior(ik.Linear(), task, **needs, **bare))
    assert relative(ik.predict_along(model, task), oracle.along[-1]) < 1e-11
    (variance,) = slots(model, task, "variance")
    x_tokens = [*range(len(variance))] if "tokens" not in options else [-1]
    assert relative(variance[x_tokens], oracle.variance[-1, x_tokens, None]) < 1e-11
    if "prefix" in options:  # noise of variance ridge / strength
        best = numpy(solvers.posterior(ik.Linear(), task, ridge=RIDGE / 0.5))
        assert relative(oracle.prediction[-1], best.mean) < 1e-11
        options = {"num_features": P, "ridge": RIDGE / 0.5, "steps": 24}
        single = constructions.conjugate_gradient(ik.Linear(), **options)
        for ours, exact in zip(ik.posterior(single, ik.Linear(), task), best, strict=True):
            assert relative(ours, exact) < 1e-9
        left_out = 3 * np.sum(task.x_query**2, axis=1)
        assert relative(oracle.variance[-1, N:], best.variance + left_out) < 1e-11


def test_with_all_supports_as_landmarks_it_is_the_process_of_the_kernel(x64):
    """As scikit-learn computes it, on rows of a table that comes with scikit-learn."""
    table = ik.tasks.diabetes()
    x, y = (np.asarray(a, np.float64) for a in (table.x, table.y))
    x, y = (x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std()
    train, test = slice(0, 32), slice(32, 48)
    peer = GaussianProcessRegressor(sk.RBF(3.0), alpha=0.5, optimizer=None).fit(x[train], y[train])
    mean, deviation = peer.predict(x[test], return_std=True)
    task = ik.Task(x=np.asarray(x[train]), y=np.asarray(y[train]), x_query=np.asarray(x[test]))
    features = ik.Features(numpy(ik.sketches.nystrom_features(ik.Gaussian(3.0), task.x)))
    sizes = {"num_features": 10, "steps": 33, "approximates": ik.Gaussian(3.0)}
    model = constructions.prefix_posterior(features, ridge=0.5, **sizes)
    variance = slots(model, task, "variance")[0]
    assert ik.check(model, task).ok
    assert gap(ik.predict(model, task), mean) < 1e-10
    assert gap(np.sqrt(variance[32:]), deviation) < 1e-10
    average = constructions.bayesian_average(features, ridges=np.array([0.5, 0.1]), **sizes)
    evidence = slots(average, task, "log_evidence")[0][-1]
    assert abs(evidence[0] - peer.log_marginal_likelihood_value_) < 1e-10
    wrong = constructions.prefix_posterior(features, ridge=0.5, num_features=10, steps=33)
    assert gap(np.sqrt(slots(wrong, task, "variance")[0][32:]), deviation) > 1e-3


def test_the_average_is_that_of_exact_bayes_at_every_prefix(x64):
    task = draw_task(1)
    kernels, ridges = family(task)
    model = constructions.bayesian_average(
        kernels, num_features=P, ridges=ridges, steps=8, num_outputs=2, edges=EDGES
    )
    assert model.blocks_per_step == 7
    along = numpy(ik.predict_along(model, task))
    evidence, weights, means, variances, bins = slots(
        model, task, "log_evidence", "weights", "means", "variances", "bins"
    )
    for i in (4, N):
        at = slice(i, i + 1) if i < N else slice(N, None)
        prefix = cut(task, i)
        pairs = [*zip(kernels, ridges, strict=True)]
        true = np.stack([solvers.log_marginal_likelihood(k, prefix, ridge=s) for k, s in pairs])
        each = [solvers.posterior(k, prefix, ridge=s) for k, s in pairs]
        w = softmax(true)
        mean = np.stack([p.mean for p in each])
        variance = np.stack([p.variance for p in each]) + np.asarray(ridges)[:, None]
        assert gap(evidence[at], true[None]) < 1e-11
        assert gap(weights[at], w[None]) < 1e-11
        assert gap(means[at].reshape(-1, 3, 2).swapaxes(0, 1), mean) < 1e-11
        assert gap(variances[at].T, variance) < 1e-11
        assert gap(along[at], np.einsum("g,gqr->qr", w, mean)) < 1e-11
        scale = np.sqrt(variance)[:, :, None, None]
        cdf = np.einsum("g,gqre->qre", w, norm.cdf(EDGES, mean[..., None], scale))
        ends = np.zeros((*cdf.shape[:2], 1))
        share = np.diff(np.concatenate([ends, cdf, ends + 1], 2))
        assert gap(bins[at].reshape(-1, *share.shape[1:]), share) < 1e-11


def test_interleaved_tokens_and_another_form_have_the_same_average(x64):
    task = draw_task(2, r=None)
    kernels, ridges = family(task)
    options = {"num_features": P, "ridges": ridges, "steps": 8}
    pairs = constructions.bayesian_average(kernels, **options)
    options |= {"tokens": "interleaved", "max_supports": N, "form": "fused"}
    other = constructions.bayesian_average(kernels, **options)
    assert gap(ik.predict_along(pairs, task), ik.predict_along(other, task)) < 1e-11


def test_hard_selection_is_the_limit(x64):
    task = draw_task(4)
    kernels, ridges = family(task)
    options = {"num_features": P, "ridges": ridges, "steps": 8, "num_outputs": 2}
    soft = constructions.bayesian_average(kernels, **options)
    hard = constructions.bayesian_average(kernels, sharpness=1e6, **options)
    evidence, means = slots(soft, task, "log_evidence", "means")
    best = int(np.argmax(evidence[-1]))
    assert gap(slots(hard, task, "weights")[0][-1], np.eye(3)[best]) < 1e-12
    chosen = means[N:].reshape(-1, 3, 2)[:, best]
    assert gap(ik.predict(hard, task), chosen) < 1e-12
    assert gap(ik.predict(soft, task), chosen) > 1e-4


def test_evidences_that_differ_by_thousands_neither_overflow_nor_become_nan():
    task = draw(5, P, 32)
    task = task.replace(y=100 * task.y)
    ridges = np.array([1e-2, 1.0, 1e4])
    model = constructions.bayesian_average(ik.Linear(), num_features=P, ridges=ridges, steps=5)
    evidence, weights = slots(model, task, "log_evidence", "weights")
    assert evidence.dtype == np.float32
    assert np.ptp(evidence[-1]) > 1000
    assert np.isfinite(weights).all()
    assert np.allclose(weights.sum(-1), 1, atol=1e-6)
    slope = jax.jit(jax.grad(lambda s: jnp.sum(ik.predict(
        constructions.bayesian_average(ik.Linear(), num_features=P, ridges=s, steps=5), task
    ))))(ridges)  # fmt: skip
    assert np.isfinite(slope).all()


def test_the_gradient_of_the_evidence_is_that_of_the_marginal_likelihood(x64):
    task = draw_task(6)

    def evidence(ridge):
        model = constructions.bayesian_average(
            ik.Linear(), num_features=P, ridges=ridge[None], steps=5, num_outputs=2
        )
        cache = ik.run_with_cache(model, task, names=("log_evidence",))[1]
        return cache["log_evidence"][-1, -1, 0]

    def exact(s):
        return solvers.log_marginal_likelihood(ik.Linear(), task, ridge=s)

    ours, theirs = (jax.jit(jax.grad(of))(RIDGE) for of in (evidence, exact))
    assert relative(ours, theirs) < 1e-8


def test_the_variance_grows_with_the_steps_and_is_too_small_before_the_last(x64):
    task = draw_task(7)
    features = ik.Features(ik.sketches.nystrom_features(ik.Gaussian(1.0), task.x))
    path = numpy(solvers.prefix_posterior(features, task, ridge=0.05, steps=N + 1))
    assert (np.diff(path.variance, axis=0) > -1e-13).all()
    best = numpy(solvers.posterior(features, task, ridge=0.05).variance)
    assert (path.variance[2, N:] < best - 1e-4).any()
    assert gap(path.variance[-1, N:], best) < 1e-11


def test_what_the_variance_lacks_is_at_most_the_gap_that_the_model_gives(x64):
    task = draw_task(8)
    kernel = ik.Features(ik.sketches.nystrom_features(ik.Gaussian(1.0), task.x[:6]))
    options = {"num_features": P, "num_outputs": 2, "approximates": ik.Gaussian(1.0)}
    full = kernel.diagonal(task.x_query)
    variances = numpy(solvers.posterior(kernel, task, ridge=0.05).variance) + 0.05 + (1 - full)
    single = constructions.prefix_posterior(kernel, ridge=0.05, steps=2, **options)
    ridges = np.array([1.0, 0.05])
    average = constructions.bayesian_average(kernel, ridges=ridges, steps=3, **options)
    for model in (single, average):
        readouts = numpy(ik.readouts(model, task))
        lack = variances - readouts["variances"][:, -1]
        gaps = readouts["variance_gaps"][:, -1]
        assert (lack > 1e-6).all()
        assert (lack < gaps).all()
        assert (gaps < 1).all()
    whole = ik.Features(ik.sketches.nystrom_features(ik.Gaussian(1.0), task.x))
    right = constructions.prefix_posterior(whole, ridge=0.05, steps=30, **options)
    assert ik.check(right, task, kernel=ik.Gaussian(1.0), ridge=0.05).error < 1e-10
    zero = task.replace(y=0 * task.y)  # whose mean is right after any number of steps
    status = numpy(ik.check(single, zero))
    assert status.error == pytest.approx(float(np.max(lack / full)))
    assert "not converged" in status.advice()
    assert ik.check(single.replace(steps=7), zero).ok


def test_the_variances_of_the_solver_are_those_of_its_coefficients_in_float32():
    """Of every step: with a sum of products, XLA's CPU backend returns wrong ones from step 63."""
    x, y = (jax.random.normal(jax.random.key(k), (520, 32)[: 2 - k]) for k in (0, 1))
    task = ik.Task(x=x[:512] / 6, y=y[:512], x_query=x[512:] / 6)
    path = numpy(solvers.prefix_posterior(ik.Linear(), task, ridge=0.01, steps=72))
    products = np.einsum("ltm,tm->lt", path.h, np.concatenate([task.x, task.x_query]), dtype=float)
    assert gap(path.variance, 0.01 * products) < 1e-5


def test_the_evidence_of_approximating_features_does_not_depend_on_the_order(x64):
    """What the features leave out is in the variances only: the evidence is that of features."""
    task = draw(9, P, N, r=2)
    kernel = ik.Features(ik.sketches.nystrom_features(ik.Gaussian(1.0), task.x[:3]))
    model = constructions.bayesian_average(
        (kernel, ik.Linear()), num_features=P, ridges=np.array([0.1, 0.5]), steps=9, num_outputs=2,
        approximates=(ik.Gaussian(1.0), ik.Linear(2 * np.eye(P))), edges=EDGES,
    )  # fmt: skip
    back = task.replace(x=task.x[::-1], y=task.y[::-1])
    readouts = [ik.readouts(model, t) for t in (task, back)]
    for name in ("log_evidence", "weights", "variances", "bins", "prediction"):
        assert gap(*(one[name] for one in readouts)) < 1e-11, name
    for g, (one, ridge) in enumerate(((kernel, 0.1), (ik.Linear(), 0.5))):
        exact = numpy(solvers.log_marginal_likelihood(one, task, ridge=ridge))
        assert gap(readouts[0]["log_evidence"][:, g], exact) < 1e-11
    bins = numpy(ik.uncertainty.bins(ik.predictive(model, task), EDGES))
    assert gap(readouts[0]["bins"].reshape(bins.shape), bins) < 1e-12
    path = numpy(solvers.bayesian_average(
        (kernel, ik.Linear()), task, ridges=np.array([0.1, 0.5]), steps=9,
        approximates=(ik.Gaussian(1.0), ik.Linear(2 * np.eye(P))),
    ))  # fmt: skip
    assert gap(readouts[0]["variances"], path.variances[-1, N:]) < 1e-11
    cache = numpy(ik.run_with_cache(model, task, names=("log_evidence",)))[1]
    assert np.isfinite(cache["log_evidence"]).all()
