"""One in-context regression task."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from .._core import checks
from .._core.pytree import pytree_dataclass
from .._core.rounding import cast
from ._conversion import as_numpy


@pytree_dataclass
class Task:
    """One regression task: predict the outputs at the queries from the supports.

    The task has n supports, q queries, p features and r outputs. All arrays have the same floating
    dtype. Lists, NumPy arrays, pandas tables and PyTorch tensors are converted to JAX arrays, and
    their integers to floats. A batch of tasks is a `Task` with the same leading axes on every
    field.

    Args:
        x: inputs of the supports, [n, p].
        y: outputs of the supports, [n] or [n, r].
        x_query: inputs of the queries, [q, p].
        mask: bool array [n], False for a support that is only padding; default None, no padding.
        y_query: true outputs at the queries, [q] or [q, r]; default None, unknown. Models never
            read this field.

    Raises:
        ValueError: shapes do not fit, or a value of an unmasked support or a query is not finite
            or is outside of the range of JAX's default dtype, or the x of the supports have so much
            in common that their differences are lost in that dtype. Values are not checked inside
            JAX transformations, where they are unknown.

    >>> import numpy as np
    >>> task = Task(x=np.ones((5, 2)), y=np.zeros(5), x_query=np.ones((3, 2)))
    >>> task.num_supports, task.num_queries, task.num_features, task.num_outputs
    (5, 3, 2, 1)
    >>> Task(x=[[0], [1], [2]], y=[1.0, 3.0, 2.0], x_query=[[0.5]])
    Task(x=f32[3,1], y=f32[3], x_query=f32[1,1])
    """

    x: Any
    y: Any
    x_query: Any
    mask: Any = None
    y_query: Any = None

    def __post_init__(self):
        originals = {}
        for field in dataclasses.fields(self):
            value = as_numpy(field.name, getattr(self, field.name))
            if isinstance(value, np.ndarray) and value.dtype.kind in "bfiu":
                originals[field.name] = value
                # JAX has neither another byte order nor numbers of more than 8 bytes
                dtype = np.dtype(f"{value.dtype.kind}{min(value.dtype.itemsize, 8)}")
                with np.errstate(over="ignore", under="ignore"):  # check_task raises the error
                    value = value.astype(jax.dtypes.canonicalize_dtype(dtype))
                # jnp.asarray would compile a copy for every shape
                object.__setattr__(self, field.name, jax.device_put(value))
        check_task(self, originals)

    def replace(self, **changes: Any) -> Task:
        """Return a copy of the task with other values of some fields.

        Args:
            **changes: new values by field name. The new task is checked like any `Task`.
        """
        return dataclasses.replace(self, **changes)

    def astype(self, dtype: DTypeLike) -> Task:
        """Return a copy of the task with its numbers in another floating dtype.

        Args:
            dtype: floating dtype, not wider than the default float dtype of JAX.
        """
        return cast(self, dtype)

    @property
    def num_supports(self) -> int:
        """The number n of supports, including masked supports."""
        return self.x.shape[-2]

    @property
    def num_queries(self) -> int:
        """The number q of queries."""
        return self.x_query.shape[-2]

    @property
    def num_features(self) -> int:
        """The number p of features."""
        return self.x.shape[-1]

    @property
    def num_outputs(self) -> int:
        """The number r of outputs, which is 1 if y is [n]."""
        return self.y.shape[-1] if self.y.ndim == self.x.ndim else 1


def check_is_task(task: Any, name: str = "task") -> None:
    """Raise an error with the hint unless `task` is a `Task`."""
    if isinstance(task, Task):
        return
    hint = "write icl_krr.Task(x=..., y=..., x_query=...)"
    if isinstance(task, (list, tuple)) and any(isinstance(one, Task) for one in task):
        hint = "use icl_krr.tasks.batch, which also pads and masks shorter tasks"
    raise TypeError(f"{name} must be an icl_krr.Task, got {type(task).__name__}; {hint}")


def check_axes(task: Task, axes: int = 0, name: str = "task", hint: str = "") -> None:
    """Raise an error unless `task` is a valid `Task` with this number of leading axes."""
    check_is_task(task, name)
    if not vars(task).get("valid"):
        check_task(task)
    if task.x.ndim != 2 + axes:
        expected = "a batch of tasks, x [b, n, p]" if axes else "one task, x [n, p]"
        usual = "use predict for one task" if axes else "use predict_batch or jax.vmap for a batch"
        hint = hint or usual
        raise ValueError(f"{name} must be {expected}, got x of shape {list(task.x.shape)}; {hint}")


def support_mask(task: Task) -> Any:
    """Which supports are not masked, as booleans [n]."""
    return np.ones(task.num_supports, bool) if task.mask is None else task.mask


def outputs_of(task: Task) -> int:
    """The number r of outputs of a task, or of each task of a batch."""
    return task.y.size // (task.x.size // task.num_features)


def check_one_output(task: Task) -> None:
    check_is_task(task)
    if task.y.ndim != 1:
        raise ValueError(
            f"y must be [n], got shape {list(task.y.shape)}; "
            "select one output, and use jax.vmap for a batch"
        )


def check_plain(tasks: Task, name: str = "tasks") -> None:
    """Raise an error unless `tasks` is a batch with one output and without masks."""
    check_axes(tasks, 1, name)
    if tasks.y.ndim != 2 or tasks.mask is not None:
        raise ValueError(
            f"{name} must have y of shape [n] and no mask, got y of shape "
            f"{list(tasks.y.shape[1:])} and {'no' if tasks.mask is None else 'a'} mask"
        )


def check_task(task: Task, originals: Mapping[str, np.ndarray] | None = None) -> None:
    """Raise an error if the fields of a task do not fit together (see `Task`).

    `originals` are fields before their conversion to JAX's default precision.
    """
    originals = originals or {}
    for name in ("x", "y", "x_query"):
        checks.floating(name, getattr(task, name))
    if task.x.ndim < 2:
        hint = "; use x[:, None]" if task.x.ndim else ""
        raise ValueError(f"x must be [n, p], got shape {list(task.x.shape)}{hint}")
    batch, (n, p) = task.x.shape[:-2], task.x.shape[-2:]
    if n < 1 or p < 1:
        raise ValueError(
            f"x must have at least one support and one feature, got shape {list(task.x.shape)}"
        )
    if task.y.shape[:-1] != (*batch, n) and task.y.shape != (*batch, n):
        raise ValueError(
            f"y must be [n] or [n, r] with n = {n} to match x {list(task.x.shape)}, "
            f"got shape {list(task.y.shape)}"
        )
    if task.num_outputs < 1:
        raise ValueError(f"y must have at least one output, got shape {list(task.y.shape)}")
    queries = task.x_query.shape
    if len(queries) != task.x.ndim or queries[:-2] != batch or queries[-1] != p:
        hint = "; use x_query[None]" if queries == (p,) and not batch else ""
        raise ValueError(
            f"x_query must be [q, p] with p = {p} to match x {list(task.x.shape)}, "
            f"got shape {list(queries)}{hint}"
        )
    for name in ("y", "x_query"):
        if getattr(task, name).dtype != task.x.dtype:
            raise TypeError(
                f"{name} must have the dtype of x, got {getattr(task, name).dtype} "
                f"and {task.x.dtype}; cast one with astype"
            )
    if task.mask is not None:
        checks.array("mask", task.mask)
        if task.mask.dtype != jnp.bool_ or task.mask.shape != (*batch, n):
            raise ValueError(
                f"mask must be a bool array [n] with n = {n}, got {task.mask.dtype} of shape "
                f"{list(task.mask.shape)}"
            )
    if task.y_query is not None:
        checks.floating("y_query", task.y_query)
        outputs = task.y.shape[len(batch) + 1 :]
        if task.y_query.shape != (*queries[:-1], *outputs):
            raise ValueError(
                f"y_query must have shape {[*queries[:-1], *outputs]} to match x_query and y, "
                f"got shape {list(task.y_query.shape)}"
            )
    keep = checks.concrete(task.mask)
    for name in ("x", "y", "x_query", "y_query"):
        value = checks.concrete(originals.get(name, getattr(task, name)))
        if value is not None and name in ("x", "y") and task.mask is not None:
            if keep is None:
                continue
            value = np.where(keep.reshape(keep.shape + (1,) * (value.ndim - keep.ndim)), value, 0)
        if value is not None:
            checks.finite(name, value, "; remove the row or mask it")
            if name in originals:
                checks.in_range(name, value)
                if name == "x":
                    checks.resolved(name, value)
    # arrays of JAX do not change, so a task of them stays valid
    vars(task)["valid"] = all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(task))
