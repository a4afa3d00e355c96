"""C37: softmax, MLPs and depth are needed."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from ... import Task, Transformer, predict
from ...training._reference import regression
from .._shared.retrained import RETRAINING_STUDIES, load_models
from .claim import HOLDS, TASK_FAMILY, Checks, Claim, Config, stated
from .measuring import Plot, Rows, draw_tasks

STUDY = RETRAINING_STUDIES["ablations"]
NEEDED = ("linear attention", "no MLP", "1 block")
"""Models without a part that the source calls needed, or without depth."""
SMALL = ("no LayerNorm", "no MLP", "1 head")
ORDER = {"linear attention": "base", "1 block": "2 blocks", "2 blocks": "base", "base": "8 blocks"}
"""Pairs of models: the first with any training seed is worse than the second with any seed."""


def run(config: Config, key: jax.Array) -> tuple[Rows, Checks]:
    """Compare the variants with the base model on the same tasks.

    The excess of a model is the mean of (f - f*)^2 over the risk of exact KRR f*.
    """
    tasks = draw_tasks(key, config.tasks, STUDY.family)
    names = config.variants
    excess = {name: np.asarray(excesses(load_models("ablations", name), tasks)) for name in names}
    base, rows, ends = excess["base"], [], {}
    for name, errors in excess.items():
        low, high = ends[name] = interval(errors, base, len(STUDY.variants) - 1)
        about = {"variant": name, "low": low, "high": high}
        about["low of 3"] = interval(errors, base, len(NEEDED))[0]
        about["reading"] = "worse" if low > 1 else "better" if high < 1 else "not distinguishable"
        for seed, value in enumerate(errors):
            rows.append({"training seed": seed, "excess": value, "risk": 1 + value} | about)
    alone = interval(excess["no MLP"][STUDY.repeats :], base[STUDY.repeats :], len(NEEDED))
    small = [name for name in SMALL if name in names]
    ordered = [excess[a].min() / excess[b].max() for a, b in ORDER.items() if {a, b} <= {*names}]
    change = [abs(np.mean(1 + excess[name]) / np.mean(1 + base) - 1) for name in small]
    return rows, {
        "linear attention, no MLP, 1 block: lower end of the interval of excess / excess of base "
        ">= 1": stated([ends[name][0] for name in NEEDED if name in names]),
        "no MLP, only the eight seeds that were added after the first three: this lower end "
        ">= 1": alone[0],
        "linear attention and base, 1 and 2 blocks, 2 blocks and base, base and 8 blocks: least "
        "excess of the former / largest excess of the latter >= 1": ordered,
        "no LayerNorm, no MLP, 1 head: excess / excess of base, ends of the interval, "
        "in [0.4, 2.6]": [ends[name] for name in small],
        "no LayerNorm, no MLP, 1 head: |mean risk / mean risk of base - 1| <= 0.05": change,
        "base: risk / risk of f* <= 1.1": 1 + base,
    }


def interval(excess: np.ndarray, other: np.ndarray, comparisons: int) -> np.ndarray:
    """Welch's 95 % interval of the quotient of two excesses over seeds, by Bonferroni."""
    test: Any = stats.ttest_ind(np.log(excess), np.log(other), equal_var=False)
    return np.exp(test.confidence_interval(1 - 0.05 / comparisons))


@jax.jit
def excesses(models: Transformer, tasks: Task) -> jax.Array:
    """(mean of (f - f*)^2) / (risk of f*) of every training seed."""
    best: Any = STUDY.family.optimal()  # pyright: ignore[reportAttributeAccessIssue]
    exact = jax.vmap(lambda task: regression(best[0], task, best[1]))(tasks)
    answer = lambda model: jax.lax.map(partial(predict, model), tasks, batch_size=64)  # noqa: E731
    missed = jax.lax.map(lambda model: jnp.mean((answer(model) - exact) ** 2), models)
    return missed / jnp.mean((exact - tasks.y_query) ** 2)


CLAIM = Claim(
    statement="A trained transformer needs its softmax, its MLPs and its depth to predict as well "
    "as exact kernel ridge regression on Gaussian processes: models that are trained without one "
    "of these have larger errors. (The abstract does not say what the ablations of the source are; "
    "this reading is ours.)",
    truth="In addition: how much is lost. Each model has the better of two learning rates, chosen "
    "with the first seed. Excess errors over exact kernel ridge regression are about 12 times as "
    "large with linear attention as with softmax, about 10 times with 1 block and 4 times with 2 "
    "blocks as with 4, and 0.4 times as large with 8 blocks (three seeds). With eleven seeds they "
    "are about 1.4 times as large without MLPs, 1.6 times with one head, and 0.7 times without "
    "LayerNorm. Their intervals exclude 1, also if they are to hold for all seven comparisons "
    "together (95 %, Bonferroni), and for the MLPs also with only the eight seeds that were added. "
    "The risk without MLPs is 2 % higher.",
    source="Yan et al. 2026, abstract",
    quote="Our construction reveals a functional decomposition within the transformer "
    "architecture: softmax attention produces a row-normalized Gaussian-kernel operator needed for "
    "cross-token interactions, while ReLU MLP layers act locally to approximate the intra-token "
    "scalar arithmetic required by the update. [...] Ablation studies further support this "
    "interpretation.",
    untested=("a model without MLPs that has as many parameters as one with them",),
    expected=HOLDS,
    required_inputs=TASK_FAMILY,
    run=run,
    config=Config(tasks=1024),
    axes=Config(variants=tuple(STUDY.variants)),
    quick=Config(tasks=128, variants=("base", "no MLP", "linear attention")),
    plot=Plot(x="training seed", y="excess", by=("variant",)),
    dtype="float32",
)
