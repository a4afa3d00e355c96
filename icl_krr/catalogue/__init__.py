"""The catalogue: all kernels, solvers, sweep axes and task families by name, one entry each.

The tables are `KERNELS`, `SOLVERS`, `AXES`, `FAMILIES` and `SHIFTS` (changes of a family of tasks),
each {name: entry}. The command line, sweeps, identification, ablations, the conformance tests and
the README's table of solvers use these entries. The functions belong to other rooms and have the
names of the entries (`icl_krr.solvers.lookup`, `icl_krr.constructions.lookup` and
`icl_krr.kernels.kernel_class` return them), so the catalogue imports no JAX, and `icl-krr --help`
is fast. Names have underscores. Wherever you pass a name, dashes, capitals, and the label or
another short name of the entry are accepted, too: "cg" and "Conjugate-Gradient" mean
"conjugate_gradient", and "rbf" means "gaussian". `ATTENTIONS`, `METHODS` and `SITES` list the kinds
of attention, the optimisers of hyperparameters and the kinds of model parts that can be ablated.
`NONE`, `TASK_FAMILY` and `THIS_TASK` are the values of `SolverEntry.input_scope`.

**Add a solver.** A solver needs one short file and one entry. The file has a function with the mark
`icl_krr.solver` (the README has one); `icl_krr.run` runs it on arrays, and `icl_krr.compile` makes
a transformer of it. All commands, comparisons (see `compared`) and conformance tests then include
the solver:

>>> import icl_krr as ik
>>> from icl_krr.catalogue import SOLVERS, Box, SolverEntry, register
>>> @ik.solver
... def steepest_descent(K, y, *, ridge):
...     def step(alpha, r, prediction):
...         Kr = K @ r
...         Ar = Kr + ridge * r
...         eta = (r @ r) / (r @ Ar)
...         return dict(
...             alpha=alpha + eta * r, r=r - eta * Ar, prediction=prediction + eta * Kr
...         )
...     return dict(alpha=0, r=y, prediction=0), step
>>> register(
...     SolverEntry(
...         "steepest_descent",
...         "SD",  # the column in a confusion matrix; "sd" is also a short name
...         solver=steepest_descent,
...         states=("alpha", "r", "prediction"),  # slots that equal the solver's states
...         blocks={"linear": 3, "softmax": 4},  # blocks per step
...         sums=True,  # it takes inner products
...         fitted={"ridge": Box(-5, 0.5, 1)},  # parameters that `identify` fits, with their ranges
...     )
... )
>>> SOLVERS.pop("steepest_descent").call  # this example leaves the catalogue as it was
'steepest_descent(..., ridge=...)'

Your own package calls `register` when it is imported. Its `pyproject.toml` also needs an entry
point in the group `icl_krr` (`[project.entry-points.icl_krr]`, `mine = "my_package"`), so that the
command line imports the package. In this library the entry belongs in
`icl_krr/catalogue/_solvers.py`, without `solver=` (see `.github/CONTRIBUTING.md`).

**Add a kernel.** A kernel is one class. A subclass of `icl_krr.kernels.LogBilinear`, such as the
example `Tilted` there, implements one method, which returns two coefficients. Samplers, sketches,
solvers and constructions then accept the kernel.

The entry `register(KernelEntry("tilted", "positive", kernel=Tilted))` adds the kernel to the
choices of `--kernel` and to the kernels that `identify` tries. With `usual=False`, as in the
entries of the Matern and polynomial kernels, it is tried only if a user names it.

**Add an axis of sweeps.** An axis is a function of (line, value, task, config, key) that returns an
`icl_krr.experiments.Trial`: model, task and exact predictions. Above it stands
`icl_krr.experiments.along` with the check and the default values. Its entry is
`register(AxisEntry("noise", noise))`.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from .._core.messages import unknown_name
from ._axes import AXES
from ._entries import (
    NONE,
    TASK_FAMILY,
    THIS_TASK,
    AxisEntry,
    Box,
    FamilyEntry,
    KernelEntry,
    ShiftEntry,
    SolverEntry,
)
from ._solvers import SOLVERS
from ._tables import FAMILIES, KERNELS, SHIFTS

__all__ = ["ATTENTIONS", "AXES", "FAMILIES", "KERNELS", "METHODS", "NONE", "SHIFTS", "SITES"]
__all__ += ["SOLVERS", "TASK_FAMILY", "THIS_TASK", "AxisEntry", "Box", "FamilyEntry", "KernelEntry"]
__all__ += ["ShiftEntry", "SolverEntry", "candidate", "candidates", "compared", "find", "names"]
__all__ += ["register", "spelled", "taken"]

METHODS = ("adam", "lbfgs")
"""Optimisers that can fit hyperparameters."""

SITES = ("head", "unit", "slot", "role")
"""Kinds of model parts that an ablation can remove."""

ATTENTIONS = ("softmax", "linear")
"""Kinds of attention that a model can have."""

TABLES = {KernelEntry: KERNELS, SolverEntry: SOLVERS, AxisEntry: AXES, FamilyEntry: FAMILIES}


def register(entry: KernelEntry | SolverEntry | AxisEntry | FamilyEntry) -> None:
    """Add an entry to the table of its type.

    The `name` of the entry consists of letters, digits and underscores. A package with entries of
    its own calls this when it is imported, which its entry point of the group "icl_krr" causes.

    >>> register(KernelEntry("linear", "featured"))
    Traceback (most recent call last):
    ValueError: name must be new, but 'linear' is already in the catalogue
    """
    if type(entry) not in TABLES:
        rule = f"entry must be a KernelEntry, SolverEntry, AxisEntry or FamilyEntry, got {entry!r}"
        raise TypeError(rule)
    table: dict[str, Any] = TABLES[type(entry)]  # pyright: ignore[reportAssignmentType]
    if not entry.name.isidentifier():
        raise ValueError(
            "name must consist of letters, digits and underscores and not start with a digit, "
            f"got {entry.name!r}"
        )
    if entry.name in table:
        raise ValueError(f"name must be new, but {entry.name!r} is already in the catalogue")
    for short in getattr(entry, "short_names", ()):
        if spelled(short) in names():
            rule = f"short name must be new, but {short!r} already means {spelled(short)!r}"
            raise ValueError(rule)
    table[entry.name] = entry


def absent(room: str, name: str) -> AttributeError:
    """The error for a name that a module does not have; it has the call of a solver's entry."""
    entry = SOLVERS.get(spelled(name))
    hint = ""
    if entry is not None and entry.solver is None:
        hint = f"; write {entry.call}"
        if name == entry.function:
            hint = f"; list it in {room.replace('.', '/')}/__init__.pyi"
    message = f"module {room!r} has no attribute {name!r}{hint}"
    return AttributeError(message, name=name, obj=sys.modules[room])


