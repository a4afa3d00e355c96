"""The largest operands of the products and quotients of a model: bounds for ReLU tables."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import checks
from ..tasks import Task
from ..tasks.task import check_axes
from .run import run_with_cache
from .tying import untie
from .weights import Transformer, Unit, check_model


def operand_bounds(
    model: Transformer, task: Task, *, margin: float = 1.25
) -> dict[str, Float[Array, ""]]:
    """Find the largest operands of the gated units: a `bound` for `icl_krr.ReLU`.

    Run a construction with exact arithmetic, then build the same construction with
    `arithmetic=icl_krr.ReLU(width, bound=operand_bounds(model, task))`. For a product, the bound is
    the larger magnitude of its two operands. For a quotient, the bound also covers the reciprocal
    of the divisor, wherever numerator and divisor are not 0.

    Args:
        model: a construction with exact arithmetic.
        task: the task on which to measure.
        margin: factor on every bound, for tasks with larger operands than this task; 1.25 by
            default.

    Returns:
        {slot: scalar}, one bound > 0 for each slot that gated units write to. The bound is 1 if all
        operands are 0.

    Raises:
        ValueError: the task does not fit the model.
        TypeError, MemoryError: as `icl_krr.predict`.

    >>> import icl_krr as ik
    >>> task = ik.Task(x=[[1.0]], y=[3.0], x_query=[[1.0]])
    >>> model = ik.constructions.richardson(ik.Gaussian(), num_features=1, ridge=0.5, steps=1)
    >>> bounds = operand_bounds(model, task, margin=1.0)
    >>> {slot: float(bound) for slot, bound in bounds.items()}["half_square"]
    1.0
    """
    checks.positive_scalar("margin", margin)
    check_model(model)
    check_axes(task)
    if task.num_outputs != model.spec.num_outputs:
        each = [
            operand_bounds(model, task.replace(y=y, y_query=None), margin=margin) for y in task.y.T
        ]
        return jax.tree.map(lambda *bounds: jnp.max(jnp.stack(bounds)), *each)
    _, cache = run_with_cache(model, task, names=(), points=("resid_mid",))
    blocks = untie(model).blocks
    bounds: dict[str, jax.Array] = {}
    for i, (block, points) in enumerate(zip(blocks, cache.points, strict=True)):
        for unit in block.mlp:
            if unit.up is None or unit.gate is None:
                continue
            measure = lambda unit, points: largest_operand(unit, points["resid_mid"])  # noqa: E731
            if i >= len(model.weights.prologue):
                measure = jax.vmap(measure)
            size = jnp.max(measure(unit, points))
            bounds[unit.to] = jnp.maximum(bounds.get(unit.to, jnp.zeros_like(size)), size)
    return {slot: jnp.where(bound > 0, margin * bound, 1) for slot, bound in bounds.items()}


@jax.jit
def largest_operand(unit: Unit, stream: dict[str, jax.Array]) -> jax.Array:
    assert unit.up is not None
    assert unit.gate is not None
    up, gate = jnp.abs(unit.up(stream)), jnp.abs(unit.gate(stream))
    sizes = [jnp.max(up), jnp.max(gate)]
    if unit.activation != "identity":
        sizes.append(jnp.max(jnp.where((gate > 0) & (up > 0), 1 / jnp.where(gate > 0, gate, 1), 0)))
    return jnp.max(jnp.stack(sizes))
