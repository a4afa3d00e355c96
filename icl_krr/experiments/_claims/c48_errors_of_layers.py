"""C48: errors after the layers identify the solver."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ... import Gaussian, Transformer, solvers
from ...catalogue import compared
from ...probes import Probe, fit_probe, layerwise
from ...probes._naming.layer_predictions import split_halves
from ...tasks import GaussianProcess, Task, map_tasks
from .._shared.draws import draw_batches
from ..identify import _error_profile as profiles
from ..identify._profile_paths import NULLS
from ..solverbench import _distractor_functions as distractor_functions
from ..solverbench._settings import PROCESS, BenchConfig, BenchFamily
from .claim import CORRECTED, TASK_FAMILY, Checks, Claim, Config, Exactly, check, stated
from .measuring import Plot, Rows

KERNEL, NOISE = Gaussian(0.8), 0.05
OWN, PROBE = "its own predictions", "a linear probe"
SHARE, SMOOTHERS = "a share of exact KRR", "kernel smoothers, a falling lengthscale"


def run(config: Config, key: jax.Array) -> tuple[Rows, Checks]:
    """Read constructions of known solvers in two ways, and predictors that run no solver."""
    one = setting(config, key)
    ridge = one.ridge(KERNEL)
    both = [profiles.profile_targets(tasks, KERNEL, ridge) for tasks in split_halves(one.tasks)]
    exact_values = profiles.exact_hyperparameters(KERNEL, ridge)
    options: Any = {"candidates": config.candidates, "search": profiles.Search(*config.search)}
    protocol = profiles.Protocol(both, ("gaussian",), 2 * config.layers, exact_values, **options)
    rows = []
    for name in config.known:
        model = one.build(name, KERNEL)
        probe = fit_probe(model, one.probing)
        answers = [read(model, probe, targets.tasks) for targets in both]
        for by, each in zip((OWN, PROBE), zip(*answers, strict=True), strict=True):
            rows += rows_of(protocol.read(each), name, by)
    for name in config.strangers:
        answers = [of_stranger(name, exact_values["ridge"], config.layers, t.tasks) for t in both]
        rows += rows_of(protocol.read(answers), f"no solver: {name}", OWN)
    return rows, checks(rows, config)


def checks(rows: Rows, config: Config) -> dict[str, Any]:
    def share(by: str, column: str, inside: bool = True) -> np.floating:
        chosen = [row for row in rows if "named" in row and row["read by"] == by]
        return np.mean([row[column] for row in chosen if (row["model"] in config.known) == inside])

    reading = "its own predictions, and predictors beside it that run no solver"
    strangers = check(share(OWN, "null is as near", inside=False), reading=reading)
    return {
        "a linear probe of every layer: share of wrong names <= 0.1": stated(share(PROBE, "wrong")),
        "own predictions: share of wrong names <= 0": check(share(OWN, "wrong"), reading=reading),
        "own predictions: share of readings in which a predictor without a solver is as near "
        "<= 0": check(share(OWN, "null is as near"), reading=reading),
        "models that run no solver: this share >= 1": strangers,
        "a linear probe of every layer: this share >= 0.5": share(PROBE, "null is as near"),
    }


def setting(config: Config, key: jax.Array) -> BenchFamily:
    """Tasks, and constructions that suit them."""
    sizes = {"num_supports": config.num_supports, "num_queries": config.num_queries}
    family = GaussianProcess(KERNEL, NOISE, num_features=2, inputs="uniform", **sizes)
    tasks, probing = draw_batches(key, (2 * config.tasks, config.probe_tasks), family)
    return BenchFamily(PROCESS, family, tasks, probing, BenchConfig(steps=config.layers))


@jax.jit
def read(model: Transformer, probe: Probe, tasks: Task) -> tuple[jax.Array, jax.Array]:
    """Predictions of a model after every layer [tasks, layer, query], its own and the probe's."""

    def both(task: Task) -> tuple[jax.Array, jax.Array]:
        return layerwise(model, task), layerwise(model, task, probe)

    return map_tasks(both, tasks)


