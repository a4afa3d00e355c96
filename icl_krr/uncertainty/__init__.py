"""Predictive distributions of an output, and how well they agree with observed outputs.

A `Predictive` is a mixture of Gaussians, which is exact for a Gaussian process and for an average
over Gaussian processes. `icl_krr.predictive` reads one out of a model. Densities, bins, quantiles
and scores are pure functions of it, to jit, vmap and differentiate. Their results have the dtype of
the distributions and, if they take outputs y, the shape of y. `coverage` and `uniformity`
test on the host whether observed outputs agree with it.

Most of these functions take these arguments:

Args:
    predictive: distributions with leading axes [...].
    y: observed outputs [...], floating point, or with more axes before these.
    level: probability of an interval, between 0 and 1; default 0.95. In `interval`, it may be
        traced.
    by_task: whether the first axis of y counts tasks, whose outputs depend on each other;
        default False: all outputs are independent. It needs 2 tasks.

Raises:
    ValueError: a variance is not > 0, the weights do not have the sum 1, a shape is wrong, a
        number is out of range, edges do not increase, or there are too few tasks.
    TypeError: an argument has the wrong type.
"""

from .calibration import Coverage, Uniformity, coverage, uniformity
from .densities import bins, cdf, crps, log_density, log_likelihood
from .distribution import Predictive
from .quantiles import Interval, interval, quantile

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
