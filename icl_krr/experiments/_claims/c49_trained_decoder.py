"""C49: trained decoders have the errors of preconditioned Richardson iteration."""

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from ...catalogue import compared
from ...kernels import name_of
from ...probes import fit_probe, has_slot, layerwise
from ...tasks import map_tasks
from .._shared.draws import draw_batches
from .._shared.runs import load
from ..identify import _error_profile as profiles
from ..identify._probe_controls import in_dtype_of_tasks, read_by_probe, untrained
from ..identify._profile_paths import NULLS
from .claim import FALSE, TASK_FAMILY, Checks, Claim, Config, Exactly, at_least, check, stated
from .measuring import Plot, Rows

TRAINED, RANDOM = "trained", "untrained"
RICHARDSON = "richardson"


def run(config: Config, key: jax.Array) -> tuple[Rows, Checks]:
    """Read decoders and untrained models of their shapes by a linear probe, on the same tasks."""
    loaded = {name: load(name) for name in config.runs}
    family: Any = loaded[config.runs[0]].family
    family = dataclasses.replace(family, num_queries=config.num_queries)
    counts = config.probe_tasks, config.tasks, config.tasks
    probing, *both = draw_batches(key, counts, family)
    kernel, ridge = family.optimal()
    both = [profiles.profile_targets(tasks, kernel, ridge) for tasks in both]
    exact_values = profiles.exact_hyperparameters(kernel, float(ridge))
    options: Any = {"candidates": config.candidates, "search": profiles.Search(*config.search)}
    rows = []
    protocol = profiles.Protocol(both, (name_of(kernel),), config.steps, exact_values, **options)
    for i, (name, one) in enumerate(loaded.items()):
        model = in_dtype_of_tasks(one.model, probing)
        probe = None if has_slot(model) else fit_probe(model, probing)
        readers: dict[str, Any] = {TRAINED: partial(layerwise, model, probe=probe)}
        other = untrained(model, probing, jax.random.fold_in(key, len(counts) + i))
        if other is not None:
            readers[RANDOM] = read_by_probe(other, probing)
        for words, reader in readers.items():
            answer = jax.jit(partial(map_tasks, reader))
            answers = [answer(targets.tasks) for targets in both]
            profile, about = protocol.read(answers), {"run": name, "model": words}
            rows += [about | of_reading(reading) for reading in profile.readings]
            errors = 10 ** profile.curves["error"]
            rows += [about | {"layer": at, "error": float(e)} for at, e in enumerate(errors)]
    return rows, checks(rows, config.candidates)


def of_reading(reading: profiles.ErrorReading) -> dict[str, Any]:
    """What a reading says, with distances of errors."""
    null = next(one for one in reading.candidates if one.name in NULLS)
    return {
        "measure": reading.measure,
        "alignment": reading.alignment,
        "named": reading.nearest.name,
        "null is as near": any(name in NULLS for name in reading.tied),
        "Richardson is as near": RICHARDSON in (reading.nearest.name, *reading.tied),
        **{f"distance, {one.name}": one.distance for one in reading.candidates},
        "distance, nearest null": null.distance,
    }


def checks(rows: Rows, solvers: Sequence[str]) -> dict[str, Any]:
    """The checks; `solvers` are the candidates."""

    def of(column: str, how: str = "") -> np.ndarray:
        chosen = [row for row in rows if row["model"] == TRAINED and "named" in row]
        return np.array([row[column] for row in chosen if how in row["alignment"]])

    others = [name for name in solvers if name != RICHARDSON]
    names = {name: int(np.sum(of("named") == name)) for name in solvers}
    means = {name: float(np.mean(of(f"distance, {name}"))) for name in solvers}
    alone = (of("named", "monotone") == RICHARDSON) & ~of("null is as near", "monotone")
    nulls, ours = (of(f"distance, {one}", "1:1") for one in ("nearest null", RICHARDSON))
    late = "later layers, no earlier step; beside predictors that run no solver"
    mode = "nearest in more readings than any other solver"
    most = at_least(names[RICHARDSON], 1 + max(names[name] for name in others), reading=mode)
    return {
        "mean distance of Richardson's errors over the readings / least mean distance of another "
        "solver <= 1": stated(means[RICHARDSON] / min(means[name] for name in others)),
        "readings that name Richardson >= 1 + those that name any other solver": most,
        "later layers, no earlier step: share of the readings that name Richardson, with no "
        "predictor without a solver as near, >= 0.5": check(np.mean(alone), reading=late),
        "layer l and step l: distance of the nearest predictor without a solver / of Richardson, "
        "geometric mean, <= 0.7": np.exp(np.mean(np.log(nulls / ours))),
        "share of the readings with a predictor without a solver as near as the nearest solver >= "
        "0.8": np.mean(of("null is as near")),
    }


