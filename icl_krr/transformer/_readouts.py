"""What a run tells besides its prediction: further readouts, and the largest operands."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array

from .._core import checks
from ..tasks import Task
from ..tasks._task import check_axes
from ..uncertainty import Predictive
from ._hook_points import Request
from ._predict import run_with_cache
from ._run_plan import prepare_run
from ._tying import untie
from ._weights import Transformer, Unit, check_model


def readouts(
    model: Transformer, task: Task, *, along: bool = False, mesh: Mesh | None = None
) -> dict[str, Array]:
    """Compute the prediction and all further readouts of a model.

    The result is {"prediction": as of `predict`, name: [q, width]} with one entry for each name in
    `model.weights.readouts`, such as a variance. With `along`, the first axis is n + q, and the
    values at masked supports mean nothing: a variance can be 0 there. If a model with one output
    takes a task with r outputs, these are the last axis of each array.

    Args:
        along: whether to read out at every support, too, as `predict_along` does.

    >>> import numpy as np
    >>> import icl_krr as ik
    >>> model = ik.constructions.delta_rule(ik.Linear(), num_features=1, step_size=0.5)
    >>> state = ik.Read({"prediction": np.full((), 2.0)}, 1)
    >>> model = model.replace(weights=model.weights.replace(readouts={"twice": state}))
    >>> task = ik.Task(x=[[1.0]], y=[3.0], x_query=[[1.0]])
    >>> found = readouts(model, task)
    >>> found["prediction"].tolist(), found["twice"].tolist()
    ([1.5], [[3.0]])
    """
    checks.flag("along", along)
    plan = prepare_run(model, task, Request(along=along, answer=as_they_are), mesh=mesh)
    return plan.program(model, plan.task, **plan.options)[0]


def predictive(
    model: Transformer, task: Task, *, along: bool = False, mesh: Mesh | None = None
) -> Predictive:
    r"""Compute the predictive distribution of a model at the queries of a task.

    The distribution is that of an observed output, with its noise. Its parts are readouts of the
    model (see `readouts`), by these names:

    - `variances` [G]: variances of G Gaussians. `means` [G r] are their means, all outputs of the
      first Gaussian first, and `weights` [G] are their probabilities. Constructions have them. With
      G = 1, the mean can also be the prediction, and the probability be left out.
    - `log_variance` [r]: logarithm of the variance of each output; the mean is the prediction.
      Trained models have it (`Architecture(variance=True)`).

    Variances are as the model computes them: they are not positive if the model has not converged
    or is not right. The arrays are [q, G] for y [n] or [q, r, G] for y [n, r].

    Args:
        along: as in `readouts`.

    >>> import jax
    >>> import numpy as np
    >>> import icl_krr as ik
    >>> spec = ik.Architecture(num_features=2, width=8, depth=1, heads=1, variance=True)
    >>> model = ik.init(jax.random.key(0), spec)
    >>> task = ik.Task(x=np.ones((3, 2)), y=[1.0, 1.0, 1.0], x_query=[[1.0, 1.0]])
    >>> predictive(model, task).variance.tolist()
    [1.0]
    """
    checks.flag("along", along)
    plan = prepare_run(model, task, Request(along=along, answer=as_distribution), mesh=mesh)
    check_distribution(model)
    return plan.program(model, plan.task, **plan.options)[0]


def check_distribution(model: Transformer) -> None:
    reads, outputs = model.weights.readouts, model.spec.num_outputs
    widths = {name: read.width for name, read in reads.items()}
    G = widths.get("variances", 1)
    needed = {"variances": G, "means": G * outputs, "weights": G}
    if "log_variance" in widths:
        needed = {"log_variance": outputs}
    elif G == 1:  # the prediction is the mean
        needed = {name: width for name, width in needed.items() if name in {"variances", *widths}}
    if any(widths.get(name) != width for name, width in needed.items()):
        raise ValueError(
            "model must have readouts that give a distribution, `variances` with `means` and "
            f"`weights`, or `log_variance`, got readouts {widths or 'of the prediction only'}; use "
            "prefix_posterior, bayesian_average or Architecture(variance=True)"
        )


def as_they_are(read: dict[str, Array], model: Transformer, task: Task) -> dict[str, Array]:
    return read


def as_distribution(read: dict[str, Array], model: Transformer, task: Task) -> Predictive:
    """The distribution [q, G] or [q, r, G] of readouts [q, width]."""
    outputs, separate = task.num_outputs, task.num_outputs != model.spec.num_outputs

    def by_output(value: Array, of_outputs: bool = False) -> Array:
        """Move the Gaussians of a readout to the last axis, and its outputs before them."""
        if not separate:
            value = value.reshape(len(value), -1, outputs) if of_outputs else value[..., None]
        value = jnp.swapaxes(value, 1, 2)
        return value[:, 0] if task.y.ndim == 1 else value

    mean = read["prediction"][..., None]
    if "log_variance" in read:
        variances = jnp.exp(by_output(read["log_variance"], of_outputs=True))
    else:
        variances = by_output(read["variances"])
    means = by_output(read["means"], of_outputs=True) if "means" in read else mean
    weights = by_output(read["weights"]) if "weights" in read else jnp.ones_like(variances)
    shape = jnp.broadcast_shapes(means.shape, variances.shape)
    return Predictive(*(jnp.broadcast_to(part, shape) for part in (weights, means, variances)))


def operand_bounds(model: Transformer, task: Task, *, margin: float = 1.25) -> dict[str, Array]:
    """Find the largest operands of the gated units: a `bound` for `icl_krr.ReLU`.

    Run a construction with exact arithmetic, then build the same construction with
    `arithmetic=icl_krr.ReLU(width, bound=operand_bounds(model, task))`. For a product, the bound is
    the larger magnitude of its two operands. For a quotient, the bound also covers the reciprocal
    of the divisor, wherever numerator and divisor are not 0. The result has one bound > 0 for each
    slot that gated units write to, which is 1 if all operands are 0.

    Args:
        margin: factor on every bound, for tasks with larger operands than this task.

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
        tasks = (task.replace(y=y, y_query=None) for y in task.y.T)
        each = [operand_bounds(model, one, margin=margin) for one in tasks]
        return jax.tree.map(lambda *bounds: jnp.max(jnp.stack(bounds)), *each)
    _, cache = run_with_cache(model, task, names=(), points=("resid_mid",))
    blocks = untie(model).blocks
    bounds: dict[str, jax.Array] = {}
    for i, (block, points) in enumerate(zip(blocks, cache.points, strict=True)):
        for unit in block.mlp:
            if unit.up is None or unit.gate is None:
                continue
            one_step = i < len(model.weights.prologue)
            measure = largest_operand if one_step else jax.vmap(largest_operand)
            size = jnp.max(measure(unit, points["resid_mid"]))
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
