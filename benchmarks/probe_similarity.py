"""`python -m benchmarks.probe_similarity`: do linear probes tell whose iterates a model holds?

Models of known solver first, then trained ones. `--folder` keeps what was read.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from functools import cache, partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from benchmarks import converged, profiles, records, streams
from benchmarks.profiles import OUTCOMES, Row, matrix, outcome_of, share
from benchmarks.streams import DISTRACTOR, JUNK, NOISE, PLAIN, RANDOM, Case, of
from icl_krr import experiments as lab, solvers
from icl_krr.experiments import Lines, identify, solverbench as bench, to_markdown
from icl_krr.experiments.identify import iterates, similarities
from icl_krr.plots import curves_figure
from icl_krr.probes import streams as streams_of
from icl_krr.tasks import LinearRegression, Task, map_tasks, system
from icl_krr.training import reference
from icl_krr.transformer import Transformer, predict_batch

TASKS, QUICK_TASKS = 2000, 40
ROLES = {
    "query": "the token of the query, from which the published probe decodes all alpha",
    "support": "the token of each support, from which a probe decodes its alpha",
}
SOLVERS_READ = (*identify.KERNEL_SOLVERS, *identify.NORMALISED_SOLVERS)
SHARES = np.geomspace(1e-3, 1, 31).tolist()
"""Lower bounds on the eigenvalues that are tried, in units of the largest one of each task."""
TUNED = ("gradient_descent", "chebyshev")
NULLS = {"the model": "read", "random weights": "untrained", "inputs alone": "inputs"}

ABOUT = """\
`python -m benchmarks.probe_similarity` reads models as Cawley (2026) does: after layer l, a linear
probe decodes the coefficients alpha of a solver after l steps, and the mean over layers of the
cosine between decoded and right numbers is the similarity to that solver. The model is then called
like the solver with the largest one. {tasks} tasks, of which a fifth scores the probes; float64.

- Tokens: {roles}.
- Solvers: gradient descent with the step size of the source, 2 / (smallest + largest eigenvalue),
  Chebyshev iteration and CG; on Gaussian kernels, preconditioned Richardson and Chebyshev, too.
- right: the solver that runs has the largest similarity. among: it has not, but is not
  distinguishable from the largest (95 %, all candidates together, bootstrap of the scored tasks,
  for the fitted probes). certain and wrong: a wrong solver is alone.
- Errors: gradient descent has the step size of the source, or ("tuned") the best of {shares}
  between 1 and 2 over the largest eigenvalue of a task. Chebyshev iteration has the best of as
  many intervals. Both are tuned on the scored tasks, for each condition number.
- Controls: the model with random weights; no model, but x and y as they are, all of a task at the
  query and its own at a support.
