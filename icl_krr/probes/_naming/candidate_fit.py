"""Fit a candidate's parameters, and a step to every layer, to a model in any space that is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jaxtyping import Array, Float
from scipy.stats import qmc

from ... import Task, map_tasks
from ..._core import checks
from ..._core.readable import readable
from ...catalogue import candidate as find_candidate, spelled, taken
from ...tasks._task import check_axes, outputs_of
from .._reading.hyperparameters import minimise
from .candidates import Tunable, log_upper_bounds, parameters, scaled_log_parameters, solve

BLOCK = 64
"""Number of points of a search that one call of a compiled program evaluates."""


@readable
class CandidateFit(NamedTuple):
    """A candidate with its kernel, its fitted parameters and the alignment of layers with steps.

    Attributes:
        candidate: name of the solver.
        values: fitted parameters by name, shared by all layers.
        alignment: step with which each layer is aligned [L].
        error: root mean square over layers of the relative distances.
    """

    candidate: str
    kernel: str
    values: dict[str, float]
    alignment: tuple[int, ...]
    error: float

    @property
    def logs(self) -> np.ndarray:
        """The logarithms of `values`, in the same order."""
        return np.log([*self.values.values()])


def align(cost: npt.ArrayLike) -> np.ndarray:
    r"""Align L layers with solver steps in order, at the least total cost.

    The steps $t_1 \leq t_2 \leq ...$ minimise $\sum_l c_{l, t_l}$. Several layers may share a step.
    If several alignments have the same cost, the earliest steps are chosen.

    Args:
        cost: cost $c$ of every layer at every step [L, T + 1], finite.

    >>> align(np.array([[1.0, 0.0, 2.0], [3.0, 3.0, 1.0]])).tolist()
    [1, 2]
    """
    cost = np.asarray(cost)
    checks.numeric("cost", cost)
    checks.finite("cost", cost)
    if cost.ndim != 2 or 0 in cost.shape:
        raise ValueError(
            f"cost must be [L, T + 1] for L layers and T steps, got shape {list(cost.shape)}"
        )
    layers, steps = cost.shape
    total = np.zeros((layers, steps))
    total[0] = cost[0]
    for layer in range(1, layers):
        total[layer] = cost[layer] + np.minimum.accumulate(total[layer - 1])
    path = np.zeros(layers, int)
    end = steps
    for layer in reversed(range(layers)):
        path[layer] = np.argmin(total[layer, :end])
        end = path[layer] + 1
    return path


class Space(NamedTuple):
    """What is read of a model, as JAX functions of its data, which have the tasks as `tasks`.

    Attributes:
        path: function of a candidate's name, kernel, log parameters, the data and a number of steps
            that returns what is compared of the steps 0 to T.
        cost: function of a path and the data to what an alignment is chosen by, such as [L, T + 1].
        residuals: function of a path, the data and aligned steps [L] to what is left of the layers.
        rounds: number of fits of the parameters; the steps are aligned again after each, unless 1.
        enough: with an error below this, no other start is tried.
        row: function from a name to what has the ranges of its parameters.
    """

    path: Callable[..., Any]
    cost: Callable[..., jax.Array]
    residuals: Callable[..., jax.Array]
    rounds: int = 4
    enough: float = 0.0
    row: Callable[[str], Tunable] = find_candidate


@partial(jax.jit, static_argnames=("space", "name", "kernel", "steps"))
def search(space, name, kernel, steps, points, fixed_logs, data):
    """Log parameters at s points of the unit cube, and the costs of the steps there.

    `fixed_logs` replaces the log parameters where it is not NaN.
    """

    def at(part: tuple[jax.Array, jax.Array | None]) -> tuple[jax.Array, jax.Array]:
        point, fixed = part
        logs = scaled_log_parameters(space.row(name), kernel, point, data.tasks)
        logs = logs if fixed is None else jnp.where(jnp.isnan(fixed), logs, fixed)
        return logs, space.cost(space.path(name, kernel, logs, data, steps), data)

    return jax.lax.map(at, (points, fixed_logs))


@partial(jax.jit, static_argnames=("space", "name", "kernel", "steps"))
def residuals_and_jacobian(space, name, kernel, steps, logs, data, at):
    """Residuals at aligned steps, their derivatives in the logarithms, and costs of all steps."""

    def of(logs: jax.Array) -> tuple[jax.Array, Any]:
        path = space.path(name, kernel, logs, data, steps)
        residuals = space.residuals(path, data, at).reshape(-1)
        return residuals, (residuals, space.cost(path, data) if space.rounds > 1 else None)

    jacobian, (residuals, costs) = jax.jacfwd(of, has_aux=True)(logs)
    return residuals, jacobian, costs


class FitProblem(NamedTuple):
    """A candidate with a kernel and at most so many steps, to be fitted to the layers of a model.

    Attributes:
        data: pytree of arrays for the functions of the space.
        align: function from the costs of all steps to the step of every layer [L].
        weight: function from an alignment to the number of relative distances in the residuals.
    """

    space: Space
    name: str
    kernel: str
    steps: int
    data: Any
    align: Callable[[np.ndarray], np.ndarray]
    weight: Callable[[np.ndarray], int] = len

    @property
    def parameters(self) -> list[str]:
        return [*parameters(self.space.row(self.name), self.kernel)]

    def halton(self, count: int) -> np.ndarray:
        """The first points of a Halton sequence in the unit cube of the parameters."""
        return qmc.Halton(len(self.parameters), scramble=False).random(count)

    def search(self, points: np.ndarray, fixed: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """Log parameters at points of the unit cube, and the costs of the steps there.

        Searches with several times `BLOCK` points run the same compiled program.
        """
        parts = [
            search(*self[:4], points[i], None if fixed is None else fixed[i], self.data)
            for i in np.split(np.arange(len(points)), range(BLOCK, len(points), BLOCK))
        ]
        logs, costs = (np.concatenate(part) for part in zip(*parts, strict=True))
        return np.asarray(logs, float), np.asarray(costs, float)

    def residuals(self, logs: Any, at: np.ndarray) -> Any:
        return residuals_and_jacobian(*self[:4], logs, self.data, at)

    def aligned(self, logs: np.ndarray, at: np.ndarray) -> np.ndarray:
        """The step of every layer for these parameters."""
        return self.align(np.asarray(self.residuals(logs, at)[2], float))

    def refine(self, logs: np.ndarray, at: np.ndarray) -> CandidateFit:
        """Fit parameters by least squares and align layers, in turn."""
        error, bounds = np.inf, log_upper_bounds(self.space.row(self.name), self.kernel)
        for _ in range(self.space.rounds):
            error, logs = minimise(lambda x, at=at: self.residuals(x, at)[:2], logs, bounds)
            error /= self.weight(at) ** 0.5
            new_alignment = at if self.space.rounds == 1 else self.aligned(logs, at)
            if np.array_equal(new_alignment, at):
                break
            at = new_alignment
        values = dict(zip(self.parameters, np.exp(logs).tolist(), strict=True))
        return CandidateFit(self.name, self.kernel, values, tuple(map(int, at)), float(error))


Start = tuple[FitProblem, np.ndarray, np.ndarray]
"""A problem, with the log parameters and the step of every layer where a fit begins."""


def best_fit(starts: Sequence[Start]) -> CandidateFit:
    """The best of the fits from some starts with finite parameters."""
    fits = []
    for problem, logs, at in starts:
        if np.all(np.isfinite(logs)):
            fits.append(problem.refine(logs, at))
            if fits[-1].error < problem.space.enough:
                break
    if not fits:
        raise ValueError(
            f"x of tasks must give the kernel {starts[0][0].kernel!r} a bandwidth and a matrix "
            "that are neither 0 nor infinite, got none; rescale x, use supports that differ, or "
            "other kernels"
        )
    return min(fits, key=lambda one: one.error)


class PredictionData(NamedTuple):
    """Tasks, and the predictions of a model after layers 1 to L [b, L, m]."""

    tasks: Task
    layers: Any


def _predict(name: str, kernel: str, logs: Any, data: PredictionData, steps: int) -> jax.Array:
    """The candidate's predictions for every task of a batch, [b, steps + 1, m]."""
    entry = find_candidate(name)
    return map_tasks(lambda task: solve(entry, kernel, logs, task, steps), data.tasks)


