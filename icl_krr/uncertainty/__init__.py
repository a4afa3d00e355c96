"""Predictive distributions of an output, and how well they agree with observed outputs.

A `Predictive` is a mixture of Gaussians, which is exact for a Gaussian process and for an average
over Gaussian processes. `icl_krr.predictive` reads one out of a model. Densities, bins, quantiles
and scores are pure functions of it, to jit, vmap and differentiate. `coverage` and `uniformity`
test on the host whether observed outputs agree with it.
"""

from .bins import bins
from .calibration import Coverage, Uniformity, coverage, uniformity
from .densities import cdf, log_density
from .distribution import Predictive
from .quantiles import Interval, interval, quantile
from .scores import crps, log_likelihood

__all__ = [
    "Coverage",
    "Interval",
    "Predictive",
    "Uniformity",
    "bins",
    "cdf",
    "coverage",
    "crps",
    "interval",
    "log_density",
    "log_likelihood",
    "quantile",
    "uniformity",
]
