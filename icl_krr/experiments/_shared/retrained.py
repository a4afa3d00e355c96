"""Small models, trained again over widths and without parts by `benchmarks.retraining`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp

from ...tasks import Sampler
from ...training import load_weights
from ...training._settings import Training
from ...transformer import Transformer, init
from .recipe import RUNS, ModelRecipe, Recipe, TaskRecipe
from .runs import architecture, family

FOLDER = RUNS / "retrained"
SEEDS = tuple(range(11))
"""Training seeds: of the initial weights and of the tasks. Most variants have the first three."""
LEARNING_RATES = (0.006, 0.015)
"""Each variant is trained with the learning rate of the least validation error with the first
seed."""


class RetrainingStudy(NamedTuple):
    """Models that are compared: one family of tasks, one training, several variants.

    The learning rates are those of another study, `tuned_by`, or are chosen for each variant. Each
    variant is trained with the first `repeats` seeds, and each variant in `close` with all seeds.
    The package has the weights of the studies that are `shipped`.
    """

    task: TaskRecipe
    training: Training
    variants: Mapping[str, ModelRecipe]
    tuned_by: str | None = None
    close: tuple[str, ...] = ()
    repeats: int = 3
    shipped: bool = True

    def recipe(self, variant: str, seed: int, learning_rate: float = LEARNING_RATES[0]) -> Recipe:
        training = dataclasses.replace(self.training, seed=seed, learning_rate=learning_rate)
        return Recipe(self.task, self.variants[variant], training)

    def seeds(self, variant: str) -> tuple[int, ...]:
        return SEEDS if variant in self.close else SEEDS[: self.repeats]

    @property
    def family(self) -> Sampler:
        return family(self.task)


TRAINING = Training(steps=2000, log_every=500, validation=2048, target="exact")
LINEAR = TaskRecipe(family="linear", num_features=8, inputs="uniform", noise=0.01, condition=100.0)
PROCESS = TaskRecipe(num_supports=16, num_queries=16, inputs="uniform", lengthscale=0.4)
BASE = ModelRecipe(width=16, depth=4, heads=4)
WIDTHS = {f"width {w}": ModelRecipe(width=w, depth=3, heads=2) for w in (4, 6, 8, 12, 16, 24)}
RETRAINING_STUDIES = {
    "widths": RetrainingStudy(LINEAR, TRAINING, WIDTHS, shipped=False),
    "longer": RetrainingStudy(LINEAR, dataclasses.replace(TRAINING, steps=6000), WIDTHS),
    "longest": RetrainingStudy(
        LINEAR, dataclasses.replace(TRAINING, steps=18000), WIDTHS, tuned_by="longer", repeats=1
    ),
    "ablations": RetrainingStudy(
        PROCESS,
        dataclasses.replace(TRAINING, batch=32),
        {
            "base": BASE,
            "no LayerNorm": dataclasses.replace(BASE, layer_norm=False),
            "no MLP": dataclasses.replace(BASE, hidden=0),
            "linear attention": dataclasses.replace(BASE, attention="linear"),
            "1 head": dataclasses.replace(BASE, heads=1),
            "1 block": dataclasses.replace(BASE, depth=1),
            "2 blocks": dataclasses.replace(BASE, depth=2),
            "8 blocks": dataclasses.replace(BASE, depth=8),
        },
        close=("base", "no LayerNorm", "no MLP", "1 head"),
    ),
}


def load_models(study: str, variant: str) -> Transformer:
    """The trained models of a variant: one whose arrays have the training seeds as first axis."""
    like = jax.eval_shape(lambda: random_models(study, variant))
    return load_weights(weights_file(study, variant), like)


def random_models(study: str, variant: str) -> Transformer:
    """The models of a variant before training; see `load_models`."""
    settings = RETRAINING_STUDIES[study]
    task = settings.task
    sizes = architecture(settings.variants[variant], task.num_features, task.num_supports)
    return stack_models([init(jax.random.key(seed), sizes) for seed in settings.seeds(variant)])


def stack_models(models: list[Transformer]) -> Transformer:
    """Models of one architecture as one model, whose arrays have a new first axis."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *models)


def weights_file(study: str, variant: str) -> Path:
    return FOLDER / f"{study}-{variant.replace(' ', '-')}.msgpack"