CLAIM = Claim(
    statement="Of the errors of classical solvers, step by step, those of preconditioned "
    "Richardson iteration align most consistently with the errors of a GPT-2-style decoder that is "
    "trained on Gaussian processes, layer by layer, read by a linear probe. (We know the abstract "
    "of the source only. Models, tasks, candidates, tuning and distance are ours: decoders of 4, 8 "
    "and 12 layers and width 32, each read by its errors and by its distances to exact kernel "
    "ridge regression, with two alignments of layers and steps. So there are four readings of a "
    "decoder.)",
    truth="Not for our decoders, whose excess error over exact regression is 0.01 to 0.06. Of 120 "
    "readings with ten seeds (other tasks for probes, tuning and scoring), 45 name preconditioned "
    "Chebyshev iteration, 22 conjugate gradient, 19 heavy ball, 15 Chebyshev, 11 gradient descent "
    "and 8 Richardson. Another solver is named more often than Richardson with every seed. The "
    "mean distance of Richardson's errors is 1.2 to 1.5 times the least one, with every seed. "
    "Richardson is named in 0 of 60 readings that compare layer l with step l, and in 8 of 60 in "
    "which later layers have no earlier step. In 57 of the latter, Richardson is not farther than "
    "the nearest solver beyond chance, so names are not distinguishable. In all 120, the same "
    "holds of a predictor that runs no solver, such as gradient flow with a time of its own at "
    "every layer. Such a predictor is nearer than Richardson in 107, and nearer than every solver "
    "in 83. So these errors do not show that a decoder runs any of the solvers. Untrained models "
    "of the same shapes, with a probe of every layer, get names, too. Counted with preconditioned "
    "Chebyshev, its accelerated form, Richardson is named in 53 of 120 readings of the decoders "
    "and 33 of the untrained models; with layer l beside step l, in 30 of 60 and 13 of 60. For the "
    "decoder of 8 blocks, which was trained the longest, it is 12 of 40 and 10 of 40. So these two "
    "names are more frequent after training, but not for every decoder. Whether a decoder runs one "
    "of the two is open: read by a probe, constructions of Richardson get wrong names as well "
    "(C48).",
    source="Yan et al. 2026, abstract",
    quote="Empirically, we train GPT-2-style transformers on Gaussian-process regression tasks to "
    "further test the preconditioned Richardson interpretation. Through linear probing, we compare "
    "the transformer's layer-wise predictions with the step-wise outputs of classical KRR solvers "
    "and find that its error profiles align most consistently with preconditioned Richardson "
    "iteration.",
    expected=FALSE,
    required_inputs=TASK_FAMILY,
    run=run,
    # `search` has the points of a search, and the points that are refined.
    config=Config(tasks=16, probe_tasks=256, num_queries=8, steps=24, search=Exactly((192, 2))),
    axes=Config(runs=tuple(f"gp-decoder-{n}" for n in (4, 8, 12)), candidates=compared("gaussian")),
    quick=Config(
        runs=("gp-decoder-8",),
        steps=16,
        candidates=("richardson", "heavy_ball", "preconditioned_chebyshev"),
        search=(96, 2),
    ),
    untested=(
        "models of the sizes and the training of the source",
        "Richardson and its accelerated form as one solver",
    ),
    plot=Plot(x="layer", y="error", by=("run", "model")),
)
