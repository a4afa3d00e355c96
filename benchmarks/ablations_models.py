"""The models of `benchmarks.ablations`, with and without a solver, and what is measured of them."""

import dataclasses
import time
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import icl_krr as ik
from benchmarks.records import Row as Record, rounded
from icl_krr.catalogue import SOLVERS, compared, taken
from icl_krr.experiments import Run, draw_tasks, identify as interventions, solverbench as bench
from icl_krr.experiments.identify import (
    in_dtype_of_tasks,
    profile_targets,
    ridge_regression,
    streams_of_batch,
)
from icl_krr.experiments.solverbench import BenchConfig, BenchFamily, largest_eigenvalues
from icl_krr.transformer import Architecture, Transformer, init

PARTS = ("heads", "units", "layer")
"""What is removed from a layer: all heads, all MLP units, or both."""
REPLACED = ("zero", "mean")
EFFECTS = ("change", "target", "exact")
"""Distance of the predictions to those of the intact model, to the targets, and to exact KRR."""

CANDIDATES = compared()
DISTRACTORS = ("nesterov", "averaged_descent", "steepest_descent")
"""Solvers that are not in the catalogue."""
SMOOTHERS = ("smoother_equal", "smoother_falling", "smoother_sharper")
RANDOM = "random_encoder"
NONE = (*SMOOTHERS, RANDOM)
"""Models that run no solver: kernel smoothers, and random weights with a fitted readout."""
NAMES = (*CANDIDATES, *DISTRACTORS, *NONE)
KIND = dict.fromkeys(CANDIDATES, "candidate") | dict.fromkeys(DISTRACTORS, "other solver")
KIND |= dict.fromkeys(NONE, "no solver")
WIDTH = 32
"""Channels of the random encoder."""


class Variant(NamedTuple):
    """Settings of a construction and of its tasks."""

    seed: int = 0  # seed of the tasks
    condition: float = 100.0  # condition number of K + ridge I, averaged over tasks
    steps: int = 6  # number of layers
    slower: float = 1.0  # factor on the largest eigenvalue that the solver is told
    form: str = ""  # "form": another construction of the solver; "kernel": another kernel


VARIANTS = {
    "base": Variant(),
    "other tasks": Variant(seed=1),
    "ridge x 10": Variant(condition=10.0),
    "8 steps": Variant(steps=8),
    "smaller steps": Variant(slower=2.0),
    "another form": Variant(form="form"),
    "another kernel": Variant(form="kernel"),
}
FORMS = {row.variant_of: row.name for row in reversed(SOLVERS.values()) if row.variant_of}
"""The first variant of a solver."""


def config_of(variant: Variant, sizes: dict[str, int]) -> BenchConfig:
    rest: Any = {"steps": variant.steps, "seed": variant.seed, "condition": variant.condition}
    return BenchConfig(**sizes, **rest)


def run_setting(run: Run, sizes: dict[str, int], condition: float | None) -> BenchFamily:
    """The tasks of a trained run, with the ridge of their exact predictor, or a condition number.

    The tasks depend on the family alone, so models of one family share them.
    """
    family: Any = dataclasses.replace(run.family, num_queries=sizes["num_queries"])  # pyright: ignore
    both = (2 * sizes["tasks"], sizes["probe_tasks"])
    key = jax.random.key(0)
    tasks, probing = (draw_tasks(jax.random.fold_in(key, i), n, family) for i, n in enumerate(both))
    if condition is None:
        kernel, ridge = family.optimal()
        condition = max(float(jnp.mean(largest_eigenvalues(kernel, tasks))) / float(ridge), 1.01)
    config = config_of(Variant(condition=condition, steps=run.model.steps), sizes)
    return BenchFamily("run", family, tasks, probing, config)


def kernel_of(name: str, one: BenchFamily) -> ik.Kernel | None:
    """The kernel of a construction on these tasks; None if the solver takes none that suits."""
    first_choice = "gaussian" if hasattr(one.sampler, "kernel") else "linear"
    takes = taken(name) if name in CANDIDATES else ("linear", "gaussian")
    if name in SMOOTHERS:
        takes = ("gaussian",)
    accepted = [kernel for kernel in (first_choice, "gaussian") if kernel in takes]
    return one.kernel(accepted[0]) if accepted else None


def build(name: str, one: BenchFamily, slower: float = 1.0, form: str = "") -> Transformer | None:
    """A construction, or a model that runs no solver; None where this variant does not exist."""
    kernel = kernel_of(name, one)
    if form == "kernel":
        some = taken(name) if name in CANDIDATES else ()
        has_kernel = hasattr(one.sampler, "kernel") or "exponential" not in some
        kernel = None if has_kernel else one.kernel("exponential")
    if kernel is None or (form == "form" and name not in FORMS):
        return None
    steps = one.config.steps
    if name in NONE or name == "steepest_descent":
        if slower != 1:  # these have no step size
            return None
        if name == RANDOM:
            return random_encoder(one)
        if name in SMOOTHERS:
            return smoother(name, kernel, one)
    if name in DISTRACTORS:
        kwargs = one.compile_keywords(kernel) | {"steps": steps}
        if name != "steepest_descent":
            kwargs["step_size"] = 1 / (slower * one.largest_eigenvalue(kernel))
        return ik.compile(getattr(bench, name), kernel, **kwargs)
    row = SOLVERS[FORMS[name] if form == "form" else name]
    needs = one.solver_keywords(row, kernel)
    if "spectrum" in needs:
        low, high = needs["spectrum"]
        needs["spectrum"] = low, slower * high
    elif "num_supports" in needs:
        needs["num_supports"] *= slower
    elif "step_size" in (row.fitted or {}):
        needs["step_size"] = 1 / slower
    elif slower != 1:
        return None
    kwargs = {**needs, **one.attention(kernel), **row.options}
    return ik.constructions.lookup(row)(kernel, num_features=one.tasks.num_features, **kwargs)


