"""What a model can be said to do, from weak to strong statements, each with its distance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...tasks import Task
from ...tasks.task import outputs_of
from ..resampling import relative_distances
from .answers import ModelAnswers
from .distances import Aligned, aligned_once
from .filter_fit import Family, Spectrum, fit_family

WORDS = {
    "homogeneous": "the prediction is its derivative in y times y",
    "linear": "d f / dy is the same for the outputs of another task at the same x, which may be "
    "unlike those that the model was trained on",
    "smoother": "the rows of d f / dy are weights >= 0 with the sum 1",
    "any filter": "k(x)^T q(K) y, with a function q of every layer",
    "degree t": "the same with a polynomial q of t coefficients in every layer",
}
"""The statements of the ladder below the nulls, from weak to strong."""


RESOLVENTS = 10.0 ** np.linspace(-5, 1, 10)
"""Ridges, over the largest eigenvalue, of the resolvents that a free filter combines."""
DEGREES = (8, 5, 3, 2, 1)
RIDGES = tuple(np.log(10) * np.linspace(-7, 0, 8))
"""Logarithms of shared ridges over the largest eigenvalue. Regression with a larger ridge is nearly
one gradient step, which is a solver's."""


def ridge_path(sigma: np.ndarray, ridge: float, own: np.ndarray) -> np.ndarray:
    return 1 / (sigma + own[:, None, None])


def gradient_flow(sigma: np.ndarray, ridge: float, own: np.ndarray) -> np.ndarray:
    return -np.expm1(-own[:, None, None] * (sigma + ridge)) / (sigma + ridge)


def exact_regression(sigma: np.ndarray, ridge: float, own: np.ndarray) -> np.ndarray:
    return own[:, None, None] / (sigma + ridge)


def polynomials(sigma: np.ndarray, ridge: float, own: np.ndarray) -> np.ndarray:
    """Legendre polynomials of the degrees 0, 1, ... on the interval from 0 to the scale."""
    table = np.polynomial.legendre.legvander(2 * sigma - 1, len(own) - 1)
    return np.moveaxis(table, -1, 0)


def resolvents(sigma: np.ndarray, ridge: float, own: np.ndarray) -> np.ndarray:
    return own[:, None, None] / (sigma + own[:, None, None])


NULLS = {
    "interpolation": "an interpolation between 0 and exact kernel ridge regression",
    "ridge path": "exact kernel ridge regression with a ridge of its own at every layer",
    "gradient flow": "gradient flow with a time of its own at every layer",
}
"""What a model may do from layer to layer without a solver's steps, by the name in tables."""

FAMILIES = (
    Family("any filter", resolvents, RESOLVENTS, linear=True),
    *(Family(f"degree {t}", polynomials, np.arange(t), linear=True) for t in DEGREES),
    Family("interpolation", exact_regression, np.ones(1), linear=True, ridges=RIDGES),
    Family("ridge path", ridge_path, np.log(10) * np.linspace(-8, 3, 56)),
    Family("gradient flow", gradient_flow, np.log(10) * np.linspace(-3, 7, 51), ridges=RIDGES),
)
"""A combination of resolvents, which is nearly any smooth filter; polynomials of degree t - 1 in K,
which are all that t steps of a method that multiplies by K can have; and the nulls."""


class Rung(NamedTuple):
    """A statement about all layers of a model, and the gaps to what fulfils it in each space.

    `kernel` is "" for statements without one, and all layers share the parameters in `values`.
    """

    name: str
    kernel: str
    values: dict[str, float]
    gaps: dict[str, Aligned]


def ladder(model: ModelAnswers, kernels: Sequence[str]) -> list[Rung]:
    """All rungs below the solvers: on derivatives, ceilings of functions of K, and the nulls."""
    spectra = Spectrum(model.fitted), Spectrum(model.scored)
    answers = np.asarray(model.answers, float)
    fitted = [of_family(family, kernels, spectra, answers, model) for family in FAMILIES]
    return [*on_derivatives(model), *nested(fitted)]


def nested(rungs: list[Rung]) -> list[Rung]:
    """Any filter may be any other one, and a polynomial one of lower degree, if these are nearer.

    Each was fitted with a kernel of its own, and a search may miss the best kernel.
    """
    free, *filters, nulls = rungs[0], *rungs[1 : -len(NULLS)], rungs[-len(NULLS) :]
    found: list[Rung] = []
    for rung in reversed(filters):
        found.append(min([rung, *found[-1:]], key=far)._replace(name=rung.name))
    return [min(free, found[-1], *nulls, key=far)._replace(name=free.name), *found[::-1], *nulls]


def far(rung: Rung) -> float:
    """The relative distances of all layers in all spaces."""
    each = ((gaps.squares, gaps.sizes, np.ones(len(gaps.squares))) for gaps in rung.gaps.values())
    return float(sum(relative_distances(*one).mean() for one in each))


def of_family(
    family: Family,
    kernels: Sequence[str],
    spectra: tuple[Spectrum, Spectrum],
    answers: np.ndarray,
    model: ModelAnswers,
) -> Rung:
    found = fit_family(family, kernels, spectra[0], answers)
    parts, filters = found.filters(spectra[1])
    gaps = {
        "prediction": aligned_once(model.predictions, parts.predictions(filters)),
        "hat": aligned_once(model.hats, parts.hats(filters)),
    }
    return Rung(family.name, found.kernel, found.values, gaps)


def on_derivatives(model: ModelAnswers) -> list[Rung]:
    hats, y = np.asarray(model.hats, float), outputs(model.scored)
    own = {
        "homogeneous": {"prediction": np.einsum("blmk,bk->blm", hats, y)},
        "linear": {} if model.other_hats is None else {"hat": np.asarray(model.other_hats, float)},
        "smoother": {"hat": nearest_weights(hats, shown(model.scored))},
    }
    known = {"prediction": model.predictions, "hat": model.hats}
    return [
        Rung(name, "", {}, {space: aligned_once(known[space], made) for space, made in of.items()})
        for name, of in own.items()
        if of
    ]


def outputs(tasks: Task) -> np.ndarray:
    y = np.asarray(tasks.y, float).reshape(len(tasks.y), -1)
    return np.where(shown(tasks), y, 0)


def shown(tasks: Task) -> np.ndarray:
    """Which of the k = n r outputs belong to unmasked supports [b, k]."""
    r = outputs_of(tasks)
    mask = np.ones(tasks.y.shape[:2], bool) if tasks.mask is None else np.asarray(tasks.mask)
    return np.repeat(mask, r, axis=1)


def nearest_weights(rows: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    r"""The nearest rows [b, L, m, k] of weights $w \geq 0$, $\sum w = 1$; 0 where not allowed.

    Source: Duchi et al., Efficient projections onto the l1-ball, 2008.

    >>> nearest_weights(np.array([[[[0.5, 0.9, -0.3]]]]), np.ones((1, 3), bool)).round(3).tolist()
    [[[[0.3, 0.7, 0.0]]]]
    """
    open_rows = np.where(allowed[:, None, None, :], rows, -np.inf)
    ordered = -np.sort(-open_rows, axis=-1)
    finite = np.where(np.isfinite(ordered), ordered, 0)
    shift = (np.cumsum(finite, axis=-1) - 1) / np.arange(1, rows.shape[-1] + 1)
    count = np.sum(ordered > shift, axis=-1, keepdims=True)
    return np.maximum(open_rows - np.take_along_axis(shift, count - 1, axis=-1), 0)
