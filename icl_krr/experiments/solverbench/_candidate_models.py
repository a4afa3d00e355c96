"""Models that run a candidate: exact, causal, rotated, superposed, perturbed and fine-tuned."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import jax
import jax.numpy as jnp

from ... import Task, Transformer, predict, untie
from ...catalogue import SOLVERS, candidates, taken
from ._models import Model, Truth, oracle
from ._reparametrisation import descend, perturbed, rotated, superposed
from ._settings import LINEAR, PROCESS, BenchConfig, Setting

KERNELS = {LINEAR: ("linear", "exponential"), PROCESS: ("gaussian",)}
"""Kernels of the models, by family of tasks."""

LEVELS = (1e-3, 1e-2)
"""Standard deviations of the relative noise on the weights."""


def known_models(settings: dict[str, Setting], config: BenchConfig) -> Iterator[Model]:
    """All models that run a candidate; if `config.quick`, one of each variant."""
    plain = [
        exact(solver, kernel, one)
        for one in settings.values()
        for solver in candidates()
        for kernel in kernels_of(solver, one.name)
    ]
    key = jax.random.key(config.seed)
    if config.quick:
        some = {"gradient_descent", "delta_rule"}
        plain = [m for m in plain if m.truth.solver in some and m.truth.kernel == "linear"]
    yield from plain
    variants = (turned, compressed, noisy, trained)
    for i, variant in enumerate(variants):
        yield from variant(settings, jax.random.fold_in(key, i), config.quick)


def kernels_of(solver: str, family: str) -> tuple[str, ...]:
    """The kernels of a solver; on linear tasks each has one, on others none is causal."""
    accepted = taken(solver)
    found = tuple(name for name in KERNELS[family] if name in accepted)
    if family == LINEAR:
        return found or accepted[:1]
    return () if SOLVERS[solver].causal else found


def exact(solver: str, kernel: str, setting: Setting, variant: str = "") -> Model:
    """The construction of a candidate."""
    row, made = SOLVERS[solver], setting.kernel(kernel)
    weights, layers = setting.build(solver, made), None
    if weights.steps != setting.config.steps:
        layers = (0, *[weights.steps] * setting.config.steps)
    # Jacobi's preconditioner does nothing if all k(x, x) are equal
    pair = ("conjugate_gradient", "jacobi_conjugate_gradient")
    diagonal = setting.diagonal(made)
    constant = float(jnp.ptp(diagonal)) <= 1e-12 * float(jnp.max(diagonal))
    truth = Truth(
        variant or ("causal" if row.causal else "exact"),
        f"{solver}, {kernel} kernel",
        solver,
        kernel,
        (pair if solver in pair and constant else (solver,)),
        {k: v for k, v in setting.needs(row, made).items() if k != "steps"},
    )
    return Model(truth, setting, weights, layers=layers, solution=oracle(solver, made, setting))


def changed(model: Model, variant: str, words: str, weights: Transformer, **other) -> Model:
    truth = model.truth._replace(variant=variant, about=f"{model.truth.about}, {words}")
    return model._replace(truth=truth, weights=weights, **other)


def variants_of(
    settings: dict[str, Setting], solvers: tuple[str, ...], key: jax.Array, quick: bool
) -> Iterator[tuple[Model, Transformer, jax.Array]]:
    """The constructions of solvers on each family, their weights, and a key for each."""
    for i, one in enumerate(settings.values()):
        for j, solver in enumerate(solvers[: 1 if quick else None]):
            model = exact(solver, KERNELS[one.name][0], one)
            assert model.weights is not None
            yield model, model.weights, jax.random.fold_in(jax.random.fold_in(key, i), j)
        if quick:
            return


CHANGED = ("gradient_descent", "chebyshev", "conjugate_gradient")


def turned(settings: dict[str, Setting], key: jax.Array, quick: bool) -> Iterator[Model]:
    """Rotated streams, read by the model's own read-out and by a linear probe."""
    for model, weights, own in variants_of(settings, CHANGED, key, quick):
        weights = rotated(weights, own)
        for probed in (False, True):
            reader = "a linear probe" if probed else "its own read-out"
            yield changed(model, "rotated", f"read by {reader}", weights, probed=probed)


FEWER = (("gradient_descent", 1), ("gradient_descent", 2), ("chebyshev", 1))


def compressed(settings: dict[str, Setting], key: jax.Array, quick: bool) -> Iterator[Model]:
    """Streams with fewer channels than the construction, on linear tasks."""
    one = settings[LINEAR]
    for i, (solver, fewer) in enumerate(FEWER[: 1 if quick else None]):
        model = exact(solver, "linear", one)
        assert model.weights is not None
        count = model.weights.layout.width
        updates = 20 if quick else 2000
        weights = superposed(
            model.weights, first(one.probing), jax.random.fold_in(key, i), count - fewer, updates
        )
        yield changed(model, "superposed", f"in {count - fewer} of {count} channels", weights)


def first(tasks: Task) -> Task:
    """The tasks that train weights."""
    return jax.tree.map(lambda leaf: leaf[:64], tasks)


def noisy(settings: dict[str, Setting], key: jax.Array, quick: bool) -> Iterator[Model]:
    """Weights with noise, of several levels."""
    for model, weights, own in variants_of(settings, CHANGED, key, quick):
        for level in LEVELS[1:] if quick else LEVELS:
            words = f"weights times 1 + {level:g} z"
            yield changed(model, "perturbed", words, perturbed(weights, own, level))


def trained(settings: dict[str, Setting], key: jax.Array, quick: bool) -> Iterator[Model]:
    """Constructions whose weights were trained on their tasks, from the construction on."""
    updates = 10 if quick else 100
    for model, weights, _ in variants_of(settings, CHANGED[:2], key, quick):
        weights = fine_tuned(weights, first(model.setting.probing), updates)
        yield changed(model, "fine-tuned", f"{updates} updates", weights)


def fine_tuned(model: Transformer, tasks: Task, updates: int) -> Transformer:
    """The untied construction after updates of Adam on the error at the queries of the tasks."""

    def error(model: Transformer) -> jax.Array:
        return jnp.mean((jax.vmap(partial(predict, model))(tasks) - tasks.y_query) ** 2)

    return descend(untie(model), error, updates, 3e-4)
