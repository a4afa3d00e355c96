"""C24: one trained layer becomes one step of gradient descent."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from ... import Task, Transformer, predict, predict_batch
from ..._core.numerics import matmul
from .._shared.runs import load
from .claim import CORRECTED, TASK_FAMILY, Checks, Claim, Config, check, stated
from .measuring import Plot, Rows, draw_tasks, tidy

ANCHOR = 0.20468888  # half the mean squared error of one tuned step, as the literature quotes it


def run(config: Config, key: jax.Array) -> tuple[Rows, Checks]:
    run = load("linear")
    family = dataclasses.replace(run.family, num_queries=1)  # pyright: ignore[reportArgumentType]
    keys = [jax.random.fold_in(key, i) for i in range(config.draws + 1)]
    tune, *tasks = (draw_tasks(each, config.tasks, family) for each in keys)
    eta = best_step_size(tune)
    results = [measure(run.model, each, eta) for each in tasks]
    one_step, model, cosine, aligned = np.asarray(results, float).T
    p = run.recipe.task.num_features
    half = p * one_step / 2  # the tasks have y = <x, w> / sqrt(p), here w ~ N(0, I)
    columns = {"step": half, "model": p * model / 2, "ratio": model / one_step, "cosine": cosine}
    rows = tidy({"draw": range(config.draws)}, **columns, **{"cosine of d f / d x": aligned})
    off = abs(model.mean() / one_step.mean() - 1)
    short = half.mean() / 4  # half the range of x: a quarter of the error
    printed = stated(abs(half.mean() / ANCHOR - 1))
    code = check(abs(short / ANCHOR - 1), reading="x ~ U(-1/2, 1/2), as the code of the source has")
    return rows, {
        "one tuned step, x ~ U(-1, 1): |half mean squared error / 0.20468888 - 1| <= 5 %": printed,
        "one tuned step, x ~ U(-1/2, 1/2): |half mean squared error / 0.20468888 - 1| <= 5 %": code,
        "trained model: |loss / loss of one tuned step - 1| <= 1 %": off,
        "cosine between the predictions of model and step >= 0.99": cosine,
        "cosine between the sensitivities df / dx of both >= 0.99": aligned,
    }


def one_step(task: Task) -> jax.Array:
    """Return the predictions of one step of size 1 from alpha = 0."""
    return matmul(task.x_query, matmul(task.x.T, task.y))


@jax.jit
def best_step_size(tasks: Task) -> jax.Array:
    """Return the step size of smallest mean squared error."""
    first = jax.vmap(one_step)(tasks)
    return jnp.sum(first * tasks.y_query) / jnp.sum(first**2)


@jax.jit
def measure(model: Transformer, tasks: Task, eta: jax.Array) -> tuple:
    """Return the losses of step and model, and cosines of their predictions and sensitivities."""
    ours, theirs = predict_batch(model, tasks), eta * jax.vmap(one_step)(tasks)

    def slope(x_query: jax.Array, task: Task) -> jax.Array:
        return predict(model, task.replace(x_query=x_query, y_query=None))[0]

    slopes = jax.vmap(jax.grad(slope))(tasks.x_query, tasks)[:, 0]
    expected = jax.vmap(lambda task: matmul(task.x.T, task.y))(tasks)
    losses = (jnp.mean((f - tasks.y_query) ** 2) for f in (theirs, ours))
    return *losses, cosine(ours, theirs), cosine(slopes, expected)


def cosine(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.sum(a * b) / jnp.sqrt(jnp.sum(a * a) * jnp.sum(b * b))


CLAIM = Claim(
    statement="One layer of linear attention, trained on linear tasks (n = 10 supports, p = "
    "10 features, x ~ U(-1, 1), y = <w, x>), becomes one step of gradient descent with the best "
    "step size. Its loss is 0.20468888, and its predictions and sensitivities df / dx agree with "
    "those of the step.",
    truth="The trained layer does become this step. But the stated loss is not the loss "
    "for x ~ U(-1, 1). It is half the mean squared error for w ~ N(0, I) and x ~ U(-1/2, 1/2). "
    "For x ~ U(-1, 1) the loss is four times as large. The published code "
    "draws x from U(-1/2, 1/2), where its documentation says U(-1, 1).",
    source="von Oswald et al. 2023, section 3, and for the loss the notebook on the token "
    "construction",
    quote="We then sample x_i ~ U(-1, 1)^n_I and construct targets [...] we set the dimensions to "
    "N = n_I = 10 [...] Trained single LSA layer performance is identical to the one of gradient "
    "descent. [notebook:] losses_gd_list = [0.20468888]",
    expected=CORRECTED,
    required_inputs=TASK_FAMILY,
    run=run,
    config=Config(tasks=4096, draws=8),
    quick=Config(tasks=2048, draws=2),
    plot=Plot(x="draw", y="model", bound="step", logy=False),
    dtype="float32",
)
