"""The table of constructions, and tasks to run them on."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import icl_krr as ik


class Case(NamedTuple):
    """A construction, its oracle, and the states they share after every step."""

    name: str
    kernel: ik.Kernel
    build: Callable  # (task, ridge, steps) -> Transformer
    oracle: Callable  # (task, ridge, steps) -> Trajectory
    states: tuple[str, ...]
    blocks_per_step: int


def sizes(task):
    return {"num_features": task.num_features, "num_outputs": task.num_outputs}


def cg(task, ridge, steps, **options):
    return ik.constructions.conjugate_gradient(
        ik.Linear(), ridge=ridge, steps=steps, **sizes(task), **options
    )


def cg_oracle(task, ridge, steps):
    return ik.solvers.conjugate_gradient(ik.Linear(), task, ridge=ridge, steps=steps)


def gd(task, ridge, steps, **options):
    spectrum = ik.spectral_bounds(ik.Linear(), task, ridge=ridge)
    return ik.constructions.gradient_descent(
        ik.Linear(), ridge=ridge, steps=steps, spectrum=spectrum, **sizes(task), **options
    )


def gd_oracle(task, ridge, steps):
    spectrum = ik.spectral_bounds(ik.Linear(), task, ridge=ridge)
    return ik.solvers.gradient_descent(
        ik.Linear(), task, ridge=ridge, steps=steps, spectrum=spectrum
    )


EXPONENTIAL = ik.Exponential(temperature=1.5)


def nw(task, ridge, steps, **options):
    return ik.constructions.nadaraya_watson(EXPONENTIAL, **sizes(task), **options)


class Smoothed(NamedTuple):
    prediction: jax.Array


def nw_oracle(task, ridge, steps):
    smooth = ik.solvers.nadaraya_watson(EXPONENTIAL, task).prediction
    return Smoothed(jnp.stack([0 * smooth, smooth]))


CONSTRUCTIONS = (
    Case("conjugate_gradient", ik.Linear(), cg, cg_oracle, ("alpha", "r", "p", "prediction"), 5),
    Case("gradient_descent", ik.Linear(), gd, gd_oracle, ("alpha", "r", "prediction"), 1),
    Case("nadaraya_watson", EXPONENTIAL, nw, nw_oracle, ("prediction",), 1),
)


def train(model, loss, rate, steps):
    """Adam on all weights; the losses on the way, and the model at the end."""
    optimiser = optax.adam(rate)

    @jax.jit
    def update(model, state):
        value, gradient = jax.value_and_grad(loss)(model)
        updates, state = optimiser.update(gradient, state)
        return optax.apply_updates(model, updates), state, value

    state, losses = optimiser.init(model), []
    for _ in range(steps):
        model, state, value = update(model, state)
        losses.append(float(value))
    return losses, model


def draw(seed, p=4, n=7, q=3, r=None, noise=0.1):
    config = ik.tasks.LinearRegression(
        num_features=p, num_supports=n, num_queries=q, num_outputs=r, noise=noise
    )
    return ik.tasks.sample(jax.random.key(seed), config)


def numpy_exact(x, y, x_query, ridge):
    """Kernel ridge regression on the linear kernel, written once more in NumPy."""
    x, y, x_query = (np.asarray(a, np.float64) for a in (x, y, x_query))
    return x_query @ x.T @ np.linalg.solve(x @ x.T + ridge * np.eye(len(x)), y)


def relative(a, b):
    """The largest error of a against b, relative to the largest entry of b."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    assert a.shape == b.shape
    scale = np.max(np.abs(b))
    return np.max(np.abs(a - b)) / (scale if scale > 0 else 1)
