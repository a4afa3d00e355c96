"""Input checks; an error message gives the name, the rule, the value and often a remedy."""

from ..fields import shown
from .arrays import array, dtype, factorable, floating, floating_dtype, key, matrices
from .choices import choice, differences, flag, function, instance, names, path
from .numbers import (
    LARGEST,
    at_least,
    count,
    even,
    finite,
    in_range,
    nonnegative_scalar,
    nonnegatives,
    numeric,
    positive,
    positive_scalar,
    positives,
    reals,
    scalar,
    stored,
)
from .spectra import one_of, spectrum
from .values import ARRAYS, concrete, conversion, each

__all__ = [
    "ARRAYS",
    "LARGEST",
    "array",
    "at_least",
    "choice",
    "concrete",
    "conversion",
    "count",
    "differences",
    "dtype",
    "each",
    "even",
    "factorable",
    "finite",
    "flag",
    "floating",
    "floating_dtype",
    "function",
    "in_range",
    "instance",
    "key",
    "matrices",
    "names",
    "nonnegative_scalar",
    "nonnegatives",
    "numeric",
    "one_of",
    "path",
    "positive",
    "positive_scalar",
    "positives",
    "reals",
    "scalar",
    "shown",
    "spectrum",
    "stored",
]
