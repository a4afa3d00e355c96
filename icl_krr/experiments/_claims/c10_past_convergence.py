"""C10: conjugate gradient does not fail after convergence."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ... import Linear, constructions, run_with_cache, solvers
from ...tasks import LinearRegression, Task
from .claim import HOLDS, TASK_FAMILY, Checks, Claim, Config, at_most
from .measuring import Plot, Rows, draw_tasks, every, sizes, tidy

DATA = ("y = 0", "one support", "equal supports", "y along a feature", "y ~ 1e-8", "y ~ 1e8")
FORMS = ("textbook", "fused", "pipelined")


def run(config: Config, key: jax.Array) -> tuple[Rows, Checks]:
    regression = LinearRegression(**sizes(config), num_queries=4)
    hard = jax.jit(jax.vmap(degenerate_tasks))(draw_tasks(key, config.draws, regression))
    parts = [measure(hard, form, config) for form in config.forms]
    gaps, missing, nans = (np.stack(part, axis=1) for part in zip(*parts, strict=True))
    steps = range(0, config.steps + 1, 10)
    axes = {"draw": range(config.draws), "form": config.forms, "data": DATA, "step": steps}
    rows = tidy(axes, gap=gaps[..., steps])
    allowed = np.array([[0.05 if form == "pipelined" else 0.001] for form in config.forms])
    return rows, {
        "number of NaN or infinite values in all slots and steps = 0": at_most(missing, 0),
        "number of NaN or infinite values in the gradients in y, x and ridge = 0": at_most(nans, 0),
        "gap to f* after the last step, "
        "relative to the largest |y| <= 0.001 (0.05 if pipelined)": at_most(gaps[..., -1], allowed),
    }


def degenerate_tasks(task: Task) -> Task:
    """Return the data sets in which CG divides by very small numbers, stacked."""
    x, y = task.x, task.y
    one, equal = jnp.zeros_like(x).at[0].set(x[0]), jnp.broadcast_to(x[:1], x.shape)
    xs = jnp.stack([x, one, equal, x, x, x])
    ys = jnp.stack([jnp.zeros_like(y), y, y, x[:, 0], 1e-8 * y, 1e8 * y])
    return Task(x=xs, y=ys, x_query=jnp.broadcast_to(task.x_query, (6, *task.x_query.shape)))


@every(2, static=("form", "config"))
def measure(task: Task, form: str, config: Config) -> tuple[jax.Array, ...]:
    """Gaps to f* by data and step, over the largest |y|, and counts of NaN or infinite values."""
    options = {"num_features": config.num_features, "steps": config.steps, "form": form}

    def bad(numbers: Any) -> jax.Array:
        return jnp.stack([jnp.sum(~jnp.isfinite(part)) for part in jax.tree.leaves(numbers)]).sum()

    ridge, names = jnp.asarray(config.ridge), ("alpha", "r", "p", "prediction")

    def loss(y: jax.Array, x: jax.Array, ridge: jax.Array) -> tuple:
        model = constructions.conjugate_gradient(Linear(), ridge=ridge, **options)
        _, cache = run_with_cache(model, task.replace(x=x, y=y), names=names)
        # this loss scales with y, so it cannot overflow if y does not
        return jnp.sum(cache["prediction"][-1]), cache

    grads, cache = jax.grad(loss, argnums=(0, 1, 2), has_aux=True)(task.y, task.x, ridge)
    exact = solvers.exact(Linear(), task, ridge=ridge).prediction
    # relative to y: relative to f*, rounding has no bound, because f* may be near 0 by chance
    size = jnp.max(jnp.abs(task.y))
    scale = jnp.where(size > 0, size, 1)
    gap = jnp.max(jnp.abs(cache["prediction"] - exact[None]), axis=1) / scale
    return gap, bad(cache), bad(grads)


CLAIM = Claim(
    statement="Conjugate gradient that runs more steps than it needs does not fail. The "
    "construction returns 0 for a quotient whose divisor underflows. So all values and gradients "
    "stay finite, and the prediction stays at f*, the prediction of exact KRR.",
    expected=HOLDS,
    required_inputs=TASK_FAMILY,
    run=run,
    config=Config(draws=20, num_supports=16, num_features=3, steps=100, ridge=0.1),
    axes=Config(forms=FORMS),
    quick=Config(draws=5, steps=40, forms=("textbook",)),
    plot=Plot(x="step", y="gap", by=("data",)),
    dtype="float32",
)
