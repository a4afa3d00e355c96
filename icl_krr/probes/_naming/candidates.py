"""The solvers that a model may run, with the parameters that have to be fitted."""

from collections.abc import Mapping
from typing import Any, Protocol

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ... import solvers
from ...catalogue import Box, SolverEntry
from ...catalogue._solvers import SPECTRUM
from ...kernels import kernel_class, make_kernel
from ...tasks import Task, map_tasks, system
from .._reading.hyperparameters import typical_bandwidth

Values = dict[str, Any]
Logs = Float[Array, " k"]
BANDWIDTH = Box(-1.2, 1.2)
"""Initial search range of the bandwidth over the typical bandwidth, as exponents of 10."""


class Tunable(Protocol):
    """What has search ranges of fitted parameters: a solver, or a predictor that takes no steps."""

    @property
    def fitted(self) -> Mapping[str, Box] | None: ...


def parameters(solver: Tunable, kernel: str) -> dict[str, Box]:
    """The search ranges of all fitted parameters, the bandwidth first."""
    bandwidth = kernel_class(kernel).bandwidth
    return ({} if bandwidth is None else {bandwidth: BANDWIDTH}) | dict(solver.fitted or {})


def log_upper_bounds(solver: Tunable, kernel: str) -> np.ndarray:
    """Upper bounds on the log parameters; infinite if a parameter may exceed its search range."""
    boxes = parameters(solver, kernel).values()
    return np.array([np.log(10) * box.high if box.closed else np.inf for box in boxes])


def scaled_log_parameters(solver: Tunable, kernel: str, relative: Logs, tasks: Task) -> Logs:
    """Log parameters at a point of the unit cube, scaled to the kernel matrices of the tasks."""
    boxes = parameters(solver, kernel)
    logs = {
        name: jnp.log(10.0) * (box.low + (box.high - box.low) * at)
        for (name, box), at in zip(boxes.items(), relative, strict=True)
    }
    bandwidth = kernel_class(kernel).bandwidth
    if bandwidth is not None:
        logs[bandwidth] += jnp.log(typical_bandwidth(kernel, tasks))
    of_kernel = make_kernel(kernel, {name: jnp.exp(value) for name, value in logs.items()})
    norms = map_tasks(lambda t: jnp.sqrt(jnp.mean(system(of_kernel, t).gram ** 2)), tasks)
    size = jnp.log(jnp.mean(norms) * tasks.num_supports)
    return jnp.array([logs[name] + box.power * size for name, box in boxes.items()])


def solve(solver: SolverEntry, kernel: str, logs: Logs, task: Task, steps: int) -> Array:
    """The candidate's predictions [T + 1, q r] for one task and the log parameters `logs`."""
    predictions = run_oracle(solver, kernel, logs, task, steps).prediction
    if not solver.iterates or solver.sequential:
        last = predictions[-1] if solver.sequential else predictions
        predictions = jnp.stack([0 * last, *[last] * steps])
    return predictions.reshape(steps + 1, -1)


def run_oracle(solver: SolverEntry, kernel: str, logs: Logs, task: Task, steps: int) -> Any:
    """The result of the candidate's oracle for one task, with its states if it has any."""
    values = dict(zip(parameters(solver, kernel), jnp.exp(logs), strict=True))
    kernel_object, oracle = make_kernel(kernel, values), solvers.lookup(solver)
    if not solver.iterates:
        return oracle(kernel_object, task)
    count = {} if solver.sequential else {"steps": steps}
    return oracle(kernel_object, task, **keywords(solver, values), **count)


def keywords(solver: SolverEntry, values: Values) -> Values:
    """The keywords of solver and construction for fitted parameters, without the steps."""
    fitted = {name: values[name] for name in solver.fitted or {}}
    if solver.keywords_of is not None:
        return solver.keywords_of(fitted) | dict(solver.options)
    others = {name: value for name, value in fitted.items() if name not in (*SPECTRUM, "scale")}
    if {*SPECTRUM} <= {*fitted}:
        others["spectrum"] = (values["low_over_high"] * values["high"], values["high"])
    if "scale" in fitted:  # of Newton-Schulz, which starts from a multiple of K
        others["spectrum"] = (1 / values["scale"], 1 / values["scale"])
    return others | dict(solver.options)