def squares(path: Float[Array, "b T m"], data: PredictionData) -> Float[Array, "L T"]:
    """Squared distances of layers to steps over all tasks, relative to the layer's squared norm."""
    distances = jnp.sum((data.layers[:, :, None] - path[:, None]) ** 2, axis=(0, 3))
    return distances / sizes(data.layers)[:, None]


def differences(path: Float[Array, "b T m"], data: PredictionData, at: Any) -> jax.Array:
    return (path[:, at] - data.layers) / jnp.sqrt(sizes(data.layers))[None, :, None]


def sizes(layers: Float[Array, "b L m"]) -> Float[Array, " L"]:
    size = jnp.sum(layers**2, axis=(0, 2))
    return jnp.where(size > 0, size, 1)


PREDICTIONS = Space(_predict, squares, differences)


def clip_distances(distances: npt.ArrayLike) -> np.ndarray:
    """Distances below 1e6; values that diverged, NaN included, become 1e6."""
    return np.minimum(np.nan_to_num(np.asarray(distances, float), nan=1e6), 1e6)


def _initial_alignments(distances: np.ndarray) -> list[list[np.ndarray]]:
    """Initial alignments for every point: the best one, one step per layer, two steps per layer.

    The best alignment of a point far from the optimum often leads to a poor local minimum.
    """
    _, layers, count = distances.shape
    each = np.arange(1, layers + 1)
    kinds = [[align(d) for d in distances]]
    kinds += [[k * each] * len(distances) for k in (1, 2) if k * layers < count]
    return kinds


