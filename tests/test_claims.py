"""Every claim's verdict, and that none survives a wrong construction or a wrong bound."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

import icl_krr as ik
from icl_krr.experiments.claims import verify
from icl_krr.experiments.claims.claim import compare
from icl_krr.experiments.shared.retrained import random_models

CLAIMS = verify.claims()


class Change(NamedTuple):
    """`what` of the claim's module ("constructions.richardson") becomes `become` of itself."""

    what: str
    become: Callable


def scaled(factor: float) -> Callable:
    return lambda function: lambda *args, **options: factor * function(*args, **options)


def limit(name: str, factor: float) -> Change:
    """The bound of the checks that contain `name`, times a factor."""

    def become(compare):
        def other(check, measured, bound, **options):
            bound = np.asarray(bound) * (factor if name in check else 1)
            return compare(check, measured, bound, **options)

        return other

    return Change("compare", become)


def warmer(construct):
    """Of another temperature than it says."""

    def heat(kernel):
        if isinstance(kernel, ik.Mixture):
            return ik.Mixture((heat(kernel.kernels[0]), *kernel.kernels[1:]), kernel.weights)
        return dataclasses.replace(kernel, temperature=1.05 * kernel.temperature)

    return lambda kernel, **options: construct(heat(kernel), **options)


def option(name: str, factor: float) -> Callable:
    """Of another ridge, step size, ... than it says."""

    def become(construct):
        def other(kernel, **options):
            return construct(kernel, **{**options, name: factor * options[name]})

        return other

    return become


def regression(head):
    """What the head is not: kernel ridge regression."""

    def other(kernel, *, num_features):
        ridge = 0.1 * jnp.exp(1 / kernel.temperature)
        return ik.constructions.conjugate_gradient(
            kernel, num_features=num_features, ridge=ridge, steps=60
        )

    return other


def without_guard(run_with_cache):
    """Conjugate gradient whose steps divide 0 by 0 once they are idle."""

    def other(model, task, **options):
        prediction, cache = run_with_cache(model, task, **options)
        idle = jnp.sum(cache["r"] ** 2, axis=1)
        return prediction, {name: part * (idle / idle)[:, None] for name, part in cache.items()}

    return other


def gaussian_only(construct):
    def other(kernel, **options):
        wrong = option("ridge", 1.05)(construct)
        return (wrong if isinstance(kernel, ik.Gaussian) else construct)(kernel, **options)

    return other


def not_best(sketch):
    return lambda name, *rest: sketch("coordinates" if name == "best" else name, *rest)


def one_width(relu):
    return lambda width, bound: relu(64, bound)


def undamped(features):
    def other(*args, **options):
        phi = features(*args, **options)
        return dataclasses.replace(phi, damping=0.9 * phi.damping)

    return other


def louder(load):
    """A trained model whose answers are a third larger."""

    def other(name):
        run = load(name)
        weights = run.model.weights
        return run._replace(
            model=run.model.replace(weights=weights.replace(readout=1.3 * weights.readout))
        )

    return other


def untrained(load):
    return random_models


def with_all_parts(load):
    return lambda study, variant: load(study, "base")