"""


def cases() -> Iterator[Case]:
    """Known models that run a solver whose iterates are probed for, and models that run none."""
    for case in profiles.cases():
        if case.kind in (DISTRACTOR, RANDOM) or case.about in SOLVERS_READ:
            yield case


def reader(case: Case, model: streams.Reader) -> Callable[[Task, str], jax.Array] | None:
    """The channels [L + 1, tokens, d] of a model at the tokens of a role; None without tokens."""
    if not isinstance(model, Transformer):
        return None
    if case.kind != JUNK:
        return partial(streams_of, model)
    key = streams.key_of(case.about, case.kernel, JUNK)

    def with_junk(task: Task, role: str) -> jax.Array:
        at = task.x_query if role == "query" else task.x
        own = task.replace(x_query=at, y_query=None)
        return streams.with_junk(own, streams_of(model, task, role), key, int(case.level))

    return with_junk


@cache
def targets_of(one: bench.BenchFamily, kernel: str, count: int) -> tuple[Task, Row]:
    """Tasks of a family with one query, and iterates of solvers on them."""
    sampler: Any = replace(one.sampler, num_queries=1)  # pyright: ignore
    tasks = lab.draw_tasks(jax.random.key(one.config.seed), count, sampler)
    chosen = one.kernel(kernel)
    return tasks, iterates(chosen, one.ridge(chosen), tasks, one.config.steps)


def read(channels: Callable[[Task, str], jax.Array], tasks: Task, targets: Mapping) -> Row:
    """What the similarities of channels to targets say, by role."""
    return {
        role: said_of(np.asarray(identify.channels_of(channels, role, tasks)), targets)
        for role in ROLES
    }


def said_of(channels: np.ndarray, targets: Mapping[str, np.ndarray]) -> Row:
    found = similarities(channels, targets)
    means, names = {name: one.mean for name, one in found.items()}, [*found]
    behind = identify.compared_by_cosine(found)
    tied = [name for name, low in zip(names, behind.low[:, 0], strict=True) if low <= 0]
    nearest = names[behind.leader]
    return {
        "nearest": nearest,
        "tied": [name for name in tied if name != nearest],
        "similarity": means,
        "layers": {name: one.layers.tolist() for name, one in found.items()},
    }


def examine(case: Case, config: bench.BenchConfig) -> Row:
    """Read one model of SolverBench."""
    began = time.perf_counter()
    one = streams.setting_of(case.tasks, replace(config, seed=case.seed))
    tasks, targets = targets_of(one, case.kernel, QUICK_TASKS if config.quick else TASKS)
    # junk is appended at the tokens that are read, so the model itself is a plain one
    subject = streams.subject_of(case._replace(kind=PLAIN) if case.kind == JUNK else case, one)
    channels = reader(case, subject.reader)
    return {
        **case._asdict(),
        "right": [name for name in subject.names if name in targets],
        "read": {} if channels is None else read(channels, tasks, targets),
        "inputs": read(partial(identify.inputs_of, layers=config.steps), tasks, targets),
        "seconds": time.perf_counter() - began,
    }


def examine_trained(folder: Path, count: int) -> Row:
    """Read a trained model, the same model with random weights, and no model."""
    began, run, key = time.perf_counter(), lab.load(folder), jax.random.key(0)
    family: Any = run.family
    (kernel, ridge), single = family.optimal(), []
    if isinstance(family, LinearRegression):
        conditions = family.conditions or (family.condition,)
        single = [replace(family, condition=one, conditions=None) for one in conditions]
    tasks = lab.draw_tasks(key, count, family)
    targets = iterates(kernel, float(ridge), tasks, run.model.steps)
    model = identify.in_dtype_of_tasks(run.model, tasks)
    other: Any = identify.untrained(model, tasks, jax.random.fold_in(key, 1))
    return {
        "read": read(partial(streams_of, model), tasks, targets),
        "untrained": read(partial(streams_of, other), tasks, targets),
        "inputs": read(partial(identify.inputs_of, layers=model.steps), tasks, targets),
        "errors": [errors_of(model, one, count) for one in single],
        "seconds": time.perf_counter() - began,
    }


def errors_of(model: Transformer, family: Any, count: int) -> Row:
    """Mean squared errors of a model, of exact regression, and of solvers after its layers.

    A tuned solver has the lower bound on the eigenvalues, of `SHARES`, with the least error.
    """
    tasks, (kernel, ridge) = lab.draw_tasks(jax.random.key(2), count, family), family.optimal()

    @partial(jax.jit, static_argnums=0)
    def error(name: str, share: float | None = None) -> jax.Array:
        def prediction(task: Task) -> jax.Array:
            values = jnp.linalg.eigvalsh(system(kernel, task).gram) + ridge
            low = values[0] if share is None else share * values[-1]
            bounds = {} if name == "conjugate_gradient" else {"spectrum": (low, values[-1])}
            run = getattr(solvers, name)
            return run(kernel, task, ridge=ridge, steps=model.steps, **bounds).prediction[-1]

        return jnp.mean((map_tasks(prediction, tasks) - tasks.y_query) ** 2)

    errors = {name: error(name) for name in ("gradient_descent", "conjugate_gradient")}
    for name in TUNED:
        errors[f"tuned {name}"] = min(error(name, share) for share in SHARES)
    errors["model"] = jnp.mean((predict_batch(model, tasks) - tasks.y_query) ** 2)
    errors["exact"] = reference(family, jax.random.key(3)).losses(tasks)["exact"]
    errors["condition"] = family.condition
    return {name: float(value) for name, value in errors.items()}


def listed(rows: Iterable[Row]) -> list[Row]:
    """Models with tokens that run a solver whose iterates are probed for."""
    return [row for row in rows if row["right"] and row["read"]]


def known_table(rows: list[Row]) -> Lines:
    """What each reading says of models of known solver, and of models that run none."""
    header = ["models", "token", "number", *OUTCOMES, "the right one", "the best other one"]
    lines = []
    for kind, role in product((PLAIN, JUNK, NOISE, DISTRACTOR, RANDOM), ROLES):
        each = [row for row in of(rows, kind) if row["read"]]
        if not each:
            continue
        said = [(row, row["read"][role]) for row in each if row["right"]]
        counts = [share(outcome_of(*pair) == name for pair in said) for name in OUTCOMES]
        if said:
            both = zip(*(best_of(*pair) for pair in said), strict=True)
            counts += [f"{median(values):.3f}" for values in both]
        else:
            alone = share(not row["read"][role]["tied"] for row in each)
            counts = ["-", "-", "-", f"{alone} have one name", "-", "-"]
        lines.append([kind, role, str(len(said or each)), *counts])
    return header, lines


def best_of(row: Row, said: Row) -> tuple[float, float]:
    """The largest similarity to a solver that runs, and to another one."""
    found = said["similarity"]
    right = [found[name] for name in row["right"]]
    return max(right), max(found[name] for name in found if name not in row["right"])


def confusion(rows: list[Row], role: str) -> Lines:
    """Models without junk and noise, by the solver that runs and by the largest similarity."""
    each = listed(of(rows, PLAIN))
    pairs = [(row["right"][0], row["read"][role]["nearest"]) for row in each]
    names = [name for name in SOLVERS_READ if any(name in pair for pair in pairs)]
    _, counts = matrix(pairs, names, names)
    lines = ([str(count or "") for count in line] for line in counts)
    return ["runs", *names], [[true, *line] for true, line in zip(names, lines, strict=True)]


def similarity_table(parts: Mapping[tuple[str, str], Row], roles: Iterable[str]) -> Lines:
    """The similarities of models, or of their inputs, by the model and by what is read."""
    lines = []
    for (name, words), read in parts.items():
        for role in roles:
            said = read[role]
            found = (said["similarity"].get(solver) for solver in SOLVERS_READ)
            cells = ["-" if one is None else f"{one:.3f}" for one in found]
            lines.append([name, words, role, *cells, ", ".join((said["nearest"], *said["tied"]))])
    return ["model or tasks", "read from", "token", *SOLVERS_READ, "largest, tied"], lines


def inputs_table(rows: list[Row], roles: Iterable[str] = tuple(ROLES)) -> Lines:
    families: dict[tuple[str, str], Row] = {}
    for row in of(rows, PLAIN):
        tasks = f"{row['tasks']} tasks, {row['kernel']} kernel"
        families.setdefault((tasks, "inputs alone"), row["inputs"])
    return similarity_table(families, roles)


def trained_table(trained: Mapping[str, Row], roles: Iterable[str] = tuple(ROLES)) -> Lines:
    """The similarities of trained models, of the same with random weights, and of the inputs."""
    parts = {}
    for name, (words, key) in product(trained, NULLS.items()):
        about = name if key == "read" else name.partition(",")[0]  # nulls are those of all stages
        parts[about, words] = trained[name][key]
    return similarity_table(parts, roles)


def errors_table(trained: Mapping[str, Row]) -> Lines:
    """Errors of trained models and of solvers over those of exact regression."""
    names = ["model", *(f"tuned {name}" for name in TUNED)]
    names += ["gradient_descent", "conjugate_gradient"]
    header = ["trained", "condition number", "exact", *(f"{name} / exact" for name in names)]
    lines = [
        [name, f"{errors['condition']:g}", f"{errors['exact']:.3g}"]
        + [f"{errors[one] / errors['exact']:.3g}" for one in names]
        for name, row in trained.items()
        for errors in row["errors"]
    ]
    return header, lines


def markdown(record: Row) -> str:
    rows, trained = record["rows"], record["trained"]
    roles = "; ".join(f"{name}: {words}" for name, words in ROLES.items())
    parts = [ABOUT.format(roles=roles, tasks=record["meta"]["tasks"], shares=len(SHARES))]
    tables = {
        "Models of known solver, and models that run none of the solvers": known_table(rows),
        **{f"Largest similarity, read from the {role}": confusion(rows, role) for role in ROLES},
        "No model: the inputs alone": inputs_table(rows),
        "Trained models": trained_table(trained),
        "Errors on linear tasks (others: scaling.md), of solvers after as many steps as layers": (
            errors_table(trained)
        ),
    }
    parts += [f"{title}:\n\n{to_markdown(table)}\n" for title, table in tables.items() if table[1]]
    return "\n".join(parts)


def layers_figure(record: Row) -> Figure:
    """The cosines after every layer of models after their last stage, at the token of the query."""
    last = {name.partition(",")[0]: row for name, row in record["trained"].items()}
    panels = {}
    for name, row in last.items():
        curves = panels[f"layer of {name}"] = {}
        for solver, (words, key) in product(
            ("gradient_descent", "conjugate_gradient"), NULLS.items()
        ):
            layers = row[key]["query"]["layers"][solver]
            curves[f"{solver.replace('_', ' ')}, {words}"] = range(1, len(layers) + 1), layers
    title = "Cosines of linear probes with iterates of solvers (training seed 0, seed 0, float64)"
    return curves_figure(panels, "cosine, at the token of the query", title)


def main() -> None:
    args = records.options(__doc__, folder=True)
    jax.config.update("jax_enable_x64", True)
    config, every, count = bench.BenchConfig(), tuple(dict.fromkeys(cases())), TASKS
    places = converged.stages(limited=False) | {"linear-decoder": records.RUNS / "linear-decoder"}
    if args.quick:
        config, count = bench.BenchConfig(**bench.QUICK, quick=True), QUICK_TASKS
        every, places = profiles.QUICK_CASES, {"linear-decoder": places["linear-decoder"]}
    settings = asdict(config) | {"count": count}

    known = lab.Study("known", settings, {"case": every}, lambda at: examine(at["case"], config))
    others = lab.Study(
        "trained",
        {"count": count},
        {"model": places},
        lambda at: examine_trained(places[at["model"]], count),
        lambda at: converged.digest(places[at["model"]]),
    )
    rows = [row for _, row in records.finished(known, args.folder / "known")]
    trained = {at["model"]: row for at, row in records.finished(others, args.folder / "trained")}
    facts = {"seeds": sorted({row["seed"] for row in rows}), "dtype": "float64", "tasks": count}
    record = {"meta": records.meta("probe_similarity", **facts), "rows": rows, "trained": trained}
    figures = {"probe-similarity": layers_figure}
    records.finish("probe-similarity", records.rounded(record), markdown, args.quick, figures)


if __name__ == "__main__":
    main()
