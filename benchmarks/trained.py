"""`python -m benchmarks.trained`: what do trained models run? Every protocol on every model.

Each model is read by its error profile, by predictions and hat matrices of linear probes, by states
and innovations of its stream, by their use, and by the spectral filter of its predictions. Beside
each reading stands its control. The models are the runs in the folders `--models`, those of
`python -m benchmarks.decoders` and of `python -m benchmarks.subjects`. It takes 1 to 3 CPU minutes
for each model. Rows are kept in `--folder`, so the same command continues after an interruption.
`--quick` is a smoke test; it writes no results.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax
import numpy as np

from benchmarks.records import draw, kept, meta, options, rounded, save
from benchmarks.streams import forget_programs
from benchmarks.trained_tables import IN_STREAMS, distances_figure, markdown
from icl_krr.catalogue import name_of
from icl_krr.experiments.identify.error_profile import CANDIDATES, Protocol, known_of, targets_of
from icl_krr.experiments.identify.probe_controls import (
    family_of,
    in_dtype_of_tasks,
    read_by_probe,
    tasks_of,
    untrained,
)
from icl_krr.experiments.identify.profile_tables import record
from icl_krr.experiments.identify.settings import IdentifyConfig
from icl_krr.experiments.shared.recipe import RUNS
from icl_krr.experiments.shared.runs import Run, load
from icl_krr.probes import (
    Identification,
    effective,
    fit_probe,
    identify,
    identify_streams,
    layerwise,
)
from icl_krr.probes.naming.answers import run_model
from icl_krr.tasks import Task, map_tasks
from icl_krr.training import reference
from icl_krr.transformer import Transformer

SIZES: dict[str, Any] = {"tasks": 16, "probe_tasks": 256, "num_queries": 4, "seed": 0}
STEPS = 2
"""Steps of a solver for each layer."""
FEW = 12
"""Tasks that fit what is decoded from the streams, and as many that score it."""
QUICK: dict[str, Any] = {"tasks": 4, "probe_tasks": 16, "num_queries": 2, "seed": 0}
QUICK_NAMES = ("gradient_descent",)

Row = dict[str, Any]


def names_and_distances(found: Identification) -> Row:
    """The verdict, and every candidate with its distances, the nearest first."""
    return {
        "status": found.status,
        "remain": found.remain,
        "as near": found.as_near,
        "candidates": [
            {
                "candidate": one.fit.candidate,
                "because": one.because,
                "steps": one.fit.alignment,
                **{
                    space: {"mean": part.mean, "interval": part.interval}
                    for space, part in one.distances.items()
                },
            }
            for one in found.suspects
        ],
        "controls": {
            name: {space: part.mean for space, part in spaces.items()}
            for name, spaces in found.baselines.items()
        },
        "effects": found.best.evidence.effects if found.best.evidence else {},
    }


def filters(name: str, hats: np.ndarray, tasks: Task) -> list[dict[str, float]]:
    """Ridge and bandwidth of the exact regression that is nearest to each layer, and how near."""
    layers = (hats[:, layer] for layer in range(1, hats.shape[1]))
    return [effective("regression", name, tasks, own) if np.any(own) else {} for own in layers]


def examine(
    where: Path, sizes: dict[str, Any], names: tuple[str, ...], show: Callable[[str], None]
) -> Row:
    """Read one model in all ways."""
    began, run = time.perf_counter(), load(where)
    config = IdentifyConfig(**sizes)
    with jax.enable_x64(True):
        row = read(run, config, names, show)
    facts = {"tasks": run.recipe.task.family, "style": run.recipe.model.style}
    return {**facts, **row, "seconds": time.perf_counter() - began}


def read(
    run: Run, config: IdentifyConfig, names: tuple[str, ...], show: Callable[[str], None]
) -> Row:
    family, key = family_of(run, config), jax.random.key(config.seed)
    probing, scored, fitted = tasks_of(run, config)
    best = reference(family, jax.random.fold_in(key, 4))
    name = name_of(best.kernel)
    kernels, steps = (name, "exponential"), STEPS * run.model.steps
    both = [targets_of(tasks, best.kernel, float(best.ridge)) for tasks in (fitted, scored)]
    known = known_of(best.kernel, float(best.ridge))
    protocol = Protocol(both, kernels, steps, known, config.seed, names)
    model = in_dtype_of_tasks(run.model, fitted)
    other = untrained(model, fitted, jax.random.fold_in(key, 3))
    assert isinstance(other, Transformer)
    layers = partial(layerwise, model, probe=fit_probe(model, probing))
    found: Row = {"errors": best.losses(scored), "depth": run.model.steps}
    given: Any = {"candidates": names, "kernels": kernels, "steps": steps, "seed": config.seed}
    for words, answers in (("model", layers), ("untrained", read_by_probe(other, probing))):
        show(f"{words}, error profile")
        run_on = jax.jit(partial(map_tasks, answers))
        own = record(protocol.read([run_on(part.tasks) for part in both]))
        show(f"{words}, filters")
        hats = run_model(answers, fitted, scored).hats
        found[words] = {"profile": own, "filters": filters(name, hats, scored)}
    show("distances of a probe")
    system = (best.kernel, float(best.ridge))
    found["probe"] = names_and_distances(identify(layers, fitted, scored, system=system, **given))
    show("streams")
    few = (jax.tree.map(lambda leaf: leaf[:FEW], part.tasks) for part in both)
    given |= {"kernels": (name,), "candidates": tuple(n for n in names if n in IN_STREAMS)}
    found["streams"] = names_and_distances(identify_streams(model, *few, **given))
    return found


def models_in(tops: list[Path]) -> list[Path]:
    """The runs in folders, those with the first training seed first."""
    found = [path.parent for top in tops for path in top.glob("*/model.msgpack")]
    return sorted(found, key=lambda path: (path.name[-1], tops.index(path.parent), path.name))


def main() -> None:
    parser, place = options(__doc__), Path("icl-krr-trained")
    parser.add_argument("--folder", type=Path, default=place, help="rows of an earlier run")
    parser.add_argument("--models", type=Path, nargs="*", default=[], help="folders of runs")
    parser.add_argument("--finished", action="store_true", help="only what the folder has already")
    parser.add_argument("--part", default="0/1", help="read only part I of N, as I/N")
    asked = parser.parse_args()
    part, parts = map(int, asked.part.split("/"))
    every, sizes, names = models_in(asked.models), SIZES, CANDIDATES
    if asked.quick:
        sizes, names, every = QUICK, QUICK_NAMES, [RUNS / "gp-decoder-2d"]
    rows = {}
    with TemporaryDirectory() as temporary:
        folder = Path(temporary) if asked.quick else asked.folder
        folder.mkdir(exist_ok=True)
        for i, where in enumerate(every[part::parts], start=1):
            forget_programs()
            file = folder / f"{where.name}.json"
            if asked.finished and not file.exists():
                continue
            show = lambda words, name=where.name: print(f"{name}: {words}", flush=True)  # noqa: E731
            rows[where.name] = kept(file, partial(examine, where, sizes, names, show))
            print(f"{i}: {where.name}, {rows[where.name]['seconds']:.0f} s", flush=True)
    print(text := markdown(rows))
    if asked.quick or parts > 1:
        return
    facts = {"dtype": "float64", "sizes": SIZES, "steps of a solver per layer": STEPS}
    save("trained", {"meta": meta("trained", **facts), "models": rounded(rows)}, text)
    draw("trained", distances_figure(rows))


if __name__ == "__main__":
    main()
