"""What the causal solvers share: gates, strengths, and the sums over the prefix of each token."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypedDict

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Bool, Float

from .. import capacity, checks
from ..kernels import Kernel, check_kernel
from ..numerics import matmul
from ..tasks import Task
from ..tasks.task import check_axes, kept
from ..units import in_units, unit_of
from .algebra import seen

PREFIXES = ("exclusive", "inclusive")


class PrefixOptions(TypedDict, total=False):
    """What a token sees of the supports before it: see `CausalOptions`."""

    prefix: str
    log_gate: Any
    strength: Any
    window: int | None


@struct.dataclass
class Sees:
    """Those options, of which a program is compiled for prefix and window."""

    prefix: str = struct.field(pytree_node=False, default="exclusive")
    log_gate: Any = None
    strength: Any = None
    window: int | None = struct.field(pytree_node=False, default=None)


class Tokens(NamedTuple):
    """The supports, then the queries.

    Attributes:
        x: points [n + q, p]; zero at masked supports.
        y: outputs [n, r]; zero at masked supports.
        kept: whether the token is not a masked support.
        log_gate: log gate [n + q], or that of each of m features [n + q, m].
        strength: write strength of the supports [n]; zero at masked supports.
    """

    x: Float[Array, "T p"]
    y: Float[Array, "n r"]
    kept: Bool[Array, " T"]
    log_gate: Float[Array, "T ..."]
    strength: Float[Array, " n"]


def sees(
    kernel: Kernel, task: Task, steps: int, options: PrefixOptions, gates: bool = False
) -> Sees:
    """The options of a causal solver, checked.

    Features with different `gates` are for delta rules of features only.
    """
    check_kernel(kernel)
    check_axes(task)
    given = Sees(**options)
    checks.gates(given.log_gate, given.strength)
    if np.ndim(given.log_gate) == 2 and not gates:
        raise ValueError(
            "log_gate must be a number or a vector [p] except for delta rules of features, which "
            f"can have different gates, got shape {list(np.shape(given.log_gate))}"
        )
    checks.choice("prefix", given.prefix, PREFIXES)
    checks.count("steps", steps)
    if given.window is not None:
        checks.count("window", given.window)
    states = num_features(kernel, task) if gates else task.num_supports + task.num_queries
    numbers = 3 * (steps + 1) * states * task.num_outputs
    capacity.check("causal regression", numbers, task.x, "use fewer steps or supports")
    return given


def num_features(kernel: Kernel, task: Task) -> int:
    """The number m of features of the kernel."""
    check_kernel(kernel)
    check_axes(task)
    return jax.eval_shape(kernel.feature_map, task.x).shape[1]


def tokens_of(task: Task, given: Sees) -> Tokens:
    x, y = seen(task)
    points = jnp.concatenate([x, task.x_query])
    keep = jnp.concatenate([kept(task), jnp.ones(task.num_queries, bool)])
    gates = of_tokens("log_gate", points, keep, given.log_gate, 0)
    strengths = of_tokens("strength", points, keep, given.strength, 1)
    return Tokens(points, y, keep, gates, strengths[: task.num_supports])


def of_tokens(
    name: str, points: Any, keep: Any, value: Any, default: float
) -> Float[Array, "T ..."]:
    """A number, <w, x> for a vector w or W x for a matrix W, at all tokens; 0 if masked."""
    value = jnp.asarray(default if value is None else value, points.dtype)
    axes = 2 if name in ("log_gate", "erase") else 1
    if value.ndim > axes or (value.ndim and value.shape[-1] != points.shape[1]):
        raise ValueError(
            f"{name} must be a number or a vector [p] with p = {points.shape[1]}, the width of "
            f"x, got shape {list(value.shape)}"
        )
    numbers = matmul(points, jnp.atleast_2d(value).T) if value.ndim else value[None, None]
    numbers = jnp.where(keep[:, None], numbers, 0)
    return numbers if value.ndim == 2 else numbers[:, 0]


def decays(tokens: Tokens, given: Sees) -> Float[Array, "T n"]:
    """exp(G_i - G_j) for the supports j that token i sees, else 0."""
    n = len(tokens.y)
    supports = jnp.cumsum(tokens.log_gate[:n])
    last = supports[-1:]
    totals = jnp.concatenate([supports, last + tokens.log_gate[n:]])
    order = jnp.arange(len(totals))[:, None] - jnp.arange(n)[None]
    seen = (order >= 0) if given.prefix == "inclusive" else (order > 0)
    seen &= tokens.kept[:n][None]
    if given.window is not None:
        so_far = jnp.cumsum(seen, axis=1)
        seen &= so_far > so_far[:, -1:] - given.window
    return jnp.where(seen, jnp.exp(jnp.where(seen, totals[:, None] - supports[None], 0)), 0)


def learned(tokens: Tokens, steps: int) -> Bool[Array, "L n"]:
    """Which supports each iterate of a rule has learned from: t that are not masked, in order."""
    number = jnp.cumsum(tokens.kept[: len(tokens.y)])
    return number[None] <= jnp.arange(steps + 1)[:, None]


def in_units_of_y(
    task: Task, run: Callable, degrees: Any, *given: Any, scales_with_y: bool = True
) -> Any:
    """The results of a causal solver, `run` of a task with y [n, r] and of other arrays.

    `run` closes over no traced arrays. Its results have the given degrees in y, or else y keeps its
    unit.
    """
    y = seen(task)[1]
    if not scales_with_y:
        return run(task.replace(y=y, y_query=None), *given)
    at = lambda y, task, *given: run(task.replace(y=y), *given)  # noqa: E731
    task = task.replace(y=y, y_query=None)
    return in_units(unit_of(y, axis=0), at, degrees, y, task, *given)


def fits(phi: Float[Array, "T m"], w: Float[Array, "L T m r"]) -> Float[Array, "L T r"]:
    """The predictions of all iterates of the coefficients."""
    return jnp.sum(phi[None, :, :, None] * w, axis=2)


def prefix_systems(
    kernel: Kernel, tokens: Tokens, given: Sees
) -> tuple[Float[Array, "T m"], Float[Array, "T m m"], Float[Array, "T m r"]]:
    """The features phi_i, C_i = sum_j w_ij phi_j phi_j^T and b_i = sum_j w_ij phi_j y_j.

    The sums of a window are taken anew for every token; others follow a recurrence.
    """
    n = len(tokens.y)
    phi = jnp.where(tokens.kept[:, None], kernel.feature_map(tokens.x), 0)
    if given.window is not None:
        fade, w = decays(tokens, given), min(given.window, n)
        last = jax.lax.top_k(jnp.where(fade > 0, jnp.arange(n)[None], -1), w)[0]
        weights = jnp.take_along_axis(fade * tokens.strength[None], last, axis=1)
        keys, values = (jnp.where(last[..., None] < 0, 0, part[last]) for part in (phi, tokens.y))
        sums = partial(jnp.einsum, "tw,twm,twk->tmk", weights, keys, precision="highest")
        return phi, sums(keys), jnp.where(tokens.kept[:, None, None], sums(values), 0)
    gates = jnp.exp(tokens.log_gate)

    def step(state, token):
        gate, beta, phi, y = token
        decayed = [gate * part for part in state]
        written = [beta * jnp.outer(phi, phi), beta * jnp.outer(phi, y)]
        state = [old + new for old, new in zip(decayed, written, strict=True)]
        return state, state if given.prefix == "inclusive" else decayed

    width, outputs = phi.shape[1], tokens.y.shape[1]
    empty = [jnp.zeros((width, size), phi.dtype) for size in (width, outputs)]
    each = gates[:n], tokens.strength, phi[:n], tokens.y
    state, along = jax.lax.scan(step, empty, each)
    C, b = (
        jnp.concatenate([path, gates[n:, None, None] * last[None]])
        for path, last in zip(along, state, strict=True)
    )
    return phi, C, jnp.where(tokens.kept[:, None, None], b, 0)
