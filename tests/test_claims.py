"""Every claim's verdict, and that none survives a wrong construction or a wrong bound."""

import dataclasses
import sys
from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import often

import icl_krr as ik
from icl_krr import plots
from icl_krr.constructions import SUPPORTS_AND_QUERIES
from icl_krr.experiments import random_models
from icl_krr.experiments._claims import verify
from icl_krr.experiments._claims.claim import NONE, OURS, REFERENCES, TASK_FAMILY, THIS_TASK

CLAIMS = verify.claims()
ROOM = verify.__name__.rpartition(".")[0]


class Change(NamedTuple):
    """`what` of the claim's module ("constructions.richardson") becomes `become` of itself.

    If the claim's module lacks the name, `what` begins with the module of the claims that has it,
    as in "ReLU".
    """

    what: str
    become: Callable


def scaled(factor: float) -> Callable:
    return lambda function: lambda *args, **options: factor * function(*args, **options)


def limit(name: str, factor: float) -> Change:
    """The bound of the checks that contain `name`, times a factor."""

    def become(compare):
        def other(called, measured, bound, **options):
            ours = np.asarray(bound) * (factor if name in called else 1)
            return compare(called, measured, ours, **options)

        return other

    return Change("claim.compare", become)


def warmer(construct):
    """Of another temperature than it says."""

    def heat(kernel):
        if isinstance(kernel, ik.Mixture):
            return ik.Mixture((heat(kernel.kernels[0]), *kernel.kernels[1:]), kernel.weights)
        return dataclasses.replace(kernel, temperature=1.05 * kernel.temperature)

    return lambda kernel, **options: construct(heat(kernel), **options)


def option(name: str, factor: float) -> Callable:
    """Of another ridge, step size, ... than it says."""
    return lambda construct: (
        lambda kernel, **options: construct(kernel, **{**options, name: factor * options[name]})
    )


def nonlinear(values):
    """Values of a head that are not linear in the data: an MLP before the head squares x."""

    def other(m, matrix):
        squares = m.scratch("squares", SUPPORTS_AND_QUERIES, "x^2", m.x.width)
        return values(m, matrix) + m.multiply(m.x, m.x, to=squares) @ matrix[: m.x.width]

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


def undamped(features):
    def other(*args, **options):
        phi = features(*args, **options)
        return dataclasses.replace(phi, damping=0.9 * phi.damping)

    return other


def louder(load):
    """A trained model whose answers are a third larger."""

    def other(name):
        run = load(name)
        weights = run.model.weights.replace(readout=1.3 * run.model.weights.readout)
        return run._replace(model=run.model.replace(weights=weights))

    return other


def wider(construct):
    """Of a larger bandwidth than it says."""

    def other(kernel, **options):
        size = {kernel.bandwidth: 1.5 * getattr(kernel, kernel.bandwidth)}
        return construct(dataclasses.replace(kernel, **size), **options)

    return other


def read_louder(layerwise):
    """A model's own predictions, with another factor for every layer."""

    def other(model, task, probe=None):
        predictions = layerwise(model, task, probe)
        return predictions * jnp.linspace(1, 2, len(predictions))[:, None]

    return other


def running_richardson(load):
    """A model that does run the iteration, with as many steps as the decoder has layers."""

    def other(name):
        run = load(name)
        kernel, ridge = run.family.optimal()
        options = {"num_features": 2, "ridge": ridge, "steps": run.model.steps}
        return run._replace(model=ik.constructions.richardson(kernel, **options))

    return other


