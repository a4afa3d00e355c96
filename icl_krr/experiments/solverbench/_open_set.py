"""The open set: models that run no candidate, as weights of the forward pass or as paths."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from ... import Architecture, Read, Task, Transformer, init, per_step
from ..._core.pytree import pytree_dataclass
from ...catalogue import SOLVERS
from ...constructions import compile
from ...kernels import Gaussian, Kernel, LogBilinear, Mixture
from ...probes import layerwise
from . import _distractor_functions as paths, _distractor_solvers as solvers
from ._models import OPEN, Model, Truth
from ._settings import LINEAR, BenchConfig, BenchFamily, Families


@pytree_dataclass
class Tilted(LogBilinear):
    """exp(c <x, z> - d (|x|^2 + |z|^2) / 2) with d = c / 4, between exponential and Gaussian."""

    inner: Any = 1.0
    projection: Any = None

    def coefficients(self, dtype):
        inner = jnp.asarray(self.inner, dtype)
        return inner, inner / 4


def open_models(families: Families, config: BenchConfig) -> Iterator[Model]:
    """All models that run no candidate; if `config.quick`, one with weights and one without."""
    key = jax.random.fold_in(jax.random.key(config.seed), 9)
    for i, one in enumerate(families.values()):
        for name, build in distractor_transformers(one, jax.random.fold_in(key, i)).items():
            if not config.quick or (name == "steepest descent" and one.name == LINEAR):
                probed = name == "a random transformer"
                yield Model(Truth(OPEN, name), one, weights=build(), probed=probed)
        for name, function in distractor_functions(one).items():
            if not config.quick or (name.startswith("a share") and one.name == LINEAR):
                yield Model(Truth(OPEN, name), one, function=function)


def distractor_transformers(one: BenchFamily, key: jax.Array) -> dict[str, Callable]:
    """Transformers that run no candidate, by what they run."""
    kernel = one.kernel("linear" if one.name == LINEAR else "gaussian")
    steps, p = one.config.steps, one.tasks.num_features
    eta = 1 / one.largest_eigenvalue(kernel)
    built = partial(compile, kernel=kernel, steps=steps, **one.compile_keywords(kernel))
    descent = partial(built, solvers.descent)
    z = jax.random.normal(key, (steps,))
    factors = jnp.exp(0.7 * z), jnp.linspace(0.2, 1.8, steps)
    drawn, rising = (per_step(eta * each) for each in factors)
    size: Any = vars(one.kernel("gaussian"))["lengthscale"]
    stretched = Gaussian(size, projection=jnp.diag(2.0 ** jnp.linspace(-1.5, 1.5, max(p, 2))[:p]))
    tilted = Tilted(1 / size**2)
    mixed = Mixture((Gaussian(0.4 * size), Gaussian(2.5 * size)), jnp.ones(2) / 2)

    def on(other: Kernel) -> Transformer:
        step = 1 / one.largest_eigenvalue(other)
        keywords = one.compile_keywords(other)
        return compile(solvers.descent, other, steps=steps, step_size=step, **keywords)

    def answering(readout: Read) -> Transformer:
        model = descent(step_size=eta)
        return model.replace(weights=model.weights.replace(readout=readout))  # pyright: ignore

    linear = Read({"x": jax.random.normal(key, (p, 1))}, 1)
    sizes = Architecture(num_features=p, width=16, depth=steps, heads=2)
    named = {
        "gradient descent, one drawn step size per layer": partial(descent, step_size=drawn),
        "gradient descent, rising step sizes": partial(descent, step_size=rising),
        "Nesterov's method": partial(built, solvers.nesterov, step_size=eta),
        "averaged descent": partial(built, solvers.averaged_descent, step_size=eta),
        "steepest descent": partial(built, solvers.steepest_descent),
        "gradient descent, a kernel between exponential and Gaussian": lambda: on(tilted),
        "gradient descent, a mixture of Gaussian kernels": lambda: on(mixed),
        "the answer 0": lambda: answering(Read({"prediction": jnp.zeros((1, 1))}, 1)),
        "a linear function of the query, without supports": lambda: answering(linear),
        "a random transformer": lambda: init(key, sizes),
    }
    if p > 1:
        named["gradient descent, an anisotropic Gaussian kernel"] = lambda: on(stretched)
    builders = {name: getattr(build, "func", build) for name, build in named.items()}
    return {name: named[name] for name, of in builders.items() if of.__name__ not in SOLVERS}


def distractor_functions(one: BenchFamily) -> dict[str, Callable[[Task], jax.Array]]:
    """Functions of a task that run no candidate and have no weights, by what they run."""
    kernel = one.kernel("linear" if one.name == LINEAR else "gaussian")
    ridge, steps = one.ridge(kernel), one.config.steps
    eta = 1 / one.largest_eigenvalue(kernel)
    times = jnp.arange(0.0, steps + 1)
    same, falling = ridge + 0 * times, ridge * 10 ** (2 * (steps - times) / (steps - 1))
    flow = eta * (2.0**times - 1)
    rough = paths.laplace(vars(one.kernel("gaussian"))["lengthscale"])
    small = 1 / (one.tasks.num_supports + ridge)
    one_of_each = [one.build(name, kernel) for name in ("gradient_descent", "conjugate_gradient")]

    def mixture(task: Task) -> jax.Array:
        predictions = [layerwise(model, task) for model in one_of_each]
        return (predictions[0] + predictions[1]) / 2

    def forgetful(task: Task) -> jax.Array:
        rest = slice(task.num_supports // 3, None)
        return layerwise(one_of_each[1], task.replace(x=task.x[rest], y=task.y[rest]))

    return {
        "successive over-relaxation": lambda t: paths.over_relaxation(kernel, t, ridge, steps),
        "Anderson acceleration": lambda t: paths.anderson(kernel, t, ridge, steps, eta),
        "exact KRR after every layer": lambda t: paths.exact(kernel, t, same, jnp.sign(times)),
        "exact KRR, a falling ridge": lambda t: paths.exact(kernel, t, falling, jnp.sign(times)),
        "a share of exact KRR": lambda t: paths.exact(kernel, t, same, times / steps),
        "gradient flow, times 1, 2, 4, ...": lambda t: paths.gradient_flow(kernel, t, ridge, flow),
        "gradient descent, Laplace kernel": lambda t: paths.descent(rough, t, ridge, steps, small),
        "mean of gradient descent and conjugate gradient": mixture,
        "conjugate gradient without the first third of the supports": forgetful,
    }
