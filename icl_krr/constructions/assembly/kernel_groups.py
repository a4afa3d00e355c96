"""A machine with one group of slots for each of several kernels, and the evidence of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...constants import xp
from ...kernels import FeatureLayer, Kernel
from ...residual.reads import one_hot
from .features import fill
from .machine import Machine
from .posterior_sums import PosteriorSums
from .slots import SUPPORTS_AND_QUERIES


class KernelGroups(PosteriorSums):
    r"""A machine whose tokens solve (C_i + I) h_i = psi_i for each of G kernels in parallel.

    The features of group g are psi = phi / sqrt(ridge_g), so that all groups have the ridge 1. The
    features of the groups are side by side, m for each group; a kernel with fewer features has
    zeros, which change nothing.
    """

    fit, quadratic, gaps = "fits", "variances_of_fits", "variance_gaps"
    about_solution, about_prediction = "(C + I)^-1 psi(x)", "sum_j y_j psi_j^T h"

    def __init__(self, kernel: Kernel, *options: Any, kernels: Sequence[Kernel], ridges: Any):
        Machine.__init__(self, kernel, "linear", *options)  # not the features of one kernel
        self.ridges = xp.asarray(ridges, self.dtype)
        self.layers = [self.with_matrices(k.feature_layer(self.dtype)) for k in kernels]
        self.width = max(layer.width for layer in self.layers)
        total = self.width * self.systems
        about = "phi(x) / sqrt(ridge) of every kernel"
        self.features = self.state("features", SUPPORTS_AND_QUERIES, about, width=total)

    @property
    def systems(self) -> int:
        return len(self.ridges)

    def with_matrices(self, layer: FeatureLayer) -> FeatureLayer:
        """The layer with a matrix of frequencies and one that mixes the hidden units."""
        eye = np.eye(self.projected(layer).width, dtype=self.dtype)
        frequencies = eye if layer.frequencies is None else layer.frequencies
        mix = np.eye(len(frequencies), dtype=self.dtype) if layer.mix is None else layer.mix
        return layer._replace(frequencies=frequencies, mix=mix)

    def compute_features(self) -> None:
        for group, layer in enumerate(self.layers):
            place = one_hot(group * self.width, layer.width, self.features.width, self.dtype)
            place = place / xp.sqrt(self.ridges[group])
            fill(self, layer._replace(mix=xp.matmul(layer.mix, place)), self.features)

    @property
    def times_ridge(self) -> Any:
        return self.sum_channels * self.ridges[None]

    @property
    def squared_length(self) -> Any:
        return self.times_ridge
