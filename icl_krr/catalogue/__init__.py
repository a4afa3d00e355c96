"""The catalogue: all kernels, solvers, sweep axes and task families by name, one row each.

The tables are `KERNELS`, `SOLVERS`, `AXES`, `FAMILIES` and `BATTERIES` (changes of a family of
tasks), each {name: row}. A row gives its functions as "module:function". These functions are
imported only when they are used, so the catalogue does not import JAX. The command line, sweeps,
identification, ablations, the conformance tests and the README's table of solvers use these rows.
Names have underscores. Wherever you give a name, dashes, capitals, and the label or another short
name of the row are accepted, too: "cg" and "Conjugate-Gradient" mean "conjugate_gradient", and
"rbf" means "gaussian". `ATTENTIONS`, `METHODS` and `SITES` list the kinds of attention, the
optimisers of hyperparameters and the kinds of model parts that can be ablated.

**Add a solver.** A solver needs one short file and one row. The file has a function with the mark
`icl_krr.solver` (the README has one); `icl_krr.run` is its oracle, and `icl_krr.compile` its
construction. All commands, comparisons (see `compared`) and conformance tests then include the
solver:

>>> from icl_krr.catalogue import SOLVERS, Box, Solver, register
>>> register(
...     Solver(
...         "steepest_descent",
...         "SD",  # the column in a confusion matrix; "sd" is also a short name
...         oracle="my_package.steepest:steepest_descent",
...         states=("alpha", "r", "prediction"),  # slots that are compared with the oracle
...         blocks={"linear": 3, "softmax": 4},  # blocks per step
...         sums=True,  # it takes inner products
...         fitted={"ridge": Box(-5, 0.5, 1)},  # parameters that `identify` fits, with their ranges
...     )
... )
>>> SOLVERS.pop("steepest_descent").call  # this example leaves the catalogue as it was
'steepest_descent(..., ridge=...)'

In this library the row belongs in `icl_krr/catalogue/_solvers.py`, and `tests/references.py` needs
a textbook formula of the solver, with which a test compares all iterates. Your own package calls
`register` when it is imported. Its `pyproject.toml` also needs an entry point in the group
`icl_krr` (`[project.entry-points.icl_krr]`, `mine = "my_package"`), so that the command line
imports the package.

**Add a kernel.** A kernel is one class. A subclass of `icl_krr.kernels.LogBilinear`, such as the
example `Tilted` there, implements one method, which returns two coefficients. Samplers, sketches,
solvers and constructions then accept the kernel.

The row `register(Kernel("tilted", "my_package:Tilted", "positive"))` adds the kernel to the choices
of `--kernel` and to the kernels that `identify` tries. With `usual=False`, as in the rows of the
Matern and polynomial kernels, it is tried only if a user names it.

**Add an axis of sweeps.** An axis is a function of (line, value, task, config, key) that returns an
`icl_krr.experiments._sweep.setting.Setting`: the model, its task and the exact predictions. Above
it stands `icl_krr.experiments._sweep.axis.along` with the check and the default values. Its row is
`register(Axis("noise", "my_package:noise"))`, before the file imports these.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from .._core.messages import unknown_name
from ._axes import AXES
from ._rows import Axis, Battery, Box, Family, Kernel, Solver
from ._solvers import SOLVERS
from ._tables import BATTERIES, FAMILIES, KERNELS

__all__ = [
    "ATTENTIONS",
    "AXES",
    "BATTERIES",
    "FAMILIES",
    "KERNELS",
    "METHODS",
    "SITES",
    "SOLVERS",
    "Axis",
    "Battery",
    "Box",
    "Family",
    "Kernel",
    "Solver",
    "candidate",
    "candidates",
    "compared",
    "find",
    "kernel_class",
    "load",
    "make_kernel",
    "name_of",
    "names",
    "register",
    "spelled",
    "taken",
]

METHODS = ("adam", "lbfgs")
"""Optimisers that can fit hyperparameters."""

SITES = ("head", "unit", "slot", "role")
"""Kinds of model parts that an ablation can remove."""

ATTENTIONS = ("softmax", "linear")
"""Kinds of attention that a model can have."""

TABLES = {Kernel: KERNELS, Solver: SOLVERS, Axis: AXES, Family: FAMILIES}


def register(row: Kernel | Solver | Axis | Family) -> None:
    """Add a row to the table of its type.

    The `name` of the row consists of letters, digits and underscores. A package with rows of its
    own calls this when it is imported, which its entry point of the group "icl_krr" causes.

    >>> register(Kernel("linear", "icl_krr.kernels:Linear", "featured"))
    Traceback (most recent call last):
    ValueError: name must be new, but 'linear' is already in the catalogue
    """
    if type(row) not in TABLES:
        raise TypeError(f"row must be a Kernel, Solver, Axis or Family, got {row!r}")
    table: dict[str, Any] = TABLES[type(row)]  # pyright: ignore[reportAssignmentType]
    if not row.name.isidentifier():
        raise ValueError(
            "name must consist of letters, digits and underscores and not start with a digit, "
            f"got {row.name!r}"
        )
    if row.name in table:
        raise ValueError(f"name must be new, but {row.name!r} is already in the catalogue")
    for short in getattr(row, "short_names", ()):
        if spelled(short) in names():
            raise ValueError(
                f"short name must be new, but {short!r} already means {spelled(short)!r}"
            )
    table[row.name] = row


def load(path: str) -> Any:
    """Import and return an object from its path "module:object", which the rows also use.

    >>> load("math:pi") > 3
    True
    """
    check_text("path", path)
    module, _, name = path.rpartition(":")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"path must be an importable 'module:object', got {path!r}: {error}"
        ) from error


def absent(room: str, name: str) -> AttributeError:
    """The error for a name that a module does not have; it has the call of a solver's row."""
    row = SOLVERS.get(spelled(name))
    hint = f"; write {row.call}" if row and f"{room}:" in row.construction + row.oracle else ""
    words = f"module {room!r} has no attribute {name!r}{hint}"
    return AttributeError(words, name=name, obj=sys.modules[room])