RIDGE = Change("constructions.conjugate_gradient", option("ridge", 1.05))
WIDTH_RIDGE = Change(f"c18_query_error_of_width.{RIDGE.what}", RIDGE.become)
BOUND = {
    "C1": limit("Nadaraya-Watson", 1e-4),
    "C2": limit("two contexts that one block", 1e12),
    "C3": Change("theory.recovery_error", scaled(0.01)),
    "C4": limit("chebyshev: |alpha_t", 0.9),
    "C5": Change("theory.neumann_factor", scaled(1.1)),
    "C6": Change("theory.mean_limit_bound", scaled(0.3)),
    "C7": limit("sphere: gap between the two f*", 1e-9),
    "C8": limit("blocks in one step", 0.9),
    "C9": Change("theory.best_epsilon", scaled(1e-3)),
    "C10": limit("gap to f*", 1e-6),
    "C11": limit("sink of the first block", 1e-7),
    "C12": limit("error <= factor^t", 0.9),
    "C13": limit("ridge = n / 640", 0.5),
    "C14": Change("theory.product_table_error", scaled(0.5)),
    "C15": limit("p feature channels, any basis", 1e-8),
    "C16": Change("theory.sketch_error_best", scaled(0.9)),
    "C17": Change("theory.inverse_error_best", scaled(1.01)),
    "C18": Change("theory.query_error_features", scaled(0.1)),
    "C19": Change("theory.lost_share_bound", scaled(0.9)),
    "C20": Change("theory.logit_perturbation", scaled(0.5)),
    "C21": Change("theory.positive_variance", scaled(2.0)),
    "C23": Change("theory.gradient_filter", scaled(1.01)),
    "C24": limit("trained model", 0.01),
    "C26": limit("inclusive mask", 1e-9),
    "C27": limit("after p steps", 1e-9),
    "C28": Change("theory.chebyshev_rate", scaled(0.3)),
    "C31": Change("theory.smoothing_variance", scaled(1.3)),
    "C32": Change("theory.opposite_pair_eigenvalue", scaled(1.01)),
    "C33": Change("theory.performer_width", scaled(0.01)),
    "C34": limit("p + c channels", 0.1),
    "C35": Change("theory.relative_inverse_error_angle", scaled(0.99)),
    "C36": limit("the next singular value", 1e-3),
    "C37": limit("mean risk of base", 0.01),
    "C38": limit("Mesa: |f - f*|", 1e-9),
    "C39": limit("C in bfloat16, conjugate gradient", 1e-3),
    "C40": limit("plus the bias", 0.1),
    "C41": limit("linear", 0.5),
    "C42": limit("upper end", 0.5),
    "C43": limit("slots - iterates of PCG", 1e-8),
    "C44": limit("p / m passes", 1e-8),
    "C45": limit("on Phi", 1e-9),
    "C46": limit("operations of one query / (m d)", 0.5),
    "C47": limit("by algebra", 1e-10),
    "C48": limit("a linear probe", 10),
    "C49": limit("layer l and step l", 1e-3),
    "C50": limit("difference of both", 1e-3),
}
CONSTRUCTION = {
    "C1": Change("constructions.nadaraya_watson", warmer),
    "C2": Change("values", nonlinear),
    "C3": Change("NO_SINK", lambda logit: 0.0),
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
    "C14": Change("ReLU", lambda relu: lambda width, bound: relu(64, bound)),
    "C15": Change("constructions.conjugate_gradient", option("ridge", 1.05)),
    "C16": Change("sketch_losses.sketch", lambda make: lambda name, *rest: make("best", *rest)),
    "C17": Change("sketch_losses.spectra.hiding", lambda hiding: lambda P, *rest: P),
    "C18": RIDGE,
    "C19": Change("constructions.conjugate_gradient", option("ridge", 10.0)),
    "C20": WIDTH_RIDGE,
    "C21": Change("positive_features", undamped),
    "C23": Change("constructions.gradient_descent", option("ridge", 1.05)),
    "C24": Change("load", louder),
    "C26": Change("constructions.gradient_descent", option("ridge", 1.05)),
    "C27": Change("constructions.prefix_conjugate_gradient", option("ridge", 1.05)),
    "C28": Change("constructions.preconditioned_chebyshev", option("ridge", 1.05)),
    "C31": Change("constructions.nadaraya_watson", wider),
    "C32": Change("constructions.nadaraya_watson", warmer),
    "C33": Change("feature_errors.constructions.gradient_descent", option("step_size", 1.05)),
    "C34": Change("c15_channels_needed.constructions.conjugate_gradient", option("ridge", 1.05)),
    "C35": RIDGE,
    "C36": Change("load_models", lambda load: random_models),
    "C37": Change("load_models", lambda load: lambda study, variant: load(study, "base")),
    "C38": Change("constructions.prefix_conjugate_gradient", option("ridge", 1.05)),
    "C39": Change("constructions.prefix_conjugate_gradient", option("ridge", 10.0)),
    "C40": WIDTH_RIDGE,
    "C41": Change("train", lambda train: lambda model, tasks, steps: model),
    "C42": Change("constructions.nadaraya_watson", wider),
    "C43": Change("constructions.preconditioned_conjugate_gradient", option("ridge", 1.05)),
    "C44": Change("textbook", lambda step: lambda K, y, ridge: step(K, y, ridge=1.05 * ridge)),
    "C45": Change("constructions.conjugate_gradient", option("ridge", 1.05)),
    "C46": Change("constructions.nadaraya_watson", option("num_outputs", 2)),
    "C47": RIDGE,
    "C48": Change("layerwise", read_louder),
    "C49": Change("load", running_richardson),
    "C50": Change("constructions.conjugate_gradient", option("ridge", 1e3)),
}


