"""One setting of a sweep, and functions that several axes use to build it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax

from ... import Exponential, Kernel, Transformer, solvers
from ...catalogue import SOLVERS
from ...kernels import kernel_class
from ...tabular._build import attention, construct, solver_keywords
from ...tasks import GaussianProcess, Task, sample
from .._shared.spectra import spectral_task
from .settings import SweepSettings


class Trial(NamedTuple):
    """A model, its task and what its predictions are compared with."""

    model: Transformer
    task: Task
    exact: jax.Array  # predictions of exact KRR [q]
    bound: jax.Array | None = None  # bound on the relative error after every step [steps + 1]
    # exact coefficients [n] and K + ridge I [n, n], with which the error of alpha is measured
    alpha: jax.Array | None = None
    A: jax.Array | None = None
    expected: jax.Array | None = None  # gap that theory expects after the last step
    d_eff: jax.Array | None = None  # effective dimension tr K (K + ridge I)^-1
    tail: jax.Array | None = None  # sum_(i>m) sigma_i / sum_i sigma_i
    smoother: Kernel | None = None  # kernel of the Nadaraya-Watson baseline
    hooks: Mapping[str, Any] | None = None  # as in `icl_krr.run_with_hooks`


Build = Callable[[str, Any, Task, SweepSettings, jax.Array], Trial]


def draw(key: jax.Array, config: SweepSettings) -> Task:
    """The task of a cell."""
    names = ("num_features", "num_supports", "num_queries")
    sizes = {name: getattr(config, name) for name in names}
    if config.kernel == "linear":
        return spectral_task(key, "1/i", **sizes)
    return sample(key, GaussianProcess(Exponential(config.temperature), inputs="sphere", **sizes))


def kernel_of(config: SweepSettings, temperature: Any = None) -> Kernel:
    """The kernel of the regression, by default at the temperature of the sweep."""
    made_by = kernel_class(config.kernel or "")
    if temperature is not None and made_by.bandwidth is None:
        raise ValueError(
            f"kernel must have a bandwidth for the axis 'temperature', got {config.kernel!r}"
        )
    if made_by.bandwidth is None:
        return made_by()
    return made_by.of_temperature(config.temperature if temperature is None else temperature)


def solve(
    line: str, kernel: Kernel, task: Task, ridge: Any, config: SweepSettings, **options: Any
) -> Transformer:
    """The construction of a solver, with the keywords that depend on the task."""
    needs = solver_keywords(SOLVERS[line], kernel, task, ridge) | attention(kernel, task) | options
    return construct(line, kernel, task, steps=steps_of(config, line), **needs)


def steps_of(config: SweepSettings, line: str) -> int:
    """The number of steps of a line: one for each support if a step reads one support."""
    entry = SOLVERS.get(line)
    return config.num_supports if entry is not None and entry.sequential else config.steps


def beside_exact(line: str, kernel: Kernel, task: Task, ridge: Any, config: SweepSettings) -> Trial:
    """A solver or a Nadaraya-Watson head, compared with exact KRR on the same kernel."""
    exact = solvers.exact(kernel, task, ridge=ridge).prediction
    iterates = SOLVERS[line].iterates
    model = solve(line, kernel, task, ridge, config) if iterates else construct(line, kernel, task)
    return Trial(model, task, exact, smoother=kernel)
