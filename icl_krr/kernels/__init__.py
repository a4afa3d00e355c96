"""Kernels: linear, polynomial, exponential (softmax), Gaussian, Matern, of features, mixtures.

A kernel object computes the values and derivatives of the kernel at points x [n, p] and z [m, p].
It also provides its bandwidth, the kernel of sketched inputs, and the softmax attention patterns or
features that a transformer needs to apply the kernel. A `mask` [n] is False for a point that does
not count. To add a positive kernel, subclass `LogBilinear` and implement one method.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
