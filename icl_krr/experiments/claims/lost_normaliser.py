"""What softmax heads with and without a sink know about their normalisers (C3)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ... import solvers, theory
from ...constructions.assembly.choice import softmax_machine
from ...kernels import Exponential
from ...numerics import matmul
from ...residual import ROLES, join
from ...tasks import GaussianProcess, Task, sample
from ...transformer import run_with_cache
from .measuring import every, gap


@every(1, 1, static=("num_supports", "num_features"))
def compare_logits(
    key: jax.Array, temperature: jax.Array, no_sink: float, *, num_supports: int, num_features: int
) -> dict[str, jax.Array]:
    """Compare logits that differ by a constant in each row, and a context with its repetition.

    Row i of K is multiplied by d_i = exp(s . x_i) for a random s. The arrays [draw, temperature]
    are relative differences over the queries: between the outputs of a head without a sink for K
    and diag(d) K, between the products K v and diag(d) K v, between diag(d) K v and what a head
    with a sink recovers, and between the outputs and between the f* of a context and of the same
    context twice. `no_sink` is the logit of a sink that gets no weight.
    """
    p = num_features
    process = GaussianProcess(
        Exponential(), num_features=p, num_supports=num_supports, num_queries=8
    )
    kernel, task = Exponential(temperature), sample(key, process)
    same, other = jnp.zeros(p), jax.random.normal(jax.random.fold_in(key, 1), (p,))
    K, d = kernel(task.x_query, task.x), jnp.exp(matmul(task.x_query, other))
    Kv, size = matmul(K, task.y), matmul(K, jnp.abs(task.y))
    plain, scaled = (head(kernel, task, rows, no_sink)[0] for rows in (same, other))
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
        "repeated": gap(head(kernel, twice, same, no_sink)[0], plain),
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
