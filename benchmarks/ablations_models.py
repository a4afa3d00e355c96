"""The models of `benchmarks.ablations`: solvers as constructions, and models that run no solver."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from icl_krr.catalogue import SOLVERS, load, taken
from icl_krr.constructions.assembly.choice import softmax_machine
from icl_krr.experiments.identify.error_profile import CANDIDATES
from icl_krr.experiments.shared.draws import draw_tasks
from icl_krr.experiments.shared.runs import Run
from icl_krr.experiments.solverbench import rivals
from icl_krr.experiments.solverbench.settings import BenchConfig, Setting, largest
from icl_krr.kernels import Kernel
from icl_krr.probes.reading.readouts import ridge_regression, streams_of_batch
from icl_krr.residual import ROLES, Read
from icl_krr.tasks import Sampler, Task
from icl_krr.training.reference import optimal
from icl_krr.transformer import Architecture, Transformer, init

RIVALS = ("nesterov", "averaged_descent", "steepest_descent")
"""Solvers that are no candidate of `identify`."""
SMOOTHERS = ("smoother_equal", "smoother_falling", "smoother_sharper")
RANDOM = "random_encoder"
NONE = (*SMOOTHERS, RANDOM)
"""Models that run no solver: kernel smoothers, and random weights with a fitted read-out."""
NAMES = (*CANDIDATES, *RIVALS, *NONE)
KIND: dict[str, str] = {
    name: kind
    for kind, names in (("candidate", CANDIDATES), ("other solver", RIVALS), ("no solver", NONE))
    for name in names
}
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
FORMS = {
    "gradient_descent": "gradient_descent_in_alpha",
    "conjugate_gradient": "fused_conjugate_gradient",
}
"""Other constructions of the same iterates."""


def config_of(variant: Variant, sizes: dict[str, int]) -> BenchConfig:
    rest: Any = {"steps": variant.steps, "seed": variant.seed, "condition": variant.condition}
    return BenchConfig(**sizes, **rest)


def run_setting(run: Run, steps: int, sizes: dict[str, int], condition: float | None) -> Setting:
    """The tasks of a trained run, with the ridge of their exact predictor, or a condition number.

    The tasks depend on the family alone, so models of one family share them.
    """
    family: Any = dataclasses.replace(run.family, num_queries=sizes["num_queries"])  # pyright: ignore
    counts = (2 * sizes["tasks"], sizes["probe_tasks"])
    key = jax.random.key(0)
    tasks, probing = (
        draw_tasks(jax.random.fold_in(key, i), n, family) for i, n in enumerate(counts)
    )
    if condition is None:
        kernel, ridge = exact_of(family)
        condition = max(float(jnp.mean(largest(kernel, tasks))) / float(ridge), 1.01)
    config = config_of(Variant(condition=condition, steps=steps), sizes)
    return Setting("run", family, tasks, probing, config)


def exact_of(family: Sampler) -> tuple[Kernel, Any]:
    """Kernel and ridge of the posterior mean of a family."""
    found = optimal(family)
    if found is None:
        raise ValueError(f"the posterior mean of the family must be known, got {family}")
    return found


def kernel_of(name: str, one: Setting) -> Kernel | None:
    """The kernel of a construction on these tasks; None if the solver takes none that suits."""
    own = "gaussian" if hasattr(one.family, "kernel") else "linear"
    takes = taken(name) if name in CANDIDATES else ("linear", "gaussian")
    if name in SMOOTHERS:
        takes = ("gaussian",)
    if name == "newton_schulz" and own != "linear":
        return None
    return one.kernel(own if own in takes else "gaussian")


def build(name: str, one: Setting, slower: float = 1.0, form: str = "") -> Transformer | None:
    """A construction, or a model that runs no solver; None where this variant does not exist."""
    kernel = kernel_of(name, one)
    if form == "kernel":
        offered = hasattr(one.family, "kernel") or "exponential" not in taken_by(name)
        kernel = None if offered else one.kernel("exponential")
    if kernel is None or (form == "form" and name not in FORMS):
        return None
    steps = one.config.steps
    if name in NONE or name in ("conjugate_gradient", "steepest_descent"):
        if slower != 1:  # these have no step size
            return None
        if name == RANDOM:
            return random_encoder(one)
        if name in SMOOTHERS:
            return smoother(name, kernel, one)
    if name in RIVALS:
        given = one.shared(kernel) | {"steps": steps}
        if name != "steepest_descent":
            given["step_size"] = 1 / (slower * one.high(kernel))
        return getattr(rivals, name)(kernel, **given)
    row = SOLVERS[FORMS[name] if form == "form" else name]
    needs = one.needs(row, kernel)
    if "spectrum" in needs:
        low, high = needs["spectrum"]
        needs["spectrum"] = low, slower * high
    if name == "preconditioned_chebyshev":
        needs["num_supports"] *= slower
    if name == "richardson":
        needs["step_size"] = 1 / slower
    given = {**needs, **one.attention(kernel), **row.options}
    return load(row.construction)(kernel, num_features=one.tasks.num_features, **given)


def taken_by(name: str) -> tuple[str, ...]:
    """Kernels of a candidate; no other model is built with another kernel."""
    return taken(name) if name in CANDIDATES and name != "preconditioned_chebyshev" else ()


def smoother(name: str, kernel: Kernel, one: Setting) -> Transformer:
    r"""A model whose layers hold Nadaraya-Watson estimators of y and no residual.

    With equal or falling shares $w_t$ of sum 1, each layer adds $w_t f$ to the prediction. The
    sharper smoother replaces the prediction by the estimator of a kernel $k^{c_t}$, $c_t$ rising.
    """
    steps = one.config.steps
    t = jnp.arange(float(steps))
    sharper = name == "smoother_sharper"
    shares = {"smoother_equal": jnp.ones(steps), "smoother_falling": 0.5**t}.get(name, 0 * t)
    numbers = 4.0 ** (t - steps + 1) if sharper else shares / jnp.sum(shares)
    m = softmax_machine(kernel, one.tasks.num_features, {ROLES: -1e30})
    prediction = m.state("prediction", ROLES, "kernel-weighted mean of y")
    (term,) = m.terms

    def step(number: jax.Array) -> None:
        mean = m.scratch("mean", ROLES, "kernel-weighted mean of y")
        m.head(number * term.query if sharper else term.query, term.key, m.y, to=mean)
        m.add(mean - prediction if sharper else number * mean, to=prediction)

    return m.transformer(step, steps=steps, readout=prediction, coefficients=(numbers,))


def random_encoder(one: Setting) -> Transformer:
    """An untrained encoder whose read-out is fitted to the outputs: it has learnt no steps."""
    spec = Architecture(
        num_features=one.tasks.num_features, width=WIDTH, depth=one.config.steps, heads=4
    )
    model = init(jax.random.key(17 + one.config.seed), spec, one.tasks.x.dtype)
    last = streams_of_batch(model, one.probing)[:, -1]
    assert one.probing.y_query is not None
    targets = one.probing.y_query.reshape(-1, 1)
    features = last.reshape(len(targets), -1)[:, :WIDTH]
    weights, _, _ = ridge_regression(features, targets, 3 * len(targets) // 4)
    return model.replace(weights=model.weights.replace(readout=Read({"stream": weights}, 1)))  # pyright: ignore[reportAttributeAccessIssue]


def outputs_of(tasks: Task) -> jax.Array:
    assert tasks.y_query is not None
    return tasks.y_query