def smoother(name: str, kernel: ik.Kernel, one: BenchFamily) -> Transformer:
    r"""A model whose layers hold Nadaraya-Watson estimators of y and no residual.

    With equal or falling shares $w_t$ of sum 1, each layer adds $w_t f$ to the prediction. The
    sharper smoother replaces the prediction by the estimator of a kernel $k^{c_t}$, $c_t$ rising.
    """
    steps = one.config.steps
    t = jnp.arange(float(steps))
    sharper = name == "smoother_sharper"
    shares = {"smoother_equal": jnp.ones(steps), "smoother_falling": 0.5**t}.get(name, 0 * t)
    number = ik.per_step(4.0 ** (t - steps + 1) if sharper else shares / jnp.sum(shares))
    m: Any = ik.constructions.machine(kernel, one.tasks.num_features, attention="softmax")
    m.log_sink = -1e30 * m.inside(ik.residual.ROLES)  # no weight
    prediction = m.state("prediction", ik.residual.ROLES, "kernel-weighted mean of y")
    (term,) = m.terms

    def step() -> None:
        mean = m.scratch("mean", ik.residual.ROLES, "kernel-weighted mean of y")
        m.head(number * term.query if sharper else term.query, term.key, m.y, to=mean)
        m.add(mean - prediction if sharper else number * mean, to=prediction)

    return m.transformer(step, steps=steps, readout=prediction)


def random_encoder(one: BenchFamily) -> Transformer:
    """An untrained encoder whose readout is fitted to the outputs: it has learnt no steps."""
    spec = Architecture(num_features=one.tasks.num_features, width=WIDTH, depth=one.config.steps)
    model = init(jax.random.key(17 + one.config.seed), spec, one.tasks.x.dtype)
    last = streams_of_batch(model, one.probing)[:, -1]
    targets = jnp.reshape(jnp.asarray(one.probing.y_query), (-1, 1))
    features = last.reshape(len(targets), -1)[:, :WIDTH]
    weights, _, _ = ridge_regression(features, targets, 3 * len(targets) // 4)
    return model.replace(weights=model.weights.replace(readout=ik.Read({"stream": weights}, 1)))  # pyright: ignore[reportAttributeAccessIssue]


def places_of(model: Transformer, part: str) -> set[tuple[int, str]]:
    """All (position, point) pairs of a part of one step; blocks of the prologue are no step."""
    first, places = len(model.weights.prologue), set()
    for position, block in enumerate(model.weights.steps, start=first):
        if part != "units":
            places |= {(position, f"heads.{j}.mixed") for j in range(len(block.attention))}
        if part != "heads":
            places |= {(position, f"units.{j}.hidden") for j in range(len(block.mlp))}
    return places


def without_parts(model: Transformer, tasks: ik.Task) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Predictions [b, q] intact, and [parts, L, b, q] without each part of each layer.

    Zeros replace the part, or its means over tasks and tokens of the same role. The first of all
    sites has no place, so that one program computes everything.
    """
    places = [set(), *(places_of(model, part) for part in PARTS)]
    ids = tuple(sorted(places[-1]))
    layers = np.arange(model.steps)
    counts = [1] + [len(layers)] * len(PARTS)
    hits = [[one in part for one in ids] for part in places]
    total = sum(counts)
    codes = interventions.SiteCodes(
        jnp.asarray(np.repeat(hits, counts, axis=0)),
        jnp.asarray(np.concatenate([np.arange(count) for count in counts])),
        jnp.tile(jnp.array([0, jnp.iinfo(jnp.int32).max]), (total, 1)),
        jnp.ones((total, len(ik.residual.ROLES)), bool),
    )
    means = interventions.role_means(model, tasks, interventions.point_names(ids))
    sources = {"zero": jax.tree.map(jnp.zeros_like, means), "mean": means}
    answers = {
        name: np.asarray(interventions.run_interventions(model, tasks, codes, source, ids, 16))
        for name, source in sources.items()
    }
    shape = (len(PARTS), len(layers), *answers["zero"].shape[1:])
    return answers["zero"][0], {name: one[1:].reshape(shape) for name, one in answers.items()}


def measure(model: Transformer, one: BenchFamily) -> Record:
    """Squares, summed over queries, of every effect: [parts, L, b] without a part, [b] intact."""
    began, tasks = time.process_time(), one.tasks
    model = in_dtype_of_tasks(model, tasks)
    intact, without = without_parts(model, tasks.replace(y_query=None))
    family: Any = one.sampler
    best = np.asarray(profile_targets(tasks, *family.optimal()).exact)
    others = {"change": intact, "target": np.asarray(tasks.y_query), "exact": best}
    sums = partial(np.sum, axis=-1)
    sizes = {name: sums((intact - other) ** 2) for name, other in others.items()}
    sizes["change"] = sums(intact**2)
    record: Record = {"layers": model.steps, "intact": finite(sizes), "removed": {}}
    record |= finite({"exact error": sums((best - others["target"]) ** 2)})
    for replace, changed in without.items():
        squares = {name: sums((changed - other) ** 2) for name, other in others.items()}
        record["removed"][replace] = finite(squares)
    return record | {"cpu_seconds": time.process_time() - began}


def finite(arrays: dict[str, Any]) -> Record:
    """Lists of numbers with six digits; what is not finite, or larger, becomes 1e30."""
    sound = lambda a: np.nan_to_num(np.asarray(a, float), nan=1e30, posinf=1e30)  # noqa: E731
    return rounded({name: sound(a).clip(max=1e30).tolist() for name, a in arrays.items()})
