"""Try what could make a model accurate on one task, and say what helps as code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, NamedTuple

import jax
from jax.core import Tracer

from ..kernels import Kernel
from ..readable import readable
from ..status import Status
from ..tasks import Task
from ..transformer import Transformer
from .check import check, has_solver, problem_of
from .remedies import STEPS, Change, in_float64, other_regressions, settings


@readable
class Trial(NamedTuple):
    """One remedy that `advise` tried.

    Attributes:
        name: the remedy in words.
        code: lines of Python that compute the `prediction` with it, from `model` and `task`.
        gap: the gap of this prediction (see `Status`).
        ok: whether this prediction is ok.
    """

    name: str
    code: str
    gap: float
    ok: bool


@readable
class Advice(NamedTuple):
    """What helps a model on a task; `print` shows it as a numbered list.

    Attributes:
        status: status of the model as it is.
        trials: all remedies in the order in which they were tried.
    """

    status: Status
    trials: tuple[Trial, ...]

    @property
    def helps(self) -> tuple[Trial, ...]:
        """The trials that are ok; else those that lower the gap by a tenth, the best first."""
        right = tuple(trial for trial in self.trials if trial.ok)
        better = [trial for trial in self.trials if trial.gap < 0.9 * self.status.gap]
        return right or tuple(sorted(better, key=lambda trial: trial.gap))

    def __str__(self) -> str:
        if not self.trials:
            return self.status.advice()
        before = f"gap {self.status.gap:.2g}"
        first = f"{before} after {self.status.steps} steps; "
        if not self.helps:
            names = "; ".join(trial.name for trial in self.trials)
            return f"{first}none of these lowers it by a tenth: {names}"
        enough = "each of these is enough" if self.helps[0].ok else "these lower it, but not enough"
        lines = [f"{first}{enough}, the best first:"]
        for i, trial in enumerate(self.helps, 1):
            lines.append(f"{i}. {trial.name}: {before} -> {trial.gap:.2g}")
            lines += [f"     {line}" for line in trial.code.splitlines()]
        return "\n".join(lines)


def advise(
    model: Transformer, task: Task, *, kernel: Kernel | None = None, ridge: Any = None
) -> Advice:
    r"""Try what could make a model accurate on a task, and say what helps as code to type.

    Each trial runs `icl_krr.check` on a changed model, so that its gap is measured. A group ends
    with its first trial that is ok, and then the next group is not tried:

    1. settings that fit the task, as far as the construction takes them (the spectrum, the number
       of supports, the sink of the attention, bound and width of ReLU tables), and the scale of y;
       then 4 and 16 times as many steps;
    2. the same in float64; then, in the dtype of the task and with the settings that have lowered
       the gap most, other regressions: inputs on a sphere, a larger bandwidth, a larger ridge.

    Only the object that a construction returned can be built again with other settings (see
    `Transformer.rebuild`). Other models with solver steps are tried with more steps and in float64.
    A model without them, such as a trained one, is not changed: its status says what to do.

    Args:
        model, task: as in `check`, which also says what is raised.
        kernel: kernel $k$ of the regression, as for `check`; default: that of the construction. If
            kernel or ridge is given, no other regression is tried.
        ridge: ridge $\lambda$ > 0, as for `check`; default: that of the construction.

    Returns:
        An `Advice` with the status and the trials. `print` shows those that help.

    Raises:
        ValueError: as for `check`, or JAX traces an argument.

    >>> import numpy as np
    >>> import icl_krr as ik
    >>> x = np.array([[0.0], [1.0], [2.0]])
    >>> task = ik.Task(x=x, y=[1.0, 3.0, 2.0], x_query=x + 0.5)
    >>> model = ik.constructions.richardson(ik.Gaussian(), num_features=1, ridge=0.1, steps=4)
    >>> print(advise(model, task))
    gap 0.085 after 4 steps; each of these is enough, the best first:
    1. 64 steps: gap 0.085 -> 6.9e-06
         prediction = ik.predict(model.rebuild(steps=64), task)
    """
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((model, task, kernel, ridge))):
        raise ValueError(
            "task must be known, got values that JAX traces; call advise outside of jax.jit and "
            "jax.vmap"
        )
    status = check(model, task, kernel=kernel, ridge=ridge)
    if status.ok or not has_solver(model):
        return Advice(status, ())
    own = kernel is ridge is None and model.made is not None
    known = () if own else problem_of(model, kernel, ridge)
    asked: dict[str, Any] = dict(zip(("kernel", "ridge"), known, strict=False))
    tried = same_regression(model, Change(task), status, asked)
    if not tried or not tried[-1][1].ok:
        nearest = best(Change(task), status, tried)
        if task.x.dtype.itemsize < 8:
            with jax.enable_x64(True):  # pyright: ignore[reportAttributeAccessIssue]
                tried += same_regression(model, in_float64(task), status, asked)
        if own and model.takes("ridge"):
            for kind in other_regressions(model, nearest, status):
                tried += until_ok(model, kind, asked)
    return Advice(status, tuple(trial for _, trial in tried))


Tried = list[tuple[Change, Trial]]


def same_regression(
    model: Transformer, here: Change, status: Status, asked: dict[str, Any]
) -> Tried:
    """Try the settings that fit the task, and then more steps with the best of them."""
    alone = [here] if here.names else []
    tried = [*until_ok(model, chain(alone, settings(model, here, status)), asked)]
    if not (tried and tried[-1][1].ok) and (here.names or not status.overflow):
        start, counts = best(here, status, tried), [factor * model.steps for factor in STEPS]
        longer = (start.named(f"{n} steps").given(steps=(n, str(n))) for n in counts)
        tried += until_ok(model, longer, asked)
    return tried


def best(here: Change, status: Status, tried: Tried) -> Change:
    """The change with the lowest gap; `here` if no change lowers the gap of the status."""
    change, trial = min(tried, key=lambda pair: pair[1].gap, default=(here, None))
    return here if trial is None or trial.gap >= status.gap else change


def until_ok(
    model: Transformer, changes: Iterable[Change], asked: dict[str, Any]
) -> Iterator[tuple[Change, Trial]]:
    """Measure changes until one is ok, without those that cannot be built or stored."""
    for change in changes:
        try:
            changed, code = change.apply(model)
            status = check(changed, change.task, **asked)
        except (ValueError, MemoryError):
            continue
        trial = Trial(", ".join(change.names), code, float(status.gap), bool(status.ok))
        yield change, trial
        if trial.ok:
            return
