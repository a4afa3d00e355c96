"""The models of SolverBench: what each is, its weights and answers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ... import Kernel, Task, Transformer, map_tasks, solvers
from ...catalogue import candidate
from ...probes import fit_probe, hat_matrix, layerwise
from ...probes._naming.candidates import Values
from ._settings import BenchFamily

OPEN = "open set"
VARIANTS = ("exact", "causal", "rotated", "superposed", "perturbed", "fine-tuned", OPEN)
"""Kinds of models, in the order of the tables."""


class Truth(NamedTuple):
    """What a model runs."""

    variant: str  # one of `VARIANTS`
    about: str  # the model in words
    solver: str = ""  # name of the candidate that the model runs; empty in the open set
    kernel: str = ""  # the kernel in words; empty if there is none
    # candidates that are the same solver with this kernel, the solver itself included
    names: tuple[str, ...] = ()
    known: Values | None = None  # parameters of the solver


class Model(NamedTuple):
    """A model whose truth is known."""

    truth: Truth  # what the model runs
    family: BenchFamily  # the family of its tasks
    weights: Transformer | None = None  # the transformer; None for a function of a task
    # function from a task to predictions [L + 1, q], for a model without weights
    function: Callable[[Task], jax.Array] | None = None
    # steps of the transformer that count as layers 0 to L; None: all
    layers: tuple[int, ...] | None = None
    probed: bool = False  # whether a linear probe of the stream at the queries reads the layers
    # the oracle of the solver, function from a task to states {name: [L + 1, ...]}; None in
    # the open set
    solution: Callable[[Task], dict[str, jax.Array]] | None = None


class Answers(NamedTuple):
    """What a participant without JAX needs."""

    answers: np.ndarray  # predictions before the first layer and after every layer [b, L + 1, q]
    hats: np.ndarray  # their derivatives with respect to y [b, L + 1, q, n]


@partial(jax.jit, static_argnames=("layers",))
def read(model, probe, tasks, layers):
    """Answers and hat matrices of weights; models of one structure share the program."""

    def predict(task: Task) -> jax.Array:
        predictions = layerwise(model, task, probe)
        return predictions if layers is None else predictions[jnp.array(layers)]

    return predictions_and_hats(predict, tasks)


def predictions_and_hats(predict: Callable[[Task], jax.Array], tasks: Task) -> tuple:
    return map_tasks(lambda task: (predict(task), hat_matrix(predict, task)), tasks)


def run_on_tasks(model: Model) -> Answers:
    """Run a model on its tasks."""
    tasks = model.family.tasks.replace(y_query=None)
    if model.weights is None:
        assert model.function is not None
        arrays = jax.jit(partial(predictions_and_hats, model.function))(tasks)
    else:
        probe = fit_probe(model.weights, model.family.probing) if model.probed else None
        arrays = read(model.weights, probe, tasks, model.layers)
    return Answers(*map(np.asarray, arrays))


def oracle(solver: str, kernel: Kernel, one: BenchFamily) -> Callable[[Task], dict[str, jax.Array]]:
    """The states of a candidate after every layer, computed without a transformer."""
    entry = candidate(solver)
    needs = one.solver_keywords(entry, kernel)
    if entry.sequential:
        needs.pop("steps")
    layers = one.config.steps

    def states(task: Task) -> dict[str, jax.Array]:
        result = solvers.lookup(entry)(kernel, task, **needs)
        if not entry.iterates:
            return {"prediction": jnp.stack([0 * result.prediction, *[result.prediction] * layers])}
        values = {name: getattr(result, name, None) for name in ("prediction", "alpha", "r")}
        values = {name: value for name, value in values.items() if value is not None}
        if entry.sequential:
            at = jnp.array([0, *[task.num_supports] * layers])
            values = {name: value[at] for name, value in values.items()}
        return values

    return states
