from ._exponential import Exponential
from ._forms import Diagonal, FeatureLayer, Pattern
from ._gaussian import Gaussian, pytree_dataclass
from ._kernel import Kernel, kernel_class, make_kernel, name_of
from ._linear import Features, Linear
from ._log_bilinear import LogBilinear, PositiveKernel
from ._matern import Matern, Matern12, Matern32, Matern52
from ._mixture import Mixture
from ._polynomial import Polynomial
from ._weighted import Weighted

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
