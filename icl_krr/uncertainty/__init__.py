"""Predictive distributions of an output, and how well they agree with observed outputs.

A `Predictive` is a mixture of Gaussians, which is exact for a Gaussian process and for an average
over Gaussian processes. `icl_krr.predictive` reads one out of a model. Densities, bins, quantiles
and scores are pure functions of it, to jit, vmap and differentiate. Their results have the dtype of
the distributions and, if they take outputs y, the shape of y, which may have more axes before those
of the distributions. `coverage` and `uniformity` test on the host whether observed outputs agree
with it. All of them refuse a variance that is not > 0 and weights without the sum 1.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
