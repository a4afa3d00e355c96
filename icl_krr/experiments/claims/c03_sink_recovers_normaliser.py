"""C3: a sink token recovers the normaliser of the softmax."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ... import constructions, solvers, theory
from ...constructions import Softmax
from ...constructions.assembly.choice import softmax_machine
from ...kernels import Exponential
from ...linalg import solve
from ...numerics import matmul
from ...residual import ROLES, join
from ...tasks import GaussianProcess, Task, sample
from ...transformer import predict, run_with_cache
from .claim import CORRECTED, TASK, Claim, Verdict, at_least, at_most, judge, named
from .measuring import Plot, Rows, every, fields, gap, sizes, tidy

DTYPES = ("float32", "float64")
NO_SINK = -1e30  # logit of a token that gets the weight 0


class Config(NamedTuple):
    draws: int = 20
    num_supports: int = 64
    num_features: int = 3
    temperatures: tuple[float, ...] = (0.5, 1.0, 10.0)
    shifts: tuple[float, ...] = (-20.0, 0.0, 20.0)


def run(config: Config, key: jax.Array) -> tuple[Rows, Verdict]:
    keys, temperatures = jax.random.split(key, config.draws), jnp.asarray(config.temperatures)
    shifts = jnp.asarray(config.shifts)
    found = fields(measure(keys, temperatures, shifts, config))
    errors, bounds = found.errors, found.bounds
    logits = fields(compare_logits(keys, temperatures, config))
    axes = {
        "draw": range(config.draws),
        "temperature": config.temperatures,
        "log c - chosen": config.shifts,
        "dtype": DTYPES,
    }
    rows = tidy(axes, error=errors, bound=bounds, **{"largest logit": found.top[..., None]})
    checks = {
        "head without a sink, logits that give the same output: "
        "relative difference of K v <= 1e-12": at_most(logits.products, 1e-12, stated=True),
        "head without a sink: K and diag(d) K give the same output, "
        "relative difference <= 1e-12": at_most(logits.outputs, 1e-12),
        "head without a sink: a context and the same context twice give the same output, "
        "relative difference <= 1e-12": at_most(logits.repeated, 1e-12),
        "a context and the same context twice: median relative difference of f* >= 0.01": at_least(
            np.median(logits.doubled), 0.01
        ),
        "head with a sink: |recovered diag(d) K v - diag(d) K v| <= 1e-12 diag(d) K |v|": at_most(
            logits.recovered, 1e-12
        ),
        **{
            f"|recovered K v - K v| / (|K| |v|) <= rounding bound, {dtype}": at_most(
                errors[..., i], bounds[..., i]
            )
            for i, dtype in enumerate(DTYPES)
        },
        "|recovered K v - K v| / (|K| |v|) <= 1e-12, float64": at_most(
            errors[..., 1], 1e-12, reading="the aggregator is a key with a known logit"
        ),
        "K, k and ridge divided by c: relative change of f* <= 1e-8": at_most(found.shifted, 1e-8),
        "every row of K and k divided by its maximum: "
        "median relative change of f* >= 0.1": at_least(np.median(found.by_row), 0.1),
    }
    return rows, judge(*named(checks))


@every(1, 1)
def measure(
    key: jax.Array, temperature: jax.Array, shifts: jax.Array, config: Config
) -> dict[str, jax.Array]:
    """Return errors and bounds [draw, temperature, shift, dtype], and the effect of shifts on f*.

    f* changes by `shifted` if all logits get the same shift, and by `by_row` if each row of logits
    is shifted by its maximum.
    """
    p = config.num_features
    process = GaussianProcess(Exponential(), **sizes(config), num_queries=8)

    def recover(task: Task, temperature: jax.Array, shift: jax.Array, dtype: str) -> tuple:
        task = Task(*(part.astype(dtype) for part in (task.x, task.y, task.x_query)))
        kernel = Exponential(temperature.astype(dtype))
        log_c = theory.log_sink(kernel, task) + shift.astype(dtype)
        # one step of size 1 from alpha = 0 predicts k y
        model = constructions.gradient_descent(
            kernel,
            num_features=p,
            ridge=1.0,
            steps=1,
            step_size=1.0,
            attention=Softmax(log_sink=log_c),
            dtype=dtype,
        )
        found = predict(model, task).astype(float)
        x, y, queries = (part.astype(float) for part in (task.x, task.y, task.x_query))
        logits = matmul(queries, x.T) / temperature
        entries = jnp.exp(logits)
        error = jnp.abs(found - matmul(entries, y)) / matmul(entries, jnp.abs(y))
        top = jnp.max(jnp.abs(logits))
        return jnp.max(error), theory.recovery_error(top, log_c.astype(float), p, dtype), top

    task = sample(key, process)

    def at(shift: jax.Array) -> tuple[jax.Array, ...]:
        low, high = (recover(task, temperature, shift, dtype) for dtype in DTYPES)
        return jnp.stack([low[0], high[0]]), jnp.stack([low[1], high[1]]), high[2]

    errors, bounds, top = jax.lax.map(at, shifts)
    kernel = Exponential(temperature)
    log_c = theory.log_sink(kernel, task)
    K, k = kernel(task.x, task.x), kernel(task.x_query, task.x)
    ridge = 0.1 * jnp.trace(K) / len(K)

    def predicted(of_rows: jax.Array, of_queries: jax.Array, ridge: jax.Array) -> jax.Array:
        # with D = diag(of_rows): (D K + ridge I)^-1 = (K + ridge D^-1)^-1 D^-1
        alpha = solve(K + jnp.diag(ridge / of_rows), task.y / of_rows)
        return matmul(of_queries[:, None] * k, alpha)

    best = predicted(jnp.ones(len(K)), jnp.ones(len(k)), ridge)
    c = jnp.exp(log_c)
    shifted = predicted(jnp.full(len(K), 1 / c), jnp.full(len(k), 1 / c), ridge / c)
    by_row = predicted(1 / jnp.max(K, axis=1), 1 / jnp.max(k, axis=1), ridge / jnp.max(K))
    known = {"errors": errors, "bounds": bounds, "top": top}
    return {**known, "shifted": gap(shifted, best), "by_row": gap(by_row, best)}


@every(1, 1)
def compare_logits(key: jax.Array, temperature: jax.Array, config: Config) -> dict[str, jax.Array]:
    """Compare logits that differ by a constant in each row, and a context with its repetition.

    Row i of K is multiplied by d_i = exp(s . x_i) for a random s. The arrays [draw, temperature]
    are relative differences over the queries: between the outputs of a head without a sink for K
    and diag(d) K, between the products K v and diag(d) K v, between diag(d) K v and what a head
    with a sink recovers, and between the outputs and between the f* of a context and of the same
    context twice.
    """
    p = config.num_features
    process = GaussianProcess(Exponential(), **sizes(config), num_queries=8)
    kernel, task = Exponential(temperature), sample(key, process)
    same, other = jnp.zeros(p), jax.random.normal(jax.random.fold_in(key, 1), (p,))
    K, d = kernel(task.x_query, task.x), jnp.exp(matmul(task.x_query, other))
    Kv, size = matmul(K, task.y), matmul(K, jnp.abs(task.y))
    plain, scaled = (head(kernel, task, rows, NO_SINK)[0] for rows in (same, other))
    log_c = theory.log_sink(kernel, task)
    mean, sink = head(kernel, task, other, log_c)
    recovered = jnp.exp(log_c) * mean / sink
    twice = task.replace(x=jnp.tile(task.x, (2, 1)), y=jnp.tile(task.y, 2))
    ridge = 0.1 * jnp.mean(kernel.diagonal(task.x))
    best, best_twice = (
        solvers.exact(kernel, each, ridge=ridge).prediction for each in (task, twice)
    )
    return {
        "outputs": gap(scaled, plain),
        "products": gap(d * Kv, Kv),
        "recovered": jnp.max(jnp.abs(recovered - d * Kv) / (d * size)),
        "repeated": gap(head(kernel, twice, same, NO_SINK)[0], plain),
        "doubled": gap(best_twice, best),
    }


def head(
    kernel: Exponential, task: Task, rows: jax.Array, log_sink: Any
) -> tuple[jax.Array, jax.Array]:
    """Return the means of y and the weights of the sink at the queries, for one softmax head.

    Its logits of the supports are log k(x_i, x_j) + rows . x_i. Its sink has the logit `log_sink`.
    """
    m = softmax_machine(kernel, len(rows), {ROLES: log_sink})
    mean = m.state("mean", ROLES, "weighted mean of y")
    sink = m.state("sink", ROLES, "weight of the sink")

    def step() -> None:
        for term in m.terms:
            query = join(term.query, m.x @ rows[:, None])
            key = join(term.key, m.support)
            m.head(query, key, m.y, to=mean)
            m.head(query, key, m.aggregator, to=sink)

    model = m.transformer(step, steps=1, readout=mean)
    _, cache = run_with_cache(model, task, names=("mean", "sink"))
    q = task.num_queries
    return cache["mean"][-1, -q:], cache["sink"][-1, -q:]


CLAIM = Claim(
    title="an aggregator recovers the unnormalised product K v",
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
    corrected="ours",
    source="Cawley 2025, paper/sections/theory.md, theorem 1, step 2 of the proof",
    quote="The aggregator token computes Z_i by summing exp(S) values (via a specific head "
    "configuration) and broadcasting them, allowing the model to recover the unnormalized K~ = "
    "diag(Z) A.",
    expected=CORRECTED,
    told=TASK,
    run=run,
    quick=Config(draws=5),
    plot=Plot(x="temperature", y="error", by=("dtype",), bound="bound", logx=True),
)