def spelled(name: str) -> str:
    """Return a name as the tables spell it: in full, with underscores and without capitals.

    Args:
        name: name or short name of an entry; other text is returned with underscores for dashes.

    >>> spelled("gradient-descent"), spelled("CG")
    ('gradient_descent', 'conjugate_gradient')
    """
    if not isinstance(name, str):
        raise TypeError(f"name must be text, got {name!r}")
    plain = name.replace("-", "_")
    entries = (*SOLVERS.values(), *KERNELS.values())
    full = {short.lower(): entry.name for entry in entries for short in entry.short_names}
    full |= {name_in_full.lower(): name_in_full for name_in_full in names()}
    return full.get(plain.lower(), plain)


def find(what: str, table: Mapping[str, Any], name: str) -> Any:
    """Find an entry by its name or short name; the error lists all names.

    Args:
        what: word for an entry in the error message, such as "kernel".
        table: entries to search, {name: entry}.
        name: name or short name of the entry, with dashes or underscores.

    >>> find("kernel", KERNELS, "rbf").name
    'gaussian'
    """
    entry = table.get(spelled(name)) if isinstance(name, str) else None
    if entry is None:
        raise ValueError(unknown_name(what, name, table))
    return entry


def taken(solver: str, usual: bool = False) -> tuple[str, ...]:
    """Return the names of the kernels that a solver accepts.

    Args:
        solver: name of an entry of `SOLVERS`.
        usual: True leaves out kernels that are tried only if a user names them.

    >>> taken("richardson", usual=True)
    ('exponential', 'gaussian')
    """
    kind = find("solver", SOLVERS, solver).kernels
    return tuple(
        name
        for name, entry in KERNELS.items()
        if (entry.usual or not usual)
        and (kind in ("any", entry.kind) or (kind == "bounded" and entry.bounded))
    )


def candidates() -> tuple[str, ...]:
    """Return the names of the solvers that `identify` can fit to a model.

    >>> "conjugate_gradient" in candidates()
    True
    """
    return tuple(name for name, entry in SOLVERS.items() if entry.fitted is not None)


def compared(kernel: str | None = None) -> tuple[str, ...]:
    """Return the names of the solvers that a comparison has by default.

    These are the `candidates` that take steps and whose tokens see all supports, without the
    variants of another solver.

    Args:
        kernel: name of a kernel that the solvers must accept; default None: any.

    >>> compared("linear")
    ('gradient_descent', 'heavy_ball', 'chebyshev', 'conjugate_gradient', 'newton_schulz')
    """
    fit = (SOLVERS[name] for name in candidates() if kernel in (None, *taken(name)))
    return tuple(e.name for e in fit if e.iterates and not e.causal and not e.variant_of)


def candidate(name: str) -> SolverEntry:
    """Return the entry of a solver that `identify` can fit to a model, one of the `candidates`.

    Args:
        name: as in `find`.

    >>> candidate("gradient-descent").label
    'GD'
    """
    return find("candidate", {name: SOLVERS[name] for name in candidates()}, name)


def names() -> frozenset[str]:
    """Return the names of all entries of all tables.

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