def check_text(name: str, value: Any) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be text, got {value!r}")


def spelled(name: str) -> str:
    """Return a name as the tables spell it: in full, with underscores and without capitals.

    Args:
        name: name or short name of a row; other text is returned with underscores for dashes.

    >>> spelled("gradient-descent"), spelled("CG")
    ('gradient_descent', 'conjugate_gradient')
    """
    check_text("name", name)
    plain = name.replace("-", "_")
    rows = (*SOLVERS.values(), *KERNELS.values())
    full = {short.lower(): row.name for row in rows for short in row.short_names}
    full |= {known.lower(): known for known in names()}
    return full.get(plain.lower(), plain)


def find(what: str, table: Mapping[str, Any], name: str) -> Any:
    """Find a row by its name or short name; the error lists all names.

    Args:
        what: word for a row in the error message, such as "kernel".
        table: rows to search, {name: row}.
        name: name or short name of the row, with dashes or underscores.

    >>> find("kernel", KERNELS, "rbf").name
    'gaussian'
    """
    row = table.get(spelled(name)) if isinstance(name, str) else None
    if row is None:
        raise ValueError(unknown_name(what, name, table))
    return row


def kernel_class(name: str) -> Any:
    """Return the class of a kernel.

    Args:
        name: as in `find`.

    >>> kernel_class("gaussian").bandwidth
    'lengthscale'
    """
    return load(find("kernel", KERNELS, name).made_by)


def make_kernel(name: str, values: Mapping[str, Any]) -> Any:
    """Make a kernel with the bandwidth from a dictionary of values.

    Args:
        name: as in `find`.
        values: values {name: value}, of which only the bandwidth, such as "temperature", is used;
            without it, the kernel has its default bandwidth.

    >>> make_kernel("exponential", {"temperature": 2.0}).temperature
    2.0
    """
    made_by = kernel_class(name)
    if not isinstance(values, Mapping):
        raise TypeError(f"values must be {{name: value}}, got {values!r}")
    value = values.get(made_by.bandwidth)
    return made_by() if value is None else made_by.of_bandwidth(value)


def name_of(kernel: Any) -> str:
    """Return the name of a kernel's row, or the name of its class if it has no row.

    >>> name_of(kernel_class("linear")())
    'linear'
    """
    names = [name for name in KERNELS if kernel_class(name) is type(kernel)]
    return names[0] if names else type(kernel).__name__


def taken(solver: str, usual: bool = False) -> tuple[str, ...]:
    """Return the names of the kernels that a solver accepts.

    Args:
        solver: name of a row of `SOLVERS`.
        usual: True leaves out kernels that are tried only if a user names them.

    >>> taken("richardson", usual=True)
    ('exponential', 'gaussian')
    """
    kind = find("solver", SOLVERS, solver).kernels
    return tuple(
        name
        for name, row in KERNELS.items()
        if (row.usual or not usual)
        and (kind in ("any", row.kind) or (kind == "bounded" and row.bounded))
    )


def candidates() -> tuple[str, ...]:
    """Return the names of the solvers that `identify` can fit to a model.

    >>> "conjugate_gradient" in candidates()
    True
    """
    return tuple(name for name, row in SOLVERS.items() if row.fitted is not None)


def compared(kernel: str | None = None) -> tuple[str, ...]:
    """Return the names of the solvers that a comparison has by default.

    These are the `candidates` that take steps and whose tokens see all supports, without the
    variants of another solver.

    Args:
        kernel: name of a kernel that the solvers must accept; default None: any.

    >>> compared("linear")
    ('gradient_descent', 'heavy_ball', 'chebyshev', 'conjugate_gradient', 'newton_schulz')
    """
    rows = ((name, SOLVERS[name]) for name in candidates() if kernel in (None, *taken(name)))
    return tuple(n for n, row in rows if row.iterates and not row.causal and not row.variant_of)


def candidate(name: str) -> Solver:
    """Return the row of a solver that `identify` can fit to a model, one of the `candidates`.

    Args:
        name: as in `find`.

    >>> candidate("gradient-descent").label
    'GD'
    """
    return find("candidate", {name: SOLVERS[name] for name in candidates()}, name)


def names() -> frozenset[str]:
    """Return the names of all rows of all tables.

    >>> {"gaussian", "chebyshev", "depth", "sinusoids"} <= names()
    True
    """
    return frozenset({*KERNELS, *SOLVERS, *AXES, *FAMILIES})


for point in entry_points(group="icl_krr"):
    try:
        point.load()
    except Exception as error:
        reason = f"skipped the entry point {point.value} of the group icl_krr: {error!r}"
        warnings.warn(reason, RuntimeWarning, stacklevel=1)