def status(name, compiled=True):
    """That of a quick run, compiled again unless its compiled parts are those of the last run.

    The rows have the columns of the figure.
    """
    if compiled:
        forget()
    result, rows = verify.verify_all({name: CLAIMS[name]}, seeds=range(1), quick=True)[name]
    if result["agrees"]:
        plots.claim_figure(name, CLAIMS[name], rows)
    return result["status"]


def forget():
    """The programs of the claims, and of the modules beside them in which they measure."""
    modules = [module for path, module in sys.modules.items() if path.startswith(f"{ROOM}.")]
    for part in [part for module in modules for part in vars(module).values()]:
        if hasattr(part, "clear_cache"):
            part.clear_cache()


@pytest.fixture
def forgotten():
    """Other tests run the same claims: no program of a wrong one is left to them."""
    yield
    forget()


def test_there_are_all_claims():
    numbers = [int(name.removeprefix("C")) for name in CLAIMS]
    assert {*range(1, 50)} - {*numbers} == {22, 25, 29, 30}
    assert numbers == sorted(numbers)
    assert list(CLAIMS) == list(BOUND) == list(CONSTRUCTION)


def recorded(patch):
    """The keywords of all constructions that are built from now on."""
    calls = []

    def recording(construct):
        def other(*args, **options):
            calls.append(options)
            return construct(*args, **options)

        return other

    for name in verify.modules()["C1"].constructions.__all__:
        construct = getattr(ik.constructions, name)
        if callable(construct) and not isinstance(construct, type):
            patch.setattr(ik.constructions, name, recording(construct))
    return calls


def levels(calls, trained):
    """What the models with these keywords may require, see `Claim.required_inputs`.

    A value that was computed, not written down, comes from the supports of the task. A ridge may
    have been computed from the temperature, and a sketch from the task or from random numbers.
    A trained model knows the family that it was trained on.
    """
    kwargs = [{name: v for name, v in call.items() if v is not None} for call in calls]
    computed = {name for call in kwargs for name, v in call.items() if has_arrays(v)} - {"ridge"}
    if computed - {"sketch"}:
        return {THIS_TASK}
    numbers = {"ridge", "step_size", "spectrum", "sink"}
    level = TASK_FAMILY if trained or any(numbers & {*call} for call in kwargs) else NONE
    return {level, THIS_TASK} if computed else {level}


def has_arrays(value):
    parts = vars(value).values() if dataclasses.is_dataclass(value) else jax.tree.leaves(value)
    return any(isinstance(part, jax.Array) for part in parts)


def test_a_claim_is_quoted_from_a_known_work_or_is_ours():
    assert {name for claim in CLAIMS.values() for name in claim.authors} == {*REFERENCES, OURS}
    for name, claim in CLAIMS.items():
        assert "TODO" not in claim.source + claim.quote, name
    source, quote = "Cawley 2025, theorem 2", "a sentence"
    for bad in ({"source": OURS}, {"quote": ""}):
        with pytest.raises(ValueError, match="a claim has a quote"):
            dataclasses.replace(CLAIMS["C1"], **{"source": source, "quote": quote} | bad)


HEAVY = ("C14", "C39", "C41", "C45", "C47", "C48", "C49", "C50")
"""Claims whose quick runs take more than six CPU seconds."""


@often("name", {*CLAIMS} - {*HEAVY}, CLAIMS)
def test_the_verdict_is_the_expected_one(name, monkeypatch):
    calls = recorded(monkeypatch)
    assert status(name) == CLAIMS[name].expected
    trained = bool({"load", "load_models", "train"} & {*vars(verify.modules()[name])})
    assert CLAIMS[name].required_inputs in levels(calls, trained)


@often("name", ("C1",), CLAIMS)
def test_a_wrong_construction_or_bound_changes_the_verdict(name, monkeypatch, forgotten):
    module = verify.modules()[name]
    for change in (BOUND[name], CONSTRUCTION[name]):
        *path, last = change.what.split(".")
        holder = module
        for part in path:
            holder = getattr(holder, part, None) or import_module(f"{ROOM}.{part}")
        with monkeypatch.context() as patch:
            patch.setattr(holder, last, change.become(getattr(holder, last)))
            assert status(name, change.what != "claim.compare") != CLAIMS[name].expected, change
