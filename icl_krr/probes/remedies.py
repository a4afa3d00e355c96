"""Changes of a model and a task that may lower its gap, each with the code that makes it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..constructions import ReLU, Softmax
from ..status import Status
from ..tasks import Task
from ..theory import log_sink, prefix_bounds, spectral_bounds
from ..transformer import Transformer, operand_bounds

STEPS, WIDTHS, BANDWIDTHS, RIDGES = (4, 16), (1, 4), (4.0, 16.0), (10, 100, 1000)
"""Factors to try."""

Coded = tuple[Any, str]
"""A value and the code that gives it."""

KERNEL, RIDGE = "model.problem.kernel", "model.problem.ridge"


class Change(NamedTuple):
    """A change of the model and of the task, in words, as values and as code."""

    task: Task
    called: str = "task"
    before: tuple[str, ...] = ()
    scale: str = ""
    names: tuple[str, ...] = ()
    keywords: tuple[tuple[str, Coded], ...] = ()

    def given(self, **keywords: Coded) -> Change:
        """Give the construction other keywords."""
        return self._replace(keywords=tuple({**dict(self.keywords), **keywords}.items()))

    def named(self, name: str) -> Change:
        return self._replace(names=(*self.names, name))

    def on(self, called: str, task: Task, *before: str, scale: str = "") -> Change:
        """Take another task, which the lines `before` call `called`."""
        before = (*self.before, *before)
        return self._replace(task=task, called=called, before=before, scale=scale)

    def apply(self, model: Transformer) -> tuple[Transformer, str]:
        """The changed model, and the code that predicts with it."""
        values = {name: value for name, (value, _) in self.keywords}
        codes, lines, changed = {name: code for name, (_, code) in self.keywords}, [], "model"
        if values and model.made is not None:
            calls = {name: code for name, code in codes.items() if "(" in code}
            lines = [f"{name} = {code}" for name, code in calls.items()]
            said = (f"{name}={name if name in calls else code}" for name, code in codes.items())
            model, changed = model.rebuild(**values), f"model.rebuild({', '.join(said)})"
        elif values:
            if "steps" in values:
                model = model.replace(steps=values["steps"])
                changed = f"model.replace(steps={model.steps})"
            if "dtype" in values:
                model = jax.tree.map(lambda weight: weight.astype("float64"), model)
                changed = f'jax.tree.map(lambda weight: weight.astype("float64"), {changed})'
        predict = f"prediction = {self.scale}ik.predict({changed}, {self.called})"
        lines = [*self.before, *lines, predict]
        if "dtype" in values:
            lines = ["with jax.enable_x64(True):", *(f"    {line}" for line in lines)]
        return model, "\n".join(lines)


def in_float64(task: Task) -> Change:
    wide = Change(task).on("wide", task.astype("float64"), 'wide = task.astype("float64")')
    return wide.named("float64").given(dtype=("float64", '"float64"'))


def settings(model: Transformer, here: Change, status: Status) -> Iterator[Change]:
    """Settings of the construction that fit the task better; the regression is the same."""
    given, task, problem = model.arguments, here.task, model.problem
    ends = spectrum(model, here)
    if ends and not np.allclose(given.get("spectrum") or np.nan, ends["spectrum"][0], rtol=1e-3):
        yield here.given(**ends).named("a spectrum with all eigenvalues")
    n = task.num_supports
    if model.takes("num_supports") and given["num_supports"] != n:
        count = n, f"{here.called}.num_supports"
        yield here.given(num_supports=count).named(f"a model for {n} supports")
    if status.sink and problem is not None and not problem.kernel.featured:
        shift = Softmax(log_sink(problem.kernel, task))
        code = f"ik.Softmax(ik.theory.log_sink({KERNEL}, {here.called}))"
        yield here.given(attention=(shift, code)).named("a larger weight of the sink")
    if isinstance(relu := given.get("arithmetic"), ReLU):
        bounds = operand_bounds(model.rebuild(arithmetic="exact"), task)
        for width in (factor * relu.width for factor in WIDTHS):
            code = f'ik.operand_bounds(model.rebuild(arithmetic="exact"), {here.called})'
            tables = ReLU(width, bounds), f"ik.ReLU({width}, {code})"
            yield here.given(arithmetic=tables).named(f"ReLU tables of width {width}")
    scale = jnp.max(jnp.abs(task.y))
    if status.range and scale > 0:  # subnormal numbers count as 0
        of_y = f"scale = jnp.max(jnp.abs({here.called}.y))"
        code = f"scaled = {here.called}.replace(y={here.called}.y / scale, y_query=None)"
        scaled = task.replace(y=task.y / scale, y_query=None)
        yield here.on("scaled", scaled, of_y, code, scale="scale * ").named("y of size 1")


def spectrum(
    model: Transformer, here: Change, kernel: Coded | None = None, ridge: Coded | None = None
) -> dict[str, Coded]:
    """The eigenvalues of the task, as keywords of a construction that takes them."""
    problem = model.problem
    if problem is None or not model.takes("spectrum"):
        return {}
    k, of_k = kernel or (problem.kernel, KERNEL)
    value, of_value = ridge or (problem.ridge, RIDGE)
    bounds, name = spectral_bounds, "ik.spectral_bounds"
    if model.spec.causal:
        bounds, name = prefix_bounds, "ik.theory.prefix_bounds"
    code = f"{name}({of_k}, {here.called}, ridge={of_value})"
    unset = sorted({"step_size", "momentum"} & model.arguments.keys())
    instead: dict[str, Coded] = dict.fromkeys(unset, (None, "None"))
    return {"spectrum": (bounds(k, here.task, ridge=value), code), **instead}


def other_regressions(
    model: Transformer, here: Change, status: Status
) -> Iterator[Iterable[Change]]:
    """Changes of the regression that make it easier, by kind, the smallest ones first."""
    problem, task, name = model.problem, here.task, here.called
    assert problem is not None
    kernel = problem.kernel

    def other(at: Change, words: str, **changed: Coded) -> Change:
        ends = spectrum(model, at, **changed)
        return at.given(**ends, **changed).named(f"{words}, which is another regression")

    if status.uneven and all(jnp.all(jnp.any(x != 0, axis=1)) for x in (task.x, task.x_query)):
        unit = lambda x: x / jnp.linalg.norm(x, axis=1, keepdims=True)  # noqa: E731
        moved = here.on(
            "moved",
            task.replace(x=unit(task.x), x_query=unit(task.x_query)),
            "unit = lambda x: x / jnp.linalg.norm(x, axis=1, keepdims=True)",
            f"moved = {name}.replace(x=unit({name}.x), x_query=unit({name}.x_query))",
        )
        yield [other(moved, "points on a sphere")]
    if kernel.bandwidth is not None and "sketch" not in model.arguments:
        stretched = (
            (factor, (kernel.stretched(factor), f"{KERNEL}.stretched({factor})"))
            for factor in BANDWIDTHS
        )
        yield (
            other(here, f"{factor:g} times the {kernel.bandwidth}", kernel=wider)
            for factor, wider in stretched
        )
    ridges = (float(f"{factor * float(problem.ridge):.3g}") for factor in RIDGES)
    yield (other(here, f"a ridge of {ridge:g}", ridge=(ridge, repr(ridge))) for ridge in ridges)
