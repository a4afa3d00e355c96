"""Statements on a model from weak to strong, and the filters of K that are fitted to it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..._core.linalg import eigh
from ..._core.numerics import matmul
from ...kernels import Kernel, kernel_class, make_kernel
from ...tasks import Task, map_tasks, system
from .._reading.hyperparameters import minimise, typical_bandwidth
from .candidates import BANDWIDTH
from .distances import Gaps, layer_distances
from .elimination import total_distance
from .layer_predictions import ModelPredictions, support_mask

Filters = Callable[[np.ndarray, float, np.ndarray], np.ndarray]
"""Function of eigenvalues [b, n] over the scale, a ridge over the scale and values of layers
[m, 1, 1] that returns the values of m filters times the scale, [m, b, n]."""

BANDWIDTHS = 13
"""Number of bandwidths of the grid."""
PENALTIES = (0.0, *10.0 ** np.arange(-14.0, 0.0, 2))
"""Ridges of a linear combination, over the largest squared singular value. The last quarter of the
tasks chooses one of them, as for a probe; without a ridge, the number of leading filters."""


class Spectra(NamedTuple):
    r"""Eigensystems of the kernel matrices $K = \sum_i \sigma_i u_i u_i^T$ of a batch of tasks.

    Attributes:
        sigma: eigenvalues [b, n].
        vectors: eigenvectors in columns [b, n, n].
        at_queries: coefficients $k(x)^T u_i$ of the queries [b, q, n].
        of_y: coefficients $u_i^T y$ of the outputs [b, n, r].
    """

    sigma: np.ndarray
    vectors: np.ndarray
    at_queries: np.ndarray
    of_y: np.ndarray

    @property
    def scale(self) -> float:
        """The largest eigenvalue of all tasks."""
        return float(self.sigma.max())

    def predictions(self, q: np.ndarray) -> np.ndarray:
        """Predictions [b, L, m] of filters with values [L, b, n] at the eigenvalues."""
        predictions = np.einsum("bqi,lbi,bir->blqr", self.at_queries, q, self.of_y, optimize=True)
        return predictions.reshape(*predictions.shape[:2], -1)

    def hats(self, q: np.ndarray) -> np.ndarray:
        """Hat matrices [b, L, m, k] of the same filters."""
        rows = np.einsum("bqi,lbi,bji->blqj", self.at_queries, q, self.vectors, optimize=True)
        outputs = np.eye(self.of_y.shape[-1])
        hats = np.einsum("blqj,rs->blqrjs", rows, outputs)
        return hats.reshape(*rows.shape[:2], rows.shape[2] * len(outputs), -1)


@partial(jax.jit, static_argnums=0)
def _eigensystems(kernel: str, bandwidth: jax.Array, tasks: Task):
    kernel_object = make_kernel(kernel, {kernel_class(kernel).bandwidth or "": bandwidth})
    return map_tasks(partial(eigensystem, kernel_object), tasks)


def eigensystem(kernel: Kernel, task: Task) -> tuple[jax.Array, ...]:
    """Eigenvalues [n] and vectors of K, and the coefficients of queries [q, n] and of y [n, r]."""
    gram, cross, y = system(kernel, task)
    sigma, vectors = eigh(gram)
    return sigma, vectors, matmul(cross, vectors), matmul(vectors.T, y)


class Spectrum:
    """The `Spectra` of one batch of tasks for any kernel and bandwidth, in float64."""

    def __init__(self, tasks: Task):
        self.tasks = tasks
        self.at = lru_cache(maxsize=64)(self.compute)

    def compute(self, kernel: str, log_bandwidth: float) -> Spectra:
        bandwidth = jnp.asarray(np.exp(log_bandwidth), self.tasks.x.dtype)
        sigma, *rest = _eigensystems(kernel, bandwidth, self.tasks)
        return Spectra(np.maximum(sigma, 0, dtype=float), *(np.asarray(one, float) for one in rest))


@dataclass(frozen=True)
class FilterFamily:
    """A family of filters of K; every layer of a model may have a filter of its own.

    Args:
        grid: logarithms of the values of a layer [m], or, if `linear`, the values of the
            filters that each layer combines.
        linear: whether a layer has a linear combination of filters.
        ridges: logarithms of the ridges on the grid that all layers share; empty: no ridge.
    """

    name: str
    filters: Filters
    grid: np.ndarray
    linear: bool = False
    ridges: tuple[float, ...] = ()


class FilterFit(NamedTuple):
    """A family that was fitted to a model: its kernel, the shared logarithms, and those of layers.

    `layer_values` has the logarithm of the value of each layer [L], or its coefficients [L, m].
    `error` is the root mean square over layers of the relative distances of predictions.
    """

    family: FilterFamily
    kernel: str
    log_bandwidth: float
    log_ridge: float
    layer_values: np.ndarray
    scale: float
    error: float = np.inf

    @property
    def values(self) -> dict[str, float]:
        """The parameters that all layers share, by name."""
        bandwidth = kernel_class(self.kernel).bandwidth
        values = {} if bandwidth is None else {bandwidth: float(np.exp(self.log_bandwidth))}
        ridge = {"ridge": self.scale * float(np.exp(self.log_ridge))} if self.family.ridges else {}
        return values | ridge

    def layer_filters(self, spectra: Spectra) -> np.ndarray:
        """The filter of every layer, or the filters that every layer combines."""
        ridge, family = float(np.exp(self.log_ridge)), self.family
        values = (family.grid if family.linear else np.exp(self.layer_values))[:, None, None]
        return family.filters(spectra.sigma / self.scale, ridge, values) / self.scale

    def gaps(self, model: ModelPredictions, spectrum: Spectrum) -> Gaps:
        spectra = spectrum.at(self.kernel, self.log_bandwidth)
        filters = self.layer_filters(spectra)
        if self.family.linear:
            filters = np.tensordot(self.layer_values, filters, axes=1)
        return {
            "prediction": layer_distances(model.predictions, spectra.predictions(filters)),
            "hat": layer_distances(model.hats, spectra.hats(filters)),
        }


def _fit_family(
    family: FilterFamily, kernels: Sequence[str], spectrum: Spectrum, predictions: np.ndarray
) -> FilterFit:
    """Fit a family to predictions [b, L, m].

    The best point of a grid is refined by least squares in the logarithms. Coefficients of a linear
    combination are the best ones at every point.
    """
    layers = np.moveaxis(predictions, 1, 0)
    norms = np.linalg.norm(layers.reshape(len(layers), -1), axis=1)[:, None, None]
    norms = np.where(norms > 0, norms, 1)
    layers = layers / norms

    def combined(predictions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Gaps [L, ...] of the best combinations of predictions [b, m, q], and coefficients."""
        by_layer = np.moveaxis(predictions, 1, 0)
        rows, targets = (part.reshape(len(part), -1).T for part in (by_layer, layers))
        cut = max(1, 3 * len(predictions) // 4) * predictions.shape[2]
        tried = [solve() for solve in combinations(rows[:cut], targets[:cut])]
        best = np.argmin([np.sum((rows[cut:] @ weights - targets[cut:]) ** 2) for weights in tried])
        weights = combinations(rows, targets)[best]().T
        return weights @ rows.T - targets.T, weights * norms[:, 0]

    def with_error(one: FilterFit, gaps: np.ndarray, layer_values: np.ndarray) -> FilterFit:
        error = float(np.sqrt(np.sum(gaps**2) / len(layers)))
        return one._replace(layer_values=layer_values, error=error)

    def on_grid(kernel: str, log_bandwidth: float, log_ridge: float) -> FilterFit:
        spectra = spectrum.at(kernel, log_bandwidth)
        one = FilterFit(family, kernel, log_bandwidth, log_ridge, family.grid, spectra.scale)
        predictions = spectra.predictions(one.layer_filters(spectra))
        if not np.all(np.isfinite(predictions)):
            return one
        if family.linear:
            return with_error(one, *combined(predictions))
        each = np.moveaxis(predictions, 1, 0)[None] / norms[:, None] - layers[:, None]
        distances = np.linalg.norm(each, axis=(2, 3))
        return with_error(one, distances.min(axis=1), family.grid[np.argmin(distances, axis=1)])

    fits = [
        on_grid(kernel, float(at), ridge)
        for kernel in kernels
        for at in bandwidths(kernel, spectrum.tasks)
        for ridge in family.ridges or (0.0,)
    ]
    best = min(fits, key=lambda one: one.error)
    free = np.array([kernel_class(best.kernel).bandwidth is not None, bool(family.ridges)])
    shared, count = np.array([best.log_bandwidth, best.log_ridge]), free.sum()

    def unpack(x: np.ndarray) -> FilterFit:
        both = shared.copy()
        both[free] = x[:count]
        layer_values = best.layer_values if family.linear else x[count:]
        return best._replace(log_bandwidth=both[0], log_ridge=both[1], layer_values=layer_values)

    def gaps(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        one = unpack(x)
        spectra = spectrum.at(one.kernel, one.log_bandwidth)
        predictions = spectra.predictions(one.layer_filters(spectra))
        predictions = np.nan_to_num(np.clip(predictions, -1e6, 1e6), nan=1e6)
        if family.linear:
            return combined(predictions)
        return np.moveaxis(predictions, 1, 0) / norms - layers, one.layer_values

    start = np.concatenate([shared[free], [] if family.linear else best.layer_values])
    limits = np.full(len(start), np.inf)
    if family.ridges:
        limits[count - 1] = family.ridges[-1] + 1e-3
    _, x = minimise(lambda x: [gaps(x)[0].ravel()], start, limits, flat=1e-8)
    return min(best, with_error(unpack(x), *gaps(x)), key=lambda one: one.error)


def bandwidths(kernel: str, tasks: Task) -> np.ndarray:
    """Logarithms of bandwidths over the search range of candidates; [0] without a bandwidth."""
    if kernel_class(kernel).bandwidth is None:
        return np.zeros(1)
    centre = float(np.log(typical_bandwidth(kernel, tasks)))
    return centre + np.log(10) * np.linspace(BANDWIDTH.low, BANDWIDTH.high, BANDWIDTHS)


def combinations(rows: np.ndarray, targets: np.ndarray) -> list[Callable[[], np.ndarray]]:
    """Ways to solve for coefficients [m, L] of rows [e, m]: each penalty, each filter count."""
    left, values, right = np.linalg.svd(rows, full_matrices=False)
    values = np.maximum(values, 1e-10 * max(values[0], np.finfo(float).tiny))
    rotated_targets, top = left.T @ targets, values[0] ** 2

    def penalised(penalty: float) -> np.ndarray:
        return right.T @ (rotated_targets / (values + penalty * top / values)[:, None])

    def leading(count: int) -> np.ndarray:
        coefficients = np.linalg.lstsq(rows[:, :count], targets, rcond=1e-10)[0]
        return np.pad(coefficients, ((0, rows.shape[1] - count), (0, 0)))

    shorter = (partial(leading, count) for count in range(1, rows.shape[1]))
    return [*(partial(penalised, penalty) for penalty in PENALTIES), *shorter]


DESCRIPTIONS = {
    "homogeneous": "the prediction is its derivative in y times y",
    "linear": "d f / dy is the same for the outputs of another task at the same x, which may be "
    "unlike those that the model was trained on",
    "smoother": "the rows of d f / dy are weights >= 0 with the sum 1",
    "any filter": "k(x)^T q(K) y, with a function q of every layer",
    "degree t": "the same with a polynomial q of t coefficients in every layer",
}
"""The nested models below the nulls, from weak to strong."""


RESOLVENTS = 10.0 ** np.linspace(-5, 1, 10)
"""Ridges, over the largest eigenvalue, of the resolvents that a free filter combines."""
DEGREES = (8, 5, 3, 2, 1)
RIDGES = tuple(np.log(10) * np.linspace(-7, 0, 8))
"""Logarithms of shared ridges over the largest eigenvalue. Regression with a larger ridge is nearly
one gradient step, which is a solver's."""


def ridge_path(sigma: Any, ridge: Any, layer_values: Any) -> Any:
    return 1 / (sigma + layer_values)


def gradient_flow(sigma: Any, ridge: Any, layer_values: Any) -> Any:
    shifted = sigma + ridge
    return -layer_values.__array_namespace__().expm1(-layer_values * shifted) / shifted


def exact_regression(sigma: Any, ridge: Any, layer_values: Any) -> Any:
    return layer_values / (sigma + ridge)


def polynomials(sigma: np.ndarray, ridge: float, layer_values: np.ndarray) -> np.ndarray:
    """Legendre polynomials of the degrees 0, 1, ... on the interval from 0 to the scale."""
    table = np.polynomial.legendre.legvander(2 * sigma - 1, len(layer_values) - 1)
    return np.moveaxis(table, -1, 0)


NULLS = {
    "interpolation": "an interpolation between 0 and exact kernel ridge regression",
    "ridge path": "exact kernel ridge regression with a ridge of its own at every layer",
    "gradient flow": "gradient flow with a time of its own at every layer",
}
"""What a model may do from layer to layer without a solver's steps, by the name in tables."""

FILTER_FAMILIES = (
    FilterFamily("any filter", lambda s, ridge, at: at / (s + at), RESOLVENTS, linear=True),
    *(FilterFamily(f"degree {t}", polynomials, np.arange(t), linear=True) for t in DEGREES),
    FilterFamily("interpolation", exact_regression, np.ones(1), linear=True, ridges=RIDGES),
    FilterFamily("ridge path", ridge_path, np.log(10) * np.linspace(-8, 3, 56)),
    FilterFamily(
        "gradient flow", gradient_flow, np.log(10) * np.linspace(-3, 7, 51), ridges=RIDGES
    ),
)
"""A combination of resolvents, which is nearly any smooth filter; polynomials of degree t - 1 in K,
which are all that t steps of a method that multiplies by K can have; and the nulls."""


class NestedModel(NamedTuple):
    """A statement about all layers of a model, and the gaps to what fulfils it in each space."""

    name: str
    kernel: str
    values: dict[str, float]
    gaps: Gaps


def fit_nested_models(model: ModelPredictions, kernels: Sequence[str]) -> list[NestedModel]:
    """All nested models: on derivatives, functions of K, polynomials of K, and the nulls."""
    fitted, scored = Spectrum(model.fitted), Spectrum(model.scored)
    predictions, models = np.asarray(model.fitted_predictions, float), []
    for family in FILTER_FAMILIES:
        one = _fit_family(family, kernels, fitted, predictions)
        models.append(NestedModel(family.name, one.kernel, one.values, one.gaps(model, scored)))
    # Any filter, and polynomials of higher degree, have the gaps of a special case that is nearer:
    # each was fitted with a kernel of its own, and a search may miss the best kernel.
    free, *filters = models[: -len(NULLS)]
    nulls = models[-len(NULLS) :]
    nested: list[NestedModel] = []
    for one in reversed(filters):
        nested.insert(0, _nearest_model(one, nested[:1]))
    return [*_derivative_models(model), _nearest_model(free, [nested[0], *nulls]), *nested, *nulls]


def _nearest_model(model: NestedModel, others: Sequence[NestedModel]) -> NestedModel:
    return min([model, *others], key=lambda one: total_distance(one.gaps))._replace(name=model.name)


def _derivative_models(model: ModelPredictions) -> list[NestedModel]:
    hats, mask = np.asarray(model.hats, float), support_mask(model.scored)
    y = np.where(mask, np.asarray(model.scored.y, float).reshape(mask.shape), 0)
    nearest_arrays = {
        "homogeneous": {"prediction": np.einsum("blmk,bk->blm", hats, y)},
        "linear": {} if model.other_hats is None else {"hat": np.asarray(model.other_hats, float)},
        "smoother": {"hat": _nearest_weights(hats, mask)},
    }
    layers = {"prediction": model.predictions, "hat": model.hats}

    def gaps(of: dict[str, np.ndarray]) -> Gaps:
        return {space: layer_distances(layers[space], array) for space, array in of.items()}

    return [NestedModel(name, "", {}, gaps(of)) for name, of in nearest_arrays.items() if of]


def _nearest_weights(rows: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    r"""The nearest rows [b, L, m, k] of weights $w \geq 0$, $\sum w = 1$; 0 where not allowed.

    Source: Duchi et al., Efficient projections onto the l1-ball, 2008.

    >>> _nearest_weights(np.array([[[[0.5, 0.9, -0.3]]]]), np.ones((1, 3), bool)).round(3).tolist()
    [[[[0.3, 0.7, 0.0]]]]
    """
    open_rows = np.where(allowed[:, None, None, :], rows, -np.inf)
    ordered = -np.sort(-open_rows, axis=-1)
    finite = np.where(np.isfinite(ordered), ordered, 0)
    shift = (np.cumsum(finite, axis=-1) - 1) / np.arange(1, rows.shape[-1] + 1)
    count = np.sum(ordered > shift, axis=-1, keepdims=True)
    return np.maximum(open_rows - np.take_along_axis(shift, count - 1, axis=-1), 0)
