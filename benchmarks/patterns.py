"""`python -m benchmarks.patterns`: what the parts of softmax attention cost, and ways not taken.

It prints medians in ms for 256 tasks with 64 supports: patterns with and without a maximum, and
gradient descent with the weight of the sink from a shared pattern or from every step anew.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import icl_krr as ik
from benchmarks.contests import timed
from benchmarks.speed_solvers import draw, exponential
from icl_krr.constructions import SUPPORTS, SUPPORTS_AND_QUERIES, machine
from icl_krr.numerics import matmul
from icl_krr.residual import ROLES
from icl_krr.transformer.undivided_softmax import undivided_softmax
from icl_krr.transformer.visible import Order

STEP_SIZE, CHANNELS = 0.01, 3


def sink_in_every_step(kernel: ik.Kernel, ridge: float, steps: int) -> ik.Transformer:
    """Gradient descent whose heads also ask for the weight of the sink, which units divide by."""
    m: Any = machine(kernel, num_features=2)
    r = m.state("r", SUPPORTS, "residual", starts_as=m.y)
    prediction = m.state("prediction", SUPPORTS_AND_QUERIES, "k(x)^T alpha")

    def step() -> None:
        (term,) = m.terms
        mean, sink, Kr = (m.scratch(name, ROLES, name, 1) for name in ("mean", "sink", "Kr"))
        m.head(term.query, term.key, r, to=mean)
        m.head(term.query, term.key, m.aggregator, to=sink)
        m.divide(mean, sink, to=Kr)
        m.multiply(STEP_SIZE * Kr, m.inside(SUPPORTS_AND_QUERIES), to=prediction)
        m.multiply(-STEP_SIZE * (Kr + ridge * r), m.inside(SUPPORTS), to=r)

    return m.transformer(step, steps=steps, readout=prediction)


def shared(kernel: ik.Kernel, ridge: float, steps: int) -> ik.Transformer:
    return ik.constructions.gradient_descent(
        kernel, num_features=2, ridge=ridge, steps=steps, step_size=STEP_SIZE
    )


def with_maximum(q: jax.Array, k: jax.Array, visible: np.ndarray) -> jax.Array:
    """The sums of a pattern as products, a maximum and exp, one after the other."""
    q, k = (jnp.pad(part, ((0, 0), (0, 1))) for part in (q, k[visible]))
    logits = matmul(q, k.T)
    weights = jnp.exp(logits - jnp.max(logits, axis=-1, keepdims=True))
    return matmul(weights, jnp.ones((len(k), 1), k.dtype))


def programs(seed: int) -> dict[str, Callable[[], jax.Array]]:
    kernel, config, ridge = exponential()
    tasks = draw(config, 256, seed)
    visible = np.arange(config.num_supports + 2) <= config.num_supports
    # queries and keys come from a product, as those of a head do, not from memory
    x = jax.random.normal(jax.random.key(seed), (256, len(visible), 2)) / 2
    reads = jax.random.normal(jax.random.key(seed + 1), (2, 2, CHANNELS)) / 2

    def of(pattern: Callable) -> Callable[[], jax.Array]:
        one = lambda x: pattern(matmul(x, reads[0]), matmul(x, reads[1]))  # noqa: E731
        run = jax.jit(lambda x: jax.lax.map(one, x, batch_size=16))
        return lambda: run(x)

    found = {
        "pattern without a maximum": of(
            lambda q, k: undivided_softmax(q, k, visible, Order()).totals
        ),
        "pattern with a maximum": of(lambda q, k: with_maximum(q, k, visible)),
    }
    predict = jax.jit(ik.predict_batch)
    for name, make in (("shared pattern", shared), ("sink in every step", sink_in_every_step)):
        for steps in (1, 16, 32):
            model = make(kernel, ridge, steps)
            found[f"{name}, {steps} steps"] = lambda model=model: predict(model, tasks)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=100)
    settings = parser.parse_args()
    ours = programs(settings.seed)
    results = {name: np.asarray(program()) for name, program in ours.items()}
    one, other = results["shared pattern, 16 steps"], results["sink in every step, 16 steps"]
    assert np.allclose(one, other, rtol=1e-3, atol=1e-3)
    times: dict[str, list[float]] = {name: [] for name in ours}
    for _ in range(settings.repeats):
        for name, program in ours.items():
            times[name].append(timed(program)[0])
    for name, values in times.items():
        print(f"{name:28s} {np.median(values):.2f} ms")


if __name__ == "__main__":
    main()
