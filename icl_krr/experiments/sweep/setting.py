"""What is measured in one cell of a sweep, and what several axes build it from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from ... import solvers
from ...catalogue import SOLVERS, kernel_class
from ...kernels import Exponential, Kernel
from ...tasks import GaussianProcess, Task, sample
from ...transformer import Transformer
from ..shared.build import attention, construct
from ..shared.rows import Plot
from ..shared.spectra import spectral_task
from ..shared.told import told
from .config import SweepConfig


class Setting(NamedTuple):
    """A model, its task, what exact KRR predicts and, by step, a bound on its relative error.

    `expected` is the gap that theory expects at the end.

    With `alpha` and the system's matrix `A` the error is that of alpha in the A-norm.
    """

    model: Transformer
    task: Task
    exact: jax.Array
    bound: jax.Array | None = None
    alpha: jax.Array | None = None
    A: jax.Array | None = None
    expected: jax.Array | None = None


class Models(NamedTuple):
    """`build(line, value, task, config, key)`; `traced` values are one program together."""

    build: Callable[[str, Any, Task, SweepConfig, jax.Array], Setting]
    plot: Plot
    traced: bool = True


OVER_VALUES = Plot("value", "gap", ("line",), logx=True)


def draw(key: jax.Array, config: SweepConfig) -> Task:
    """The task of a cell, the same for every kernel."""
    sizes = config.num_features, config.num_supports, config.num_queries
    if config.axis == "width":
        return spectral_task(key, "1/i", *sizes)
    p, n, q = sizes
    process = GaussianProcess(
        Exponential(config.temperature),
        num_features=p,
        num_supports=n,
        num_queries=q,
        inputs="sphere",
    )
    return sample(key, process)


def kernel_of(config: SweepConfig, temperature: Any = None) -> Kernel:
    """The kernel of the regression, at the temperature of the sweep or another one."""
    made_by = kernel_class(config.kernel or "")
    if temperature is not None and made_by.bandwidth is None:
        raise ValueError(
            f"kernel must have a bandwidth to be swept over the temperature, got {config.kernel!r}"
        )
    return made_by.of_temperature(config.temperature if temperature is None else temperature)


def solve(
    line: str, kernel: Kernel, task: Task, ridge: Any, config: SweepConfig, **options: Any
) -> Transformer:
    """A solver's construction, told what it must know of the task."""
    needs = told(SOLVERS[line], kernel, task, ridge) | attention(kernel, task) | options
    return construct(line, kernel, task, steps=config.steps, **needs)


def against_exact(
    line: str, kernel: Kernel, task: Task, ridge: Any, config: SweepConfig
) -> Setting:
    """A solver, or one head of Nadaraya-Watson, beside exact KRR on the same kernel."""
    exact = solvers.exact(kernel, task, ridge=ridge).prediction
    if SOLVERS[line].iterates:
        return Setting(solve(line, kernel, task, ridge, config), task, exact)
    return Setting(construct(line, kernel, task), task, exact)
