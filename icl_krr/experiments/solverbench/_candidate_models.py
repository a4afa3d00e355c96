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
from ._settings import LINEAR, PROCESS, BenchConfig, BenchFamily, Families, diagonals

FAMILY_KERNELS = {LINEAR: ("linear", "exponential"), PROCESS: ("gaussian",)}
"""Kernels of the models, by family of tasks."""

LEVELS = (1e-3, 1e-2)
"""Standard deviations of the relative noise on the weights."""


def candidate_models(families: Families, config: BenchConfig) -> Iterator[Model]:
    """All models that run a candidate; if `config.quick`, one of each variant."""
    plain = [
        candidate_model(solver, kernel, one)
        for one in families.values()
        for solver in candidates()
        for kernel in supported_kernels(solver, one.name)
    ]
    key = jax.random.key(config.seed)
    if config.quick:
        some = {"gradient_descent", "delta_rule"}
        plain = [m for m in plain if m.truth.solver in some and m.truth.kernel == "linear"]
    yield from plain
    variants = (_rotated_models, _superposed_models, _perturbed_models, _fine_tuned_models)
    for i, variant in enumerate(variants):
        yield from variant(families, jax.random.fold_in(key, i), config.quick)


def supported_kernels(solver: str, family: str) -> tuple[str, ...]:
    """The kernels of a solver; on linear tasks each has one, on others none is causal."""
    accepted = taken(solver)
    names = tuple(name for name in FAMILY_KERNELS[family] if name in accepted)
    if family == LINEAR:
        return names or accepted[:1]
    return () if SOLVERS[solver].causal else names


def candidate_model(solver: str, kernel: str, family: BenchFamily, variant: str = "") -> Model:
    """The construction of a candidate."""
    entry, chosen = SOLVERS[solver], family.kernel(kernel)
    weights, layers = family.build(solver, chosen), None
    if weights.steps != family.config.steps:
        layers = (0, *[weights.steps] * family.config.steps)
    # Jacobi's preconditioner does nothing if all k(x, x) are equal
    pair = ("conjugate_gradient", "jacobi_conjugate_gradient")
    diagonal = diagonals(chosen, family.tasks)
    constant = float(jnp.ptp(diagonal)) <= 1e-12 * float(jnp.max(diagonal))
    truth = Truth(
        variant or ("causal" if entry.causal else "exact"),
        f"{solver}, {kernel} kernel",
        solver,
        kernel,
        (pair if solver in pair and constant else (solver,)),
        {k: v for k, v in family.solver_keywords(entry, chosen).items() if k != "steps"},
    )
    return Model(truth, family, weights, layers=layers, solution=oracle(solver, chosen, family))


def _variant_model(model: Model, variant: str, words: str, weights: Transformer, **other) -> Model:
    truth = model.truth._replace(variant=variant, about=f"{model.truth.about}, {words}")
    return model._replace(truth=truth, weights=weights, **other)


def _variants_of(
    families: Families, solvers: tuple[str, ...], key: jax.Array, quick: bool
) -> Iterator[tuple[Model, Transformer, jax.Array]]:
    """The constructions of solvers on each family, their weights, and a key for each."""
    for i, one in enumerate(families.values()):
        for j, solver in enumerate(solvers[: 1 if quick else None]):
            model = candidate_model(solver, FAMILY_KERNELS[one.name][0], one)
            assert model.weights is not None
            yield model, model.weights, jax.random.fold_in(jax.random.fold_in(key, i), j)
        if quick:
            return


VARIED_SOLVERS = ("gradient_descent", "chebyshev", "conjugate_gradient")


def _rotated_models(families: Families, key: jax.Array, quick: bool) -> Iterator[Model]:
    """Rotated streams, read by the model's own readout and by a linear probe."""
    for model, weights, model_key in _variants_of(families, VARIED_SOLVERS, key, quick):
        weights = rotated(weights, model_key)
        for probed in (False, True):
            reader = "a linear probe" if probed else "its own readout"
            yield _variant_model(model, "rotated", f"read by {reader}", weights, probed=probed)


SUPERPOSED_CASES = (("gradient_descent", 1), ("gradient_descent", 2), ("chebyshev", 1))


def _superposed_models(families: Families, key: jax.Array, quick: bool) -> Iterator[Model]:
    """Streams with fewer channels than the construction, on linear tasks."""
    one = families[LINEAR]
    for i, (solver, less) in enumerate(SUPERPOSED_CASES[: 1 if quick else None]):
        model = candidate_model(solver, "linear", one)
        assert model.weights is not None
        count = model.weights.layout.width
        updates = 20 if quick else 2000
        tasks, step_key = training_tasks(one.probing), jax.random.fold_in(key, i)
        weights = superposed(model.weights, tasks, step_key, count - less, updates)
        yield _variant_model(model, "superposed", f"in {count - less} of {count} channels", weights)


def training_tasks(tasks: Task) -> Task:
    """The tasks that train weights."""
    return jax.tree.map(lambda leaf: leaf[:64], tasks)


def _perturbed_models(families: Families, key: jax.Array, quick: bool) -> Iterator[Model]:
    """Weights with noise, of several levels."""
    for model, weights, model_key in _variants_of(families, VARIED_SOLVERS, key, quick):
        for level in LEVELS[1:] if quick else LEVELS:
            words = f"weights times 1 + {level:g} z"
            yield _variant_model(model, "perturbed", words, perturbed(weights, model_key, level))


def _fine_tuned_models(families: Families, key: jax.Array, quick: bool) -> Iterator[Model]:
    """Constructions whose weights were trained on their tasks, from the construction on."""
    updates = 10 if quick else 100
    for model, weights, _ in _variants_of(families, VARIED_SOLVERS[:2], key, quick):
        weights = fine_tuned(weights, training_tasks(model.family.probing), updates)
        yield _variant_model(model, "fine-tuned", f"{updates} updates", weights)


def fine_tuned(model: Transformer, tasks: Task, updates: int) -> Transformer:
    """The untied construction after updates of Adam on the error at the queries of the tasks."""

    def error(model: Transformer) -> jax.Array:
        return jnp.mean((jax.vmap(partial(predict, model))(tasks) - tasks.y_query) ** 2)

    return descend(untie(model), error, updates, 3e-4)
