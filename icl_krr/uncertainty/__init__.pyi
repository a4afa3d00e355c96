from ._calibration import Coverage, Uniformity, coverage, uniformity
from ._densities import Interval, bins, cdf, crps, interval, log_density, log_likelihood, quantile
from ._distribution import Predictive

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
