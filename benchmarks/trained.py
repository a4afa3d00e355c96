"""`python -m benchmarks.trained`: what do the models of `benchmarks.converged` run?

Every stage of a model is read in every way, in 3 minutes of one core; `--folder` keeps it.
"""

import time
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks import converged, records
from benchmarks.profiles import HOWS, Row, least, short
from benchmarks.streams import informative
from icl_krr import probes
from icl_krr.catalogue import compared
from icl_krr.experiments import Lines, Study, identify, load, to_markdown
from icl_krr.experiments.identify import IDENTIFIED, NEAR, NULLS, TIED
from icl_krr.kernels import name_of
from icl_krr.probes import Identification, effective, fit_probe, layerwise
from icl_krr.tasks import map_tasks
from icl_krr.training import reference
from icl_krr.transformer import Transformer

SIZES: dict[str, Any] = {"tasks": 64, "probe_tasks": 256, "num_queries": 4, "seed": 0}
STEPS = 2
"""Steps of a solver for each layer."""
QUICK: dict[str, Any] = {"tasks": 4, "probe_tasks": 16, "num_queries": 2, "seed": 0}
QUICK_NAMES = ("gradient_descent",)

NAMED = (IDENTIFIED, NEAR, TIED)
ABOUT = """\
`python -m benchmarks.trained` reads trained models in every way that the library has. Candidates,
with kernel width, ridge and step size fitted anew for every reading: {names}.

- profile: the nearest solver by its errors, layer by layer (`icl-krr identify --protocol
  error-profile`), for two measures and two alignments, read by a linear probe.
- probe: the nearest solver by predictions and hat matrices of this probe (`identify`).
- state, innovation: the nearest solver whose steps, or changes of steps, linear maps decode from
  the stream; a distance of 1 says nothing, 0.01 is close. use: the verdict of `identify_streams`
  with all its controls and, if a solver is left, a test whether the answer follows its steps.
- exact regression, last layer: distance of the model's hat matrix from the nearest of any ridge.
- Controls, with their distances in brackets: nulls that run no solver, a model of the same shape
  with random weights, and probes that are fitted to the outputs of other tasks ("shuffled").
- A candidate that diverges or stays where it is has no distance. A probe reads every layer but the
  last, where the model itself predicts; the last one, too, of random weights.
"""


def names_and_distances(result: Identification) -> Row:
    """The verdict, candidates whose distances say something, the nearest first, and controls."""
    mean = lambda spaces: {space: part.mean for space, part in spaces.items()}  # noqa: E731
    return {
        "status": result.status,
        "remain": result.remain,
        "candidates": {one.fit.candidate: mean(one.distances) for one in informative(result)},
        "controls": {name: mean(spaces) for name, spaces in result.baselines.items()},
    }


def examine(where: Path, sizes: Row, names: tuple[str, ...]) -> Row:
    """Read one model in all ways."""
    began, run, config = time.perf_counter(), load(where), identify.IdentifyConfig(**sizes)
    family, key = identify.family_of(run, config), jax.random.key(config.seed)
    probing, scored, fitted = identify.tasks_of(run, config)
    best = reference(family, jax.random.fold_in(key, 4))
    name, system = name_of(best.kernel), (best.kernel, float(best.ridge))
    kernels, steps = (name, "exponential"), STEPS * run.model.steps
    both = [identify.profile_targets(tasks, *system) for tasks in (fitted, scored)]
    values = identify.exact_hyperparameters(*system)
    protocol = identify.Protocol(both, kernels, steps, values, config.seed, names)
    model = identify.in_dtype_of_tasks(run.model, fitted)
    other = identify.untrained(model, fitted, jax.random.fold_in(key, 3))
    assert isinstance(other, Transformer)
    layers = partial(layerwise, model, probe=fit_probe(model, probing))
    record: Row = {"exact": best.losses(scored)["exact"]}
    shuffled = probing.y_query[jax.random.permutation(jax.random.fold_in(key, 5), len(probing.x))]
    readouts = {
        "model": layers,
        "untrained": identify.read_by_probe(other, probing),
        "shuffled": identify.read_by_probe(model, probing, shuffled),
    }
    for words, predictions in readouts.items():
        run_on = jax.jit(partial(map_tasks, predictions))
        last = identify.run_model(predictions, fitted, scored).hats[:, -1]
        gap = effective("regression", name, scored, last)["distance"] if np.any(last) else None
        record[words] = short(protocol.read([run_on(part.tasks) for part in both]))
        record[words]["filter"] = gap
    kwargs: Any = {"candidates": names, "kernels": kernels, "steps": steps, "seed": config.seed}
    result = probes.identify(layers, fitted, scored, system=system, **kwargs)
    record["probe"] = names_and_distances(result)
    halves = (part.tasks for part in both)
    kwargs |= {"kernels": (name,), "candidates": tuple(n for n in names if n in compared(name))}
    record["streams"] = names_and_distances(probes.identify_streams(model, *halves, **kwargs))
    return record | {"seconds": time.perf_counter() - began}


