"""Input checks; an error message gives the name, the rule, the value and often a remedy."""

# ruff: noqa: F401 (what the rest of the package calls as checks.NAME)
from ..fields import shown, suggesting
from .arrays import (
    array,
    choice,
    concrete,
    differences,
    dtype,
    each,
    factorable,
    flag,
    floating,
    floating_dtype,
    function,
    instance,
    key,
    matrices,
    names,
    path,
)
from .numbers import (
    at_least,
    count,
    even,
    finite,
    in_range,
    increasing,
    nonnegative_scalar,
    nonnegatives,
    numeric,
    one_of,
    positive,
    positive_scalar,
    positives,
    reals,
    resolved,
    scalar,
    shapes,
    spectrum,
    stored,
)
from .ridges import one_ridge, ridges
from .rules import gates, obeys
