"""Catalogue rows for the kernels."""

from .rows import Kernel

KERNELS = {
    row.name: row
    for row in (
        Kernel("linear", "icl_krr.kernels:Linear", "featured"),
        Kernel("exponential", "icl_krr.kernels:Exponential", "positive"),
        Kernel("gaussian", "icl_krr.kernels:Gaussian", "positive", ("rbf",), bounded=True),
    )
}