@partial(jax.jit, static_argnums=(0, 2))
def of_stranger(name: str, ridge: jax.Array, layers: int, tasks: Task) -> jax.Array:
    """Predictions that no solver makes, from 0 on [tasks, layer, query]."""
    shares = jnp.linspace(0, 1, layers + 1)
    widths = np.geomspace(2.0, 0.2, layers)

    def share(task: Task) -> jax.Array:
        return distractor_functions.exact(KERNEL, task, ridge + 0 * shares, shares)

    def smoothers(task: Task) -> jax.Array:
        predictions = [solvers.nadaraya_watson(Gaussian(w), task).prediction for w in widths]
        return jnp.stack([jnp.zeros_like(predictions[0]), *predictions])

    return map_tasks({SHARE: share, SMOOTHERS: smoothers}[name], tasks)


def rows_of(profile: profiles.Profile, model: str, by: str) -> Rows:
    """What the profile says of a model in every reading, and its errors layer by layer."""
    about, rows = {"model": model, "read by": by}, []
    for reading in profile.readings:
        best = reading.nearest
        nulls = [one for one in reading.candidates if one.name in NULLS]
        rows.append(
            about
            | {
                "measure": reading.measure,
                "alignment": reading.alignment,
                "named": best.name,
                "wrong": best.name != model,
                "null is as near": any(one.name in reading.tied for one in nulls),
                "distance": best.distance,
                "distance of the nearest null": min(one.distance for one in nulls),
            }
        )
    errors = 10 ** profile.curves["error"]
    return rows + [about | {"layer": i, "error": float(each)} for i, each in enumerate(errors)]


CLAIM = Claim(
    statement="The solver that a model runs is the one whose errors, step by step, are nearest to "
    "those of the model, layer by layer, read by a linear probe. (The source uses this as evidence "
    "for one kind of trained model. We know its abstract only, so tasks, candidates, tuning and "
    "distance are ours.)",
    truth="If the predictions after each layer are the model's own: constructions of Richardson's, "
    "preconditioned Chebyshev and conjugate gradient iteration with 4 layers (n = 16, two "
    "features, Gaussian kernel, six candidates) have their own names in 120 of 120 readings with "
    "ten seeds. Errors or distances to exact regression are read, with two alignments. The "
    "distance of the solver that runs is at most 2e-9, in log10, and no predictor without a solver "
    "is as near. Through a linear probe of all channels, 88 of 120 names are wrong: 33 of 40 for "
    "Richardson, 35 for preconditioned Chebyshev and 20 for conjugate gradient. In 113, a "
    "predictor that runs no solver is not farther than the nearest solver beyond chance. The probe "
    "fits each layer to the targets, so its errors are not those of the model's steps. Predictors "
    "that run no solver, a share of exact regression and kernel smoothers, get a name in all of 80 "
    "readings. Only the comparison with such predictors warns of it, in all 80.",
    source="Yan et al. 2026, abstract",
    quote="Through linear probing, we compare the transformer's layer-wise predictions with the "
    "step-wise outputs of classical KRR solvers and find that its error profiles align most "
    "consistently with preconditioned Richardson iteration.",
    expected=CORRECTED,
    required_inputs=TASK_FAMILY,
    run=run,
    # `search` has the points of a search, and the points that are refined.
    config=Config(
        tasks=12,
        probe_tasks=256,
        num_supports=16,
        num_queries=6,
        layers=4,
        search=Exactly((192, 2)),
    ),
    axes=Config(
        known=("richardson", "preconditioned_chebyshev", "conjugate_gradient"),
        strangers=(SHARE, SMOOTHERS),
        candidates=compared("gaussian"),
    ),
    quick=Config(
        tasks=8,
        probe_tasks=64,
        num_queries=4,
        layers=3,
        known=("gradient_descent", "conjugate_gradient"),
        strangers=(SHARE,),
        candidates=("gradient_descent", "conjugate_gradient"),
        search=(32, 1),
    ),
    plot=Plot(x="layer", y="error", by=("model", "read by")),
)
