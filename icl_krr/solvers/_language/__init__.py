"""The language of solvers: plain operators on vectors and scalars, recorded as a program."""

from .analysis import QUERIES, READOUT, SUPPORTS, homogeneity, in_range_of_kernel, needs_sums, roles
from .arrays import iterates
from .operators import Operator
from .trace import per_step, trace
from .values import ENTRIES, FEATURES, READS, SCALAR, VECTOR, Op, Program, Value

__all__ = [
    "ENTRIES",
    "FEATURES",
    "QUERIES",
    "READOUT",
    "READS",
    "SCALAR",
    "SUPPORTS",
    "VECTOR",
    "Op",
    "Operator",
    "Program",
    "Value",
    "homogeneity",
    "in_range_of_kernel",
    "iterates",
    "needs_sums",
    "per_step",
    "roles",
    "trace",
]
