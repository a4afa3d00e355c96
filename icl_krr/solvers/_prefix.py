"""Shared code of the causal solvers: gates, strengths and the causal mask."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float

from .. import Task
from .._core import causal, checks, memory_limit
from .._core.causal import PrefixOptions
from .._core.numerics import matmul
from .._core.rescaling import power_of_two_scale, rescaled
from ..kernels import Kernel
from ..kernels._kernel import check_kernel
from ..tasks._task import check_axes, support_mask
from ._algebra import masked_arrays


@struct.dataclass
class PrefixSpec:
    """The options of a causal solver; each prefix and window compiles a program."""

    prefix: str = struct.field(pytree_node=False, default="exclusive")
    log_gate: Any = None
    strength: Any = None
    window: int | None = struct.field(pytree_node=False, default=None)


class Tokens(NamedTuple):
    """The supports, then the queries; all but `mask` is 0 at masked supports."""

    x: Float[Array, "T p"]
    y: Float[Array, "n r"]
    mask: Bool[Array, " T"]  # whether the token is not a masked support
    log_gate: Float[Array, "T ..."]  # or that of each of m features, [T, m]
    strength: Float[Array, " n"]


def prefix_spec(
    kernel: Kernel, task: Task, steps: int, options: PrefixOptions, of_features: bool = False
) -> PrefixSpec:
    """Check and return the options of a causal solver, with `of_features` those of a state S."""
    check_kernel(kernel)
    check_axes(task)
    spec = PrefixSpec(**options)
    causal.check_prefix(**options)
    m = num_features(kernel, task) if of_features else None
    causal.check_token_parameter("log_gate", spec.log_gate, task.num_features, m)
    causal.check_token_parameter("strength", spec.strength, task.num_features)
    checks.count("steps", steps)
    states = task.num_supports + task.num_queries if m is None else m
    numbers = 3 * (steps + 1) * states * task.num_outputs
    memory_limit.check("causal regression", numbers, task.x, "use fewer steps or supports")
    return spec


def num_features(kernel: Kernel, task: Task) -> int:
    """The number m of features of the kernel."""
    check_kernel(kernel)
    check_axes(task)
    return jax.eval_shape(kernel.feature_map, task.x).shape[1]


def make_tokens(task: Task, spec: PrefixSpec) -> Tokens:
    x, y = masked_arrays(task)
    points = jnp.concatenate([x, task.x_query])
    keep = jnp.concatenate([support_mask(task), jnp.ones(task.num_queries, bool)])
    gates = per_token(points, keep, spec.log_gate, 0)
    strengths = per_token(points, keep, spec.strength, 1)
    return Tokens(points, y, keep, gates, strengths[: task.num_supports])


def per_token(points: Any, keep: Any, value: Any, default: float = 0) -> Float[Array, "T ..."]:
    """A number, <w, x> for a vector w or W x for a matrix W, at all tokens; 0 if masked."""
    value = jnp.asarray(default if value is None else value, points.dtype)
    numbers = matmul(points, jnp.atleast_2d(value).T) if value.ndim else value[None, None]
    numbers = jnp.where(keep[:, None], numbers, 0)
    return numbers if value.ndim == 2 else numbers[:, 0]


def decays(tokens: Tokens, spec: PrefixSpec) -> Float[Array, "T n"]:
    """exp(G_i - G_j) for the supports j that token i attends to, else 0."""
    n = len(tokens.y)
    supports = jnp.cumsum(tokens.log_gate[:n])
    totals = jnp.concatenate([supports, supports[-1:] + tokens.log_gate[n:]])
    order = jnp.arange(len(totals))[:, None] - jnp.arange(n)[None]
    visible = (order >= 0) if spec.prefix == "inclusive" else (order > 0)
    visible &= tokens.mask[:n][None]
    if spec.window is not None:
        count = jnp.cumsum(visible, axis=1)
        visible &= count > count[:, -1:] - spec.window
    return jnp.where(visible, jnp.exp(jnp.where(visible, totals[:, None] - supports[None], 0)), 0)


@partial(jax.jit, static_argnames=("iterates", "static", "result", "degrees"))
def solve(task: Task, iterates: Callable, static: tuple, result: Callable, degrees, *arrays) -> Any:
    """Return `result` of the iterates of a task, whose y has the shape [n, r] and no masked values.

    Args:
        iterates: function (*static, task, *arrays) -> tuple of arrays. A program is compiled for
            it and for `result`, so both must be functions of a module.
        degrees: degrees of homogeneity of the iterates in y, see `rescaled`; None to keep the
            units of y.
    """
    y = masked_arrays(task)[1]
    task_of_arrays = task.replace(y=y, y_query=None)

    def run(y, task, *arrays):
        return iterates(*static, task.replace(y=y), *arrays)

    if degrees is None:
        return result(task, *run(y, task_of_arrays, *arrays))
    scale = power_of_two_scale(y, axis=0)
    return result(task, *rescaled(scale, run, degrees, y, task_of_arrays, *arrays))
