"""What the delta rules of features share: the recurrence of their state, token by token."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .. import step_sizes
from ..kernels import Kernel
from ..numerics import matmul
from ..tasks import Task
from ..tasks.task import check_axes
from .prefix import PrefixOptions, in_units_of_y, learned, of_tokens, sees, tokens_of
from .results import CausalTrajectory, recurrent


class Token(NamedTuple):
    """What a support brings to the recurrence.

    Attributes:
        phi: features [m].
        y: outputs [r].
        gate: gates, [m] or [1] if all features have the same.
        strength: write strength; 0 if the support does not learn yet.
        learns: whether the support learns, or is one of those after the number of the iterate.
        own: numbers of this token that only some rules have, by name.
    """

    phi: Float[Array, " m"]
    y: Float[Array, " r"]
    gate: Float[Array, " c"]
    strength: Float[Array, ""]
    learns: Bool[Array, ""]
    own: dict[str, jax.Array]


Rule = Callable[[Any, tuple, Token], tuple[tuple, jax.Array]]
"""(numbers, states, token) -> (new states, coefficients [r]). The first state is S [m, r], of which
the gates of the token have been taken already."""


def follow(
    kernel: Kernel,
    task: Task,
    rule: Rule,
    start: Callable[[Any, int, int, Any], tuple],
    numbers: Any,
    steps: int | None,
    options: PrefixOptions,
    own: Mapping[str, Any] = MappingProxyType({}),
    scales_with_y: bool = True,
) -> CausalTrajectory:
    """Run a rule on a task, and return all its iterates.

    Args:
        rule: the recurrence, a function of a module, because a program is compiled for it.
        start: function (numbers, m, r, dtype) -> the states at the start; of a module, too.
        numbers: what the rule needs to know, a pytree.
        own: numbers or vectors [p] by name, of which each token has its own.
        scales_with_y: whether c y has c times the predictions of y, so that y may have any size.
    """
    check_axes(task)
    steps = task.num_supports if steps is None else steps
    step_sizes.no_window(options.get("window"))
    given = sees(kernel, task, steps, options, gates=True)
    return run(task, (kernel, given, numbers, dict(own)), rule, start, steps, scales_with_y)


@partial(jax.jit, static_argnames=("rule", "start", "steps", "scales_with_y"))
def run(task, given, rule, start, steps, scales_with_y) -> CausalTrajectory:
    iterates = partial(iterate, rule, start, steps)
    return recurrent(task, *in_units_of_y(task, iterates, 1, *given, scales_with_y=scales_with_y))


def iterate(rule, start, steps, task, kernel, given, numbers, own):
    tokens, n = tokens_of(task, given), task.num_supports
    kept, dtype = tokens.kept, tokens.x.dtype
    phi = jnp.where(kept[:, None], kernel.feature_map(tokens.x), 0)
    gates = jnp.exp(tokens.log_gate.reshape(len(phi), -1))
    each = {name: of_tokens(name, tokens.x, kept, value, 0.0)[:n] for name, value in own.items()}
    check_width("log_gate", tokens.log_gate, phi.shape[1])
    check_width("erase", each.get("erase", phi), phi.shape[1])
    numbers = jax.tree.map(lambda value: jnp.asarray(value, dtype), numbers)
    states = start(numbers, phi.shape[1], tokens.y.shape[1], dtype)

    def learn(states, each):
        token, real = each
        before = (token.gate[:, None] * states[0], *states[1:])
        after, alpha = rule(numbers, before, token)
        read = before[0] if given.prefix == "exclusive" else after[0]
        f = jnp.where(real, matmul(token.phi[None], read)[0], 0)
        states = jax.tree.map(lambda new, old: jnp.where(real, new, old), after, states)
        return states, (f, jnp.where(real, alpha, 0))

    def until(learns):
        strengths = jnp.where(learns, tokens.strength, 0)
        all_tokens = Token(phi[:n], tokens.y, gates[:n], strengths, learns, each)
        last, (along, alpha) = jax.lax.scan(learn, states, (all_tokens, kept[:n]))
        return alpha, jnp.concatenate([along, matmul(gates[n:] * phi[n:], last[0])])

    return jax.vmap(until)(learned(tokens, steps))


def check_width(name: str, values: jax.Array, width: int) -> None:
    if values.ndim == 2 and values.shape[1] != width:
        raise ValueError(
            f"{name} must be a matrix [m, p] with m = {width} features of the kernel, got "
            f"{values.shape[1]} rows"
        )


def nothing(width: int, outputs: int, dtype: Any) -> tuple[jax.Array]:
    """The state S = 0."""
    return (jnp.zeros((width, outputs), dtype),)


def only_S(numbers: Any, *sizes: Any) -> tuple[jax.Array]:
    """The start of a rule whose only state is S."""
    return nothing(*sizes)


def error(states: tuple, token: Token) -> Float[Array, " r"]:
    """y - S phi, before the write."""
    return token.y - matmul(token.phi[None], states[0])[0]


def outer(w: Float[Array, " m"], alpha: Float[Array, " r"]) -> Float[Array, "m r"]:
    return w[:, None] * alpha[None]
