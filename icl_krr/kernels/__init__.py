"""Kernels: linear, polynomial, exponential (softmax), Gaussian, Matern, of features, mixtures.

A kernel object computes the values and derivatives of the kernel at points x [n, p] and z [m, p].
It also provides its bandwidth, the kernel of sketched inputs, and the softmax attention patterns or
features that a transformer needs to apply the kernel. A `mask` [n] is False for a point that does
not count. To add a positive kernel, subclass `LogBilinear` and implement one method.
"""

# names imported as `name as name` are used by other packages here and are not public
from .._core.pytree import pytree_dataclass
from ._algebra import inner as inner, project as project
from ._exponential import Exponential
from ._forms import Diagonal, FeatureLayer, Pattern
from ._gaussian import Gaussian
from ._kernel import Kernel, check_kernel as check_kernel, kernel_class, make_kernel, name_of
from ._linear import Features, Linear
from ._log_bilinear import LogBilinear, PositiveKernel, check_positive as check_positive
from ._matern import Matern, Matern12, Matern32, Matern52
from ._mixture import Mixture, check_pairs as check_pairs
from ._monomials import halves as halves, monomials as monomials, num_monomials as num_monomials
from ._polynomial import Polynomial
from ._weighted import Weighted, weighted as weighted, weighted_family as weighted_family

__all__ = [
    "Diagonal",
    "Exponential",
    "FeatureLayer",
    "Features",
    "Gaussian",
    "Kernel",
    "Linear",
    "LogBilinear",
    "Matern",
    "Matern12",
    "Matern32",
    "Matern52",
    "Mixture",
    "Pattern",
    "Polynomial",
    "PositiveKernel",
    "Weighted",
    "kernel_class",
    "make_kernel",
    "name_of",
    "pytree_dataclass",
]
