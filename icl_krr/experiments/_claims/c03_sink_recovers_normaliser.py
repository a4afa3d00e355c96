"""C3: an aggregator recovers the unnormalised product K v."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ... import Exponential, Softmax, constructions, predict, run_with_cache, solvers, theory
from ..._core.linalg import solve
from ..._core.numerics import matmul
from ...constructions._assembly.choice import softmax_machine
from ...residual import ROLES, join
from ...tasks import GaussianProcess, Task, sample
from .claim import CORRECTED, THIS_TASK, Checks, Claim, Config, at_most, check, stated
from .measuring import Plot, Rows, every, gap, sizes, tidy

DTYPES = ("float32", "float64")
NO_SINK = -1e30  # logit of a token that gets the weight 0


def run(config: Config, key: jax.Array) -> tuple[Rows, Checks]:
    grid = key, jnp.asarray(config.temperatures)
    errors, bounds, top = recover(*grid, jnp.asarray(config.shifts), config)
    results = compare(*grid, config)
    axes = {"draw": range(config.draws), "temperature": config.temperatures}
    axes |= {"log c - chosen": config.shifts, "dtype": DTYPES}
    rows = tidy(axes, error=errors, bound=bounds, **{"largest logit": top[..., 1:]})
    doubled = np.median(results.doubled)
    recovered = at_most(results.recovered, 1e-12)
    single, double = ((errors[..., i], bounds[..., i]) for i in range(2))
    exact = check(double[0], reading="the aggregator is a key with a known logit")
    return rows, {
        "head without a sink, logits that give the same output: "
        "relative difference of K v <= 1e-12": stated(results.products),
        "head without a sink: K and diag(d) K give the same output, "
        "relative difference <= 1e-12": results.outputs,
        "head without a sink: a context and the same context twice give the same output, "
        "relative difference <= 1e-12": results.repeated,
        "a context and the same context twice: median relative difference of f* >= 0.01": doubled,
        "head with a sink: |recovered diag(d) K v - diag(d) K v| <= 1e-12 diag(d) K |v|": recovered,
        "|recovered K v - K v| / (|K| |v|) <= rounding bound, float32": at_most(*single),
        "|recovered K v - K v| / (|K| |v|) <= rounding bound, float64": at_most(*double),
        "|recovered K v - K v| / (|K| |v|) <= 1e-12, float64": exact,
        "K, k and ridge divided by c: relative change of f* <= 1e-8": results.shifted,
        "every row of K and k divided by its maximum: "
        "median relative change of f* >= 0.1": np.median(results.by_row),
    }


@every(1, 1, 1)
def recover(key: jax.Array, tau: jax.Array, shift: jax.Array, config: Config) -> tuple:
    """Return |recovered K v - K v| / (|K| |v|), its bound and the largest logit, by dtype."""
    drawn = sample(key, GaussianProcess(Exponential(), **sizes(config), num_queries=8))
    parts = (recover_in(dtype, drawn, tau, shift) for dtype in DTYPES)
    return jax.tree.map(lambda *of_dtypes: jnp.stack(of_dtypes), *parts)


def recover_in(dtype: str, drawn: Task, tau: jax.Array, shift: jax.Array) -> tuple:
    """The same in one dtype."""
    task, kernel = drawn.astype(dtype), Exponential(tau.astype(dtype))
    log_c = theory.log_sink(kernel, task) + shift.astype(dtype)
    # one step of size 1 from alpha = 0 predicts k y
    options = {"ridge": 1.0, "steps": 1, "step_size": 1.0, "attention": Softmax(log_sink=log_c)}
    p = task.num_features
    model = constructions.gradient_descent(kernel, num_features=p, dtype=dtype, **options)
    prediction, task = predict(model, task).astype(float), task.astype(float)
    logits = matmul(task.x_query, task.x.T) / tau
    entries, top = jnp.exp(logits), jnp.max(jnp.abs(logits))
    error = jnp.abs(prediction - matmul(entries, task.y)) / matmul(entries, jnp.abs(task.y))
    return jnp.max(error), theory.recovery_error(top, log_c.astype(float), p, dtype), top


@every(1, 1)
def compare(key: jax.Array, temperature: jax.Array, config: Config) -> dict[str, jax.Array]:
    """Compare logits that differ by a constant in each row, and a context with its repetition.

    Row i of K is multiplied by d_i = exp(s . x_i) for a random s. Changes of f*: `shifted`, all
    logits have the same shift; `by_row`, each row is shifted by its maximum; `doubled`, the context
    is twice.
    """
    p = config.num_features
    process = GaussianProcess(Exponential(), **sizes(config), num_queries=8)
    kernel, task = Exponential(temperature), sample(key, process)
    same, other = jnp.zeros(p), jax.random.normal(jax.random.fold_in(key, 1), (p,))
    K, k = kernel(task.x, task.x), kernel(task.x_query, task.x)
    kv, d = matmul(k, task.y), jnp.exp(matmul(task.x_query, other))
    plain, scaled = (head(kernel, task, rows, NO_SINK)[0] for rows in (same, other))
    log_c = theory.log_sink(kernel, task)
    mean, sink = head(kernel, task, other, log_c)
    off = jnp.abs(jnp.exp(log_c) * mean / sink - d * kv)
    twice = task.replace(x=jnp.tile(task.x, (2, 1)), y=jnp.tile(task.y, 2))
    c, ridge = jnp.exp(log_c), 0.1 * jnp.mean(kernel.diagonal(task.x))
    best, doubled = (solvers.exact(kernel, each, ridge=ridge).prediction for each in (task, twice))

    def predicted(of_rows: jax.Array, of_queries: jax.Array, ridge: jax.Array) -> jax.Array:
        # with D = diag(of_rows): (D K + ridge I)^-1 = (K + ridge D^-1)^-1 D^-1
        alpha = solve(K + jnp.diag(ridge / of_rows), task.y / of_rows)
        return matmul(of_queries[:, None] * k, alpha)

    shifted = predicted(jnp.full(len(K), 1 / c), jnp.full(len(k), 1 / c), ridge / c)
    by_row = predicted(1 / jnp.max(K, axis=1), 1 / jnp.max(k, axis=1), ridge / jnp.max(K))
    return {
        "outputs": gap(scaled, plain),
        "products": gap(d * kv, kv),
        "recovered": jnp.max(off / (d * matmul(k, jnp.abs(task.y)))),
        "repeated": gap(head(kernel, twice, same, NO_SINK)[0], plain),
        "doubled": gap(doubled, best),
        "shifted": gap(shifted, best),
        "by_row": gap(by_row, best),
    }


def head(kernel: Exponential, task: Task, rows: jax.Array, log_sink: Any) -> tuple[jax.Array, ...]:
    """Means of y and weights of the sink at the queries; logits log k(x_i, x_j) + rows . x_i."""
    m = softmax_machine(kernel, len(rows), {ROLES: log_sink})
    mean = m.state("mean", ROLES, "weighted mean of y")
    sink = m.state("sink", ROLES, "weight of the sink")

    def step() -> None:
        for term in m.terms:
            query, key = join(term.query, m.x @ rows[:, None]), join(term.key, m.support)
            m.head(query, key, m.y, to=mean)
            m.head(query, key, m.aggregator, to=sink)

    model = m.transformer(step, steps=1, readout=mean)
    _, cache = run_with_cache(model, task, names=("mean", "sink"))
    return tuple(cache[name][-1, -task.num_queries :] for name in ("mean", "sink"))


CLAIM = Claim(
    statement="An aggregator token computes the softmax normalisers Z_i = sum_j k(x_i, x_j) and "
    "broadcasts them, so that the model recovers the product K v with the unnormalised kernel "
    "matrix K from the output of a softmax head.",
    truth="The aggregator must be a key with a known logit log c (a sink). Then token i gives it "
    "the weight w_i = c / (Z_i + c), and c / w_i times the output of the head is (K v)_i. Every "
    "token reads its own w_i, and no token broadcasts it. Without such a key the normalisers are "
    "lost: a head has the same outputs for K and for diag(d) K, whatever the factors d > 0, and "
    "for a context and the same context twice. Adding one constant to all logits multiplies K and "
    "k(x) by a factor. f*, exact kernel ridge regression, does not change if the ridge is "
    "multiplied by the same factor.",
    source="Cawley 2025, paper/sections/theory.md, theorem 1, step 2 of the proof",
    quote="The aggregator token computes Z_i by summing exp(S) values (via a specific head "
    "configuration) and broadcasting them, allowing the model to recover the unnormalized K~ = "
    "diag(Z) A.",
    expected=CORRECTED,
    required_inputs=THIS_TASK,
    run=run,
    config=Config(draws=20, num_supports=64, num_features=3),
    axes=Config(temperatures=(0.5, 1.0, 10.0), shifts=(-20.0, 0.0, 20.0)),
    quick=Config(draws=5),
    plot=Plot(x="temperature", y="error", by=("dtype",), bound="bound", logx=True),
)