def nearest_far(reading: Row) -> float:
    return reading["distances"][reading["nearest"]]


def nearest(record: Row, space: str) -> tuple[str, float]:
    """The candidate with the least distance in a space, and this distance."""
    sizes = {name: distances[space] for name, distances in record["candidates"].items()}
    return min(sizes.items(), key=itemgetter(1))


SPACES = {
    "predictions of a probe": ("probe", "prediction"),
    "hat matrices of a probe": ("probe", "hat"),
    "state": ("streams", "state"),
    "innovation": ("streams", "innovation"),
}


def nearest_control(row: Row, part: str, space: str) -> float:
    return min(one[space] for one in row[part]["controls"].values() if space in one)


def models_table(rows: dict[str, Row]) -> Lines:
    """Every model: its error, the nearest solver by each reading beside its control, a verdict."""
    header = ["model", "error / exact", "profile: error, 1:1", "error, monotone", *SPACES]
    header += ["streams, with use", "exact regression, last layer"]
    lines = []
    for name, row in rows.items():
        cells, verdict = [f"{row['model']['error'] / row['exact']:.3g}"], row["streams"]["status"]
        for how in HOWS[::2]:
            said = row["model"][how]
            others = (nearest_far(row[whose][how]) for whose in ("untrained", "shuffled"))
            null = least(said, NULLS)
            words = "{} {:.2g} (null {:.2g}, untrained {:.2g}, shuffled {:.2g})"
            cells.append(words.format(said["nearest"], nearest_far(said), null, *others))
        for part, space in SPACES.values():
            solver, size = nearest(row[part], space)
            cells.append(f"{solver} {size:.2g} (control {nearest_control(row, part, space):.2g})")
        if verdict in NAMED:
            verdict += f": {', '.join(row['streams']['remain'])}"
        filters = (f"{row[whose]['filter']:.2g}" for whose in ("model", "untrained"))
        lines.append([name, *cells, verdict, "{} (untrained {})".format(*filters)])
    return header, lines


def markdown(record: Row) -> str:
    rows = record["models"]
    found = {name for row in rows.values() for name in row["probe"]["candidates"]}
    names = ", ".join(name for name in compared() if name in found)
    return f"{ABOUT.format(names=names)}\n{to_markdown(models_table(rows))}"


def main() -> None:
    args = records.options(__doc__, folder=True)
    where, sizes, names = converged.stages(limited=False), SIZES, compared()
    if args.quick:
        where, sizes, names = dict([*where.items()][:1]), QUICK, QUICK_NAMES
    settings = sizes | {"candidates": names}

    measure = lambda cell: examine(where[cell["model"]], sizes, names)  # noqa: E731
    weights = lambda cell: converged.digest(where[cell["model"]])  # noqa: E731
    study = Study("trained", settings, {"model": where}, measure, weights)
    with jax.enable_x64(True):
        folders = records.finished(study, args.folder)
    rows = {cell["model"]: row for cell, row in folders}
    facts = {"dtype": "float64", "sizes": SIZES, "steps of a solver per layer": STEPS}
    record = {"meta": records.meta("trained", **facts), "models": records.rounded(rows)}
    records.finish("trained", record, markdown, args.quick)


if __name__ == "__main__":
    main()
