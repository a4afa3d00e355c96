"""Input checks; an error message gives the name, the rule, the value and often a remedy."""

from ..fields import cut as cut, shown as shown
from .arrays import (
    array as array,
    dtype as dtype,
    factorable as factorable,
    floating as floating,
    floating_dtype as floating_dtype,
    matrices as matrices,
)
from .numbers import (
    at_least as at_least,
    count as count,
    even as even,
    finite as finite,
    in_range as in_range,
    nonnegative_scalar as nonnegative_scalar,
    nonnegatives as nonnegatives,
    numeric as numeric,
    one_of as one_of,
    positive as positive,
    positive_scalar as positive_scalar,
    positives as positives,
    reals as reals,
    scalar as scalar,
    spectrum as spectrum,
    stored as stored,
)
from .values import (
    choice as choice,
    concrete as concrete,
    differences as differences,
    flag as flag,
    function as function,
    instance as instance,
    key as key,
    names as names,
)