def total_costs(costs: np.ndarray, alignments: list[np.ndarray]) -> np.ndarray:
    """The costs [s] of points with costs [s, L, T + 1], each with its alignment."""
    each = zip(costs, alignments, strict=True)
    return np.array([cost[range(len(cost)), at].sum() for cost, at in each])


def fit_candidate(
    candidate: str,
    kernel: str,
    tasks: Task,
    layer_predictions: Float[Array, "b L m"] | np.ndarray,
    steps: int,
    *,
    points: int = 128,
    starts: int = 2,
    initial: CandidateFit | None = None,
) -> CandidateFit:
    """Fit the parameters and the alignment of a candidate to the layers of a model.

    The fit minimises the squared relative distance. From the best points of a Halton sequence in
    the search ranges, with several alignments, SciPy's `least_squares` refines the logarithms of
    the parameters with a fixed alignment. The layers are then aligned again.

    Args:
        candidate: name of a candidate solver in the catalogue.
        layer_predictions: predictions of the model after layers 1 to L, with m = q r.
        points: number of points of the Halton sequence.
        starts: number of points to refine for each initial alignment.
        initial: fit with fewer steps, whose parameters are the only point to refine. Default: the
            points of the sequence.

    >>> import icl_krr as ik
    >>> config = ik.tasks.LinearRegression(num_features=2, num_supports=4)
    >>> keys = jax.random.split(jax.random.key(0), 4)
    >>> tasks = jax.vmap(ik.tasks.sample, in_axes=(0, None))(keys, config)
    >>> head = ik.constructions.nadaraya_watson(ik.Exponential(0.7), num_features=2)
    >>> predictions = ik.predict_batch(head, tasks)[:, None]
    >>> fit = fit_candidate("nadaraya_watson", "exponential", tasks, predictions, steps=1)
    >>> round(fit.values["temperature"], 3), fit.alignment
    (0.7, (1,))
    """
    candidate = find_candidate(candidate).name
    checks.instance("kernel", kernel, str, "the name of a kernel")
    kernel = spelled(kernel)
    checks.choice(f"kernel of {candidate}", kernel, taken(candidate))
    check_axes(tasks, 1)
    checks.shapes(x=(tasks.x, "b n p"), layer_predictions=(layer_predictions, "b L m"))
    num_predictions = tasks.num_queries * outputs_of(tasks)
    if layer_predictions.shape[2] != num_predictions:
        raise ValueError(
            f"layer_predictions must be [b, L, m] with m = {num_predictions}, the number of "
            f"predictions of a task, got shape {list(layer_predictions.shape)}"
        )
    for name, number in (("steps", steps), ("points", points), ("starts", starts)):
        checks.count(name, number)
    data = PredictionData(tasks, layer_predictions)
    problem = FitProblem(
        PREDICTIONS, candidate, kernel, steps, data, lambda each: align(clip_distances(each))
    )
    if initial is None:
        logs, costs = problem.search(problem.halton(points))
    else:
        logs = initial.logs[None]
        costs = problem.residuals(initial.logs, np.array(initial.alignment))[2][None]
    costs = clip_distances(costs)
    initial_points = [
        (problem, logs[i], alignments[i])
        for alignments in _initial_alignments(costs)
        for i in np.argsort(total_costs(costs, alignments))[:starts]
    ]
    return best_fit(initial_points)
