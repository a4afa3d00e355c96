"""Kernels, one a file: linear, exponential (the softmax kernel), Gaussian; of features; mixtures.

A kernel is an object that answers for itself whatever others ask of it: its values, its bandwidth,
the kernel of sketched inputs, the softmax patterns or the features that apply it, its derivatives.
A positive kernel of one's own is a subclass of `LogBilinear` with one method.
"""

# `name as name` is for the other rooms, not for users
from .algebra import inner as inner, project as project
from .exponential import Exponential
from .features import Features
from .forms import Diagonal, FeatureLayer, Pattern
from .gaussian import Gaussian
from .kernel import Kernel, check_kernel as check_kernel
from .linear import Linear
from .log_bilinear import LogBilinear
from .mixture import Mixture
from .positive import PositiveKernel, check_positive as check_positive

__all__ = [
    "Diagonal",
    "Exponential",
    "FeatureLayer",
    "Features",
    "Gaussian",
    "Kernel",
    "Linear",
    "LogBilinear",
    "Mixture",
    "Pattern",
    "PositiveKernel",
]