RIDGE = Change("constructions.conjugate_gradient", option("ridge", 1.05))
BOUND = {
    "C1": limit("Nadaraya-Watson", 1e-4),
    "C2": limit("|head", 1e4),
    "C3": Change("theory.recovery_error", scaled(0.01)),
    "C4": limit("chebyshev: |alpha_t", 0.9),
    "C5": Change("theory.neumann_factor", scaled(0.9)),
    "C6": Change("theory.mean_limit_bound", scaled(0.3)),
    "C7": limit("sphere: gap between the two f*", 1e-9),
    "C8": limit("blocks in one step", 0.9),
    "C9": Change("theory.best_epsilon", scaled(1e-3)),
    "C10": limit("gap to f*", 1e-6),
    "C11": limit("sink of the first block", 1e-7),
    "C12": limit("error <= factor^t", 0.9),
    "C13": Change("theory.stationary_factor", lambda f: lambda *args: f(*args) ** 2),
    "C14": Change("theory.product_table_error", scaled(0.5)),
    "C15": limit("p feature channels, any basis", 1e-8),
    "C16": Change("theory.sketch_error_best", scaled(0.9)),
    "C17": Change("theory.inverse_error_best", scaled(1.01)),
    "C18": Change("theory.query_error_features", scaled(0.1)),
    "C19": Change("theory.expected_gap", scaled(0.2)),
    "C20": Change("theory.logit_perturbation", scaled(0.5)),
    "C21": Change("theory.positive_variance", scaled(2.0)),
    "C23": Change("theory.gradient_filter", scaled(1.01)),
    "C24": limit("trained model", 0.01),
    "C36": limit("the next singular value", 1e-3),
    "C37": limit("mean risk of base", 0.01),
}
CONSTRUCTION = {
    "C1": Change("constructions.nadaraya_watson", warmer),
    "C2": Change("constructions.nadaraya_watson", regression),
    "C3": Change("constructions.gradient_descent", warmer),
    "C4": Change("constructions.chebyshev", option("ridge", 1.05)),
    "C5": Change("constructions.gradient_descent", option("ridge", 1.05)),
    "C6": Change("constructions.nadaraya_watson", warmer),
    "C7": Change("constructions.conjugate_gradient", gaussian_only),
    "C8": RIDGE,
    "C9": RIDGE,
    "C10": Change("run_with_cache", without_guard),
    "C11": Change("constructions.richardson", option("sink", 1.05)),
    "C12": Change("constructions.richardson", option("step_size", 1.05)),
    "C13": Change("constructions.richardson", option("step_size", 0.5)),
    "C14": Change("ReLU", one_width),
    "C15": RIDGE,
    "C16": Change("sketch", not_best),
    "C17": Change("sketch", not_best),
    "C18": RIDGE,
    "C19": Change("constructions.conjugate_gradient", option("ridge", 10.0)),
    "C20": RIDGE,
    "C21": Change("positive_features", undamped),
    "C23": Change("constructions.gradient_descent", option("ridge", 1.05)),
    "C24": Change("load", louder),
    "C36": Change("load_models", untrained),
    "C37": Change("load_models", with_all_parts),
}


def status(name):
    """That of a quick run, compiled again: its parts may be others than before."""
    module = module_of(name)
    for part in vars(module).values():
        if hasattr(part, "clear_cache"):
            part.clear_cache()
    result, _ = verify.verify(name, CLAIMS[name], seeds=[0], quick=True)
    return result.status


def module_of(name):
    return verify.modules()[name]


def test_there_are_all_claims():
    assert (
        list(CLAIMS)
        == [f"C{i}" for i in (*range(1, 22), 23, 24, 36, 37)]
        == list(BOUND)
        == list(CONSTRUCTION)
    )


SLOW = {*CLAIMS} - {"C1", "C2", "C11", "C15", "C16", "C20"}
"""Claims that take more than three seconds."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in CLAIMS]
)
def test_the_verdict_follows_from_what_is_measured(name, monkeypatch):
    """It is the expected one; and another, if the construction or the bound is wrong."""
    assert status(name) == CLAIMS[name].expected
    for change in (BOUND[name], CONSTRUCTION[name]):
        *path, last = change.what.split(".")
        holder = module_of(name)
        for part in path:
            holder = getattr(holder, part)
        with monkeypatch.context() as patch:
            patch.setattr(holder, last, change.become(getattr(holder, last)))
            assert status(name) != CLAIMS[name].expected, change


def test_an_infinite_value_holds_no_bound():
    check = compare("|error| <= bound", [np.inf, 1.0], [np.inf, 2.0])
    assert not check.holds
    assert check.measured == np.inf
