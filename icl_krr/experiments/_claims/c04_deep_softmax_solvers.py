"""C4: deep softmax stacks run CG (and others) at textbook rates."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ... import Exponential, Kernel, Linear, constructions, run_with_cache, solvers, theory
from ..._core.linalg import eigh
from ..._core.numerics import matmul
from ...tasks import GaussianProcess, Task, system
from .claim import HOLDS, THIS_TASK, Checks, Claim, Config, at_most
from .measuring import Plot, Rows, draw_tasks, every, sizes, softmax, tidy

NAMES = ("conjugate_gradient", "chebyshev", "heavy_ball", "gradient_descent")
RATES = {name: theory.RATES[name] for name in NAMES}


def run(config: Config, key: jax.Array) -> tuple[Rows, Checks]:
    kernel, ridges = Exponential(config.temperature), jnp.asarray(config.ridges)
    process = GaussianProcess(kernel, **sizes(config), num_queries=4, inputs="sphere")
    tasks = draw_tasks(key, config.draws, process)
    rows, checks, falls = [], {}, np.zeros(0)
    for name in RATES:
        results = measure(tasks, ridges, kernel, name, config.steps)
        error, worst, bound = results.error, results.worst, results.rate
        axes = {"solver": [name], "draw": range(config.draws), "ridge": config.ridges}
        columns = {"error": error[None], "worst": worst[None], "bound": bound[None]}
        rows += tidy(axes | {"step": range(config.steps + 1)}, **columns)
        options = {"stated": name == "conjugate_gradient", "slack": 1e-6}
        of_alpha = at_most(error[..., 1:], bound[..., 1:], **options)
        of_f = at_most(results.f_error, results.f_bound, **options)
        checks |= {
            f"{name}: |alpha_t - alpha*|_A / |alpha*|_A <= rate": of_alpha,
            f"{name}: |f_t - f*| <= sqrt(k^T A^-1 k) |alpha_t - alpha*|_A": of_f,
        }
        if name == "conjugate_gradient":
            falls = np.all(np.diff(results.f_error[..., 0], axis=-1) <= 0, axis=-1)
        else:
            words = f"{name}, worst y: |1 - error / rate| <= 1e-3 at every step"
            checks[words] = at_most(np.abs(1 - worst / bound), 1e-3)
    reached, minimax, bound = map(float, hardest_for_conjugate_gradient(config.degree))
    off = abs(1 - reached / minimax)
    checks |= {
        "conjugate_gradient, worst spectrum: |1 - error / minimax error| <= 1e-6": off,
        "conjugate_gradient, worst spectrum: rate <= 2 x error": at_most(bound, 2 * reached),
        "conjugate_gradient: share of runs whose prediction error decreases at every step "
        "<= 0.9": np.mean(falls),
    }
    return rows, checks


@every(1, 1, static=("name", "steps"))
def measure(task: Task, ridge: jax.Array, kernel: Kernel, name: str, steps: int) -> dict:
    """Return errors for the y of the task and the worst y, and bounds [draw, ridge, step]."""
    gram = system(kernel, task).gram
    A = gram + ridge * jnp.eye(len(gram))
    y = jnp.stack([task.y, eigh(A)[1][:, -1]])
    exact = jax.lax.map(lambda y: solvers.exact(kernel, task.replace(y=y), ridge=ridge), y)
    low, high = theory.spectral_bounds(kernel, task, ridge=ridge)
    needs: dict[str, Any] = {"ridge": ridge, "steps": steps, "attention": softmax(kernel, task)}
    if name != "conjugate_gradient":
        needs["spectrum"] = (low, high)
    model = getattr(constructions, name)(kernel, num_features=task.num_features, **needs)
    names = ("alpha", "prediction")
    slots = jax.vmap(lambda y: run_with_cache(model, task.replace(y=y), names=names)[1])(y)
    errors = theory.energy_norm(A, slots["alpha"] - exact.alpha[:, None])
    error, worst = errors / errors[:, :1]
    bound = partial(theory.prediction_bound, kernel, task, ridge=ridge)
    f_bound = jax.vmap(bound)(slots["alpha"][0])
    return {
        "error": error,
        "worst": worst,
        "rate": RATES[name](low, high, jnp.arange(steps + 1.0)) + 1e-11,  # room for rounding
        "f_error": jnp.abs(slots["prediction"][0] - exact.prediction[0][None]),
        "f_bound": f_bound + 1e-11 * jnp.max(f_bound),
    }


@partial(jax.jit, static_argnums=0)
def hardest_for_conjugate_gradient(degree: int) -> tuple[jax.Array, ...]:
    """The error of CG after t = `degree` steps on its hardest spectrum, and two rates.

    A is diagonal with the extrema sigma_i of T_t on [low, high]. T_t is optimal for the weights
    w_i = sigma_i alpha_i^2, as its signs at the sigma_i alternate and the sum of
    w_i sigma_i (-1)^i q(sigma_i) is a divided difference, 0 for degree q < t.
    """
    low, high, ridge = 1.0, 100.0, 0.5
    theta = jnp.pi * jnp.arange(degree + 1.0) / degree
    sigma = (low + high) / 2 - (high - low) / 2 * jnp.cos(theta)
    distances = jnp.abs(sigma[:, None] - sigma[None]) + jnp.eye(degree + 1)
    weights = 1 / (sigma * jnp.prod(distances / (high - low), axis=1))
    alpha = jnp.sqrt(weights / sigma)
    x = jnp.diag(jnp.sqrt(sigma - ridge))
    task = Task(x=x, y=sigma * alpha, x_query=x[:1])
    options = {"num_features": degree + 1, "ridge": ridge, "steps": degree}
    model = constructions.conjugate_gradient(Linear(), **options)
    _, cache = run_with_cache(model, task, names=("alpha",))
    A = matmul(x, x.T) + ridge * jnp.eye(degree + 1)
    error = theory.energy_norm(A, cache["alpha"][-1] - alpha) / theory.energy_norm(A, alpha)
    rates = (theory.chebyshev_rate, theory.conjugate_gradient_rate)
    return error, *(rate(low, high, degree) for rate in rates)


CLAIM = Claim(
    statement="A deep stack of softmax attention runs conjugate gradient (CG) on A = K + ridge I. "
    "It converges to f*, exact kernel ridge regression, at the textbook rate.",
    truth="In addition, such stacks run gradient descent, heavy ball and Chebyshev iteration at "
    "their textbook rates. The rates cannot be improved. Gradient descent, heavy ball and "
    "Chebyshev iteration attain them if y is the leading eigenvector of A. On the worst spectrum, "
    "the error of CG is at least half of its rate. The prediction error of CG can increase from "
    "one step to the next.",
    source="Cawley 2025, docs/theory/route_a.md",
    quote="Then a Deep Transformer constructed with L layers of attention heads (queries Q=U Phi, "
    "keys K=U Phi) and MLP blocks can implement Conjugate Gradient steps on the kernel ridge "
    "regression objective, converging to: f_*(x) = k~(x)^T (K~ + lambda I)^-1 y. [...] "
    "Depth-accuracy follows CG rate on K~ + lambda I.",
    expected=HOLDS,
    required_inputs=THIS_TASK,
    run=run,
    config=Config(draws=20, num_supports=32, temperature=0.5, steps=24, degree=5),
    axes=Config(ridges=(0.1, 1.0, 10.0)),
    quick=Config(draws=2, ridges=(1.0,)),
    plot=Plot(x="step", y="error", by=("solver", "ridge"), bound="bound"),
)
