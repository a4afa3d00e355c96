"""Bayesian model averaging over kernels and ridges, in one forward pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from .. import Read, solvers
from .._core import checks
from .._core.constants import xp
from ..kernels import FeatureLayer, Kernel
from ..kernels._mixture import check_pairs
from ..residual._reads import one_hot
from ..solvers._prefix_iterations import token_solver
from ..transformer._weights import Problem, Transformer
from ._assembly.features import fill
from ._assembly.machine import Machine
from ._assembly.options import Options
from ._assembly.prefix import compiled_from, prefix_sums
from ._assembly.prefix_sums import PosteriorSums
from ._assembly.slots import SUPPORTS, SUPPORTS_AND_QUERIES, repeat
from ._compiler.compile import run_on
from ._prefix_conjugate_gradient import FORMS

_MAX_LOG_RATIO = 80.0
"""Largest difference of two log evidences that is exponentiated: e^80 is finite in float32."""


class _GroupAverage(PosteriorSums):
    """A machine that averages posteriors with weights proportional to exp(evidence).

    Its tokens solve (C_i + I) h_i = psi_i for each of G kernels in parallel. The features of group
    g are psi = phi / sqrt(ridge_g), so that all groups have the ridge 1, side by side, with zeros
    for a kernel with fewer features. The average is that of the iterate before the step, whose
    means and variances it copies, so that it shares the blocks of the solver.
    """

    fit, quadratic, gaps = "fits", "variances_of_fits", "variance_gaps"
    about_solution, about_prediction = "(C + I)^-1 psi(x)", "sum_j y_j psi_j^T h"
    sharpness: Any = 1.0
    edges: Any = None

    def __init__(self, kernel: Kernel, *options: Any, kernels: Sequence[Kernel], ridges: Any):
        Machine.__init__(self, kernel, "linear", *options)  # not the features of one kernel
        self.ridges = self.square_of_unit = xp.asarray(ridges, self.dtype)[None]
        self.layers = [self.with_matrices(k.feature_layer(self.dtype)) for k in kernels]
        self.width = max(layer.mix.shape[1] for layer in self.layers)
        total = self.width * self.systems
        about = "phi(x) / sqrt(ridge) of every kernel"
        self.features = self.state("features", SUPPORTS_AND_QUERIES, about, width=total)

    @property
    def systems(self) -> int:
        return self.ridges.shape[1]

    def with_matrices(self, layer: FeatureLayer) -> FeatureLayer:
        """The layer with a matrix of frequencies and one that mixes the hidden units."""
        channels = self.projected(layer).width
        eye, every = (np.eye(k, dtype=self.dtype) for k in (channels, layer.width(channels)))
        frequencies = eye if layer.frequencies is None else layer.frequencies
        mix = every if layer.mix is None else layer.mix
        return layer._replace(frequencies=frequencies, mix=mix)

    def compute_features(self) -> None:
        for group, layer in enumerate(self.layers):
            place = one_hot(group * self.width, layer.mix.shape[1], self.features.width, self.dtype)
            place = place / xp.sqrt(self.ridges[0, group])
            fill(self, layer._replace(mix=xp.matmul(layer.mix, place)), self.features)

    def declare_average(self) -> None:
        G, outputs, at = self.systems, self.spec.num_outputs, SUPPORTS_AND_QUERIES
        self.means = self.state("means", at, "mean of every kernel", width=G * outputs)
        self.variances = self.state("variances", at, "variance of an output, for every kernel")
        self.evidence = self.state("log_evidence", at, "log p(y | x) of every kernel")
        self.weights = self.state("weights", at, "probability of every kernel")
        self.average = self.state("prediction", at, "average of the means", width=outputs)
        if self.edges is not None:
            bins = outputs * (len(self.edges) + 1)
            self.bins = self.state("bins", at, "probabilities of y between edges", width=bins)

    def readouts(self, variance: Read, gap: Read) -> dict[str, Read]:
        slots = [self.means, self.variances, gap, self.weights, self.evidence]
        return {slot.slot: slot for slot in (*slots, *([] if self.edges is None else [self.bins]))}

    def transformer(self, step: Callable[[], Any], *, readout: Read, **rest: Any) -> Transformer:
        average = partial(self.renew_average, readout)
        return super().transformer(step, average=average, readout=self.average, **rest)

    def renew_average(self, fits: Read, of_fits: Read, missing: Read) -> None:
        here = self.per_output(self.inside(SUPPORTS_AND_QUERIES))
        # rounding makes variances negative; a NaN of one model would be one of all, in all steps
        above = self.scratch("variances_above_0", SUPPORTS_AND_QUERIES, "at least 0")
        self.activate("relu", of_fits - missing, here, to=above)
        # in the evidence, what the features leave out would depend on the order of the supports
        output_variances = above + self.one @ self.ridges  # > 0 at every token
        variances = output_variances + missing
        self.add(fits - self.means, to=self.means)
        self.add(variances - self.variances, to=self.variances)
        logs = self.log_of(output_variances, here)
        self.sum_evidence(fits, output_variances, logs)
        total = self.compare_evidence(here)
        with self.together():
            self.add(-self.weights, to=self.weights)
            self.activate("reciprocal", total, here, to=self.weights)
        outputs = self.spec.num_outputs
        with self.together():
            self.add(-self.average, to=self.average)
            every = np.tile(np.eye(outputs, dtype=self.dtype), (self.systems, 1))
            totals = repeat(total, self.means.width)
            self.activate("reciprocal", totals, self.means, self.average, every)
        if self.edges is not None:
            logs = logs if self.approximated is None else self.log_of(variances, here)
            self.fill_bins(logs, here)

    def log_of(self, variances: Read, here: Read) -> Read:
        logs = self.scratch("log_variances", SUPPORTS_AND_QUERIES, "log of the variances")
        self.activate("log", variances, here, to=logs)
        return logs

    def sum_evidence(self, fits: Read, variances: Read, logs: Read) -> None:
        """Sum log N(y_j; f_j, s_j) over the supports j that a token sees."""
        outputs = self.spec.num_outputs
        errors = self.scratch("errors", SUPPORTS, "y - mean", fits.width)
        self.add(self.y_of_systems - fits, to=errors)
        squares = self.scratch("squares", SUPPORTS, "|y - mean|^2")
        of_system = np.kron(np.eye(self.systems), np.ones((outputs, 1))).astype(self.dtype)
        self.multiply(errors, errors, to=squares, out=of_system)
        scores = self.scratch("scores", SUPPORTS, "log N(y; mean, variance)")
        constant = math.log(2 * math.pi) * self.per_output(self.one)
        self.add((-outputs / 2) * (logs + constant), to=scores)
        self.activate("reciprocal", variances, -0.5 * squares, to=scores)
        self.erase(self.evidence)
        self.cumsum(scores, to=self.evidence)

    def compare_evidence(self, here: Read) -> Read:
        """For every kernel g, sum exp(e_h - e_g) over all kernels h: one over its probability.

        Differences neither overflow nor lose the small probabilities.
        """
        G = self.systems
        model, other = np.divmod(np.arange(G**2), G)
        eye = np.eye(G, dtype=self.dtype)
        differences = self.evidence @ (eye[other] - eye[model]).T
        each = repeat(here, G**2)
        pairs = self.scratch("pairs", SUPPORTS_AND_QUERIES, "differences of evidences", G**2)
        self.add(_MAX_LOG_RATIO * each, to=pairs)
        self.activate("relu", _MAX_LOG_RATIO * each - self.sharpness * differences, -each, to=pairs)
        total = self.scratch("total", SUPPORTS_AND_QUERIES, "1 / weight")
        self.activate("exp", pairs, each, total, eye[model])
        return total

    def fill_bins(self, logs: Read, here: Read) -> None:
        """Fill the bins: differences of sum_g w_g Phi((edge - f_g) / s_g) at the edges."""
        G, r, edges = self.systems, self.spec.num_outputs, xp.asarray(self.edges, self.dtype)
        count = len(edges)
        group, output, edge = np.unravel_index(np.arange(G * r * count), (G, r, count))

        def pick(index, size):
            return np.eye(size, dtype=self.dtype)[:, index]

        roots = self.scratch("roots", SUPPORTS_AND_QUERIES, "1 / standard deviation")
        self.activate("exp", -0.5 * logs, here, to=roots)
        about = "(edge - mean) / deviation"
        scores = self.scratch("standard", SUPPORTS_AND_QUERIES, about, group.size)
        gaps = self.one @ edges[edge][None] - self.means @ pick(group * r + output, G * r)
        self.multiply(gaps, roots @ pick(group, G), to=scores)
        place = output * (count + 1) + edge
        eye = np.eye(r * (count + 1), dtype=self.dtype)
        last = np.zeros((1, r * (count + 1)), self.dtype)
        last[0, count :: count + 1] = 1
        with self.together():
            self.add(self.inside(SUPPORTS_AND_QUERIES) @ last - self.bins, to=self.bins)
            weights, ends = self.weights @ pick(group, G), eye[place] - eye[place + 1]
            self.activate("normal_cdf", scores, weights, self.bins, ends)


class _AverageOptions(Options, total=False):
    tokens: str
    max_supports: int | None


@compiled_from(solvers.bayesian_average, _AverageOptions)
def bayesian_average(
    kernel, *, ridges, steps, approximates, sharpness, form="textbook", edges=None, **options
):
    checks.count("steps", steps)
    kernels = check_pairs(kernel, ridges)
    checks.choice("form", form, FORMS)
    checks.positive_scalar("sharpness", sharpness)
    if approximates is not None:
        approximates = check_pairs(approximates, ridges, "approximates")
    if edges is not None:
        checks.increasing("edges", edges)
    if callable(options.get("sketch")):
        raise ValueError(
            "sketch must be a matrix for bayesian_average, got a feature map; pass "
            "icl_krr.Features(map) as a kernel"
        )
    kind = partial(_GroupAverage, kernels=kernels, ridges=ridges)
    m: Any = prefix_sums(kernels[0], ridge=None, kind=kind, **options)
    if m.sketch is not None:
        kernels = tuple(one.sketched(m.sketch) for one in kernels)
    m.problem = Problem(kernels, ridges, sharpness)
    m.approximated, m.sharpness, m.edges = approximates, sharpness, edges
    m.declare_average()
    return run_on(m, token_solver(), steps, ridge=1.0, form=form)
