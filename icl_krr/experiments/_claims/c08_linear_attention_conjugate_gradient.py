"""C8: one block of linear attention is one step of conjugate gradient.

A block is one layer of attention and one layer of gated units, each a product or a quotient of two
linear functions of the stream. gamma = r.r / p.Ap is a quotient by a sum of terms of two tokens
each; after one layer of attention each channel sums terms of one other token only. The pipelined
form also stores A p: its first block computes the quotients, its second multiplies vectors by them.
With four layers of units one layer of attention is enough (`_distractor_solvers.one_attention`).
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ... import Linear, Transformer, constructions, nystrom, run_with_cache, solvers, theory
from ..._core.numerics import matmul
from ...tasks import LinearRegression, Task, system
from ..solverbench._distractor_solvers import one_attention
from .claim import CORRECTED, THIS_TASK, Checks, Claim, Config, at_most, stated
from .measuring import Plot, Rows, draw_tasks, every, gap, sizes, tidy

KERNEL, STATES = Linear(), ("alpha", "r", "p")


SOLVERS: dict[str, tuple[str, dict[str, Any], int]] = {  # with the blocks of a step that we state
    "textbook": ("conjugate_gradient", {"form": "textbook"}, 5),
    "fused": ("conjugate_gradient", {"form": "fused"}, 3),
    "pipelined": ("conjugate_gradient", {"form": "pipelined"}, 2),
    "Jacobi": ("preconditioned_conjugate_gradient", {}, 5),
    "Nystrom": ("preconditioned_conjugate_gradient", {}, 6),
    "one attention layer": ("one_attention", {}, 4),
    "Chebyshev": ("chebyshev", {}, 1),
}


def run(config: Config, key: jax.Array) -> tuple[Rows, Checks]:
    tasks = draw_tasks(key, config.draws, LinearRegression(**sizes(config), num_queries=8))
    first = jax.tree.map(lambda leaf: np.asarray(leaf)[0], tasks)
    # models whose shapes alone are read
    models = {name: jax.eval_shape(partial(build, name, config), first) for name in config.solvers}
    rows, checks = [], {}
    for name, model in models.items():
        errors, gaps = measure(tasks, name, config)
        blocks, most, steps = model.blocks_per_step, SOLVERS[name][-1], np.arange(config.steps + 1)
        axes = {"solver": [name], "draw": range(config.draws), "step": steps}
        rows += tidy(axes, gap=gaps[None], blocks=blocks * steps)
        checks |= {
            f"{name}: |slots - one step of the solver| / |iterates| <= 1e-12": errors,
            f"{name}: blocks in one step <= {most}": blocks,
        }
        if name not in ("Chebyshev", "Jacobi", "Nystrom"):
            last = at_most(gaps[:, config.num_features + 1], 1e-8)
            checks[f"{name}: gap to f* after p + 1 steps <= 1e-8"] = last
    if mesa_layer := models.get("one attention layer"):
        layers = sum(bool(block.attention) for block in mesa_layer.weights.steps)
        one = at_most(layers, 1, reading="a block has several layers of units after its attention")
        checks["one attention layer: blocks with attention in one step <= 1"] = one
    forms = [model for name, model in models.items() if "conjugate" in SOLVERS[name][0]]
    counts = np.array([1, 2, 4, 8])
    depths = [[model.replace(steps=int(t)).depth for t in counts] for model in forms]
    fewest = stated(min(model.blocks_per_step for model in forms))
    depth = at_most(depths, 6 * counts + 4, reading="several blocks for each step")
    return rows, {
        "smallest number of blocks in one step of conjugate gradient <= 1": fewest,
        "depth of t steps of conjugate gradient <= 6 t + 4": depth,
        **checks,
    }


def build(name: str, config: Config, task: Task) -> Transformer:
    construct = getattr(constructions, SOLVERS[name][0], one_attention)
    return construct(KERNEL, num_features=config.num_features, **needs(name, config, task))


def needs(name: str, config: Config, task: Task) -> dict[str, Any]:
    options = {"ridge": config.ridge, "steps": config.steps, **SOLVERS[name][1]}
    if name == "Chebyshev":
        options["spectrum"] = theory.spectral_bounds(KERNEL, task, ridge=config.ridge)
    if name == "Nystrom":
        options["preconditioner"] = nystrom(KERNEL, task.x, ridge=config.ridge, rank=2)
    return options


@every(static=("name", "config"))
def measure(task: Task, name: str, config: Config) -> tuple[jax.Array, jax.Array]:
    """Gaps to f*, and errors [draw, step, state] that each step makes from the slots before it."""
    cache = run_with_cache(build(name, config, task), task)[1]
    path = [cache[state] for state in STATES]
    if name == "Chebyshev":
        oracle = solvers.chebyshev(KERNEL, task, **needs(name, config, task))
        expected = [getattr(oracle, state) for state in STATES]
    else:
        A = system(KERNEL, task).gram + config.ridge * jnp.eye(config.num_supports)
        inverse = preconditioner(name, A, config, task)
        start = jnp.zeros_like(task.y), task.y, matmul(inverse, task.y)
        step = partial(conjugate_gradient_step, A, inverse)
        after = jax.vmap(step)(*(states[:-1] for states in path))
        expected = [jnp.vstack(pair) for pair in zip(start, after, strict=True)]
    slots = jnp.stack(path)
    errors = jnp.abs(slots - jnp.stack(expected)) / jnp.max(abs(slots), axis=(1, 2), keepdims=True)
    exact = solvers.exact(KERNEL, task, ridge=config.ridge).prediction
    return jnp.max(errors, axis=2).T, gap(cache["prediction"], exact[None])


def conjugate_gradient_step(
    A: jax.Array, inverse: jax.Array, alpha: jax.Array, r: jax.Array, p: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Apply the recurrences of the source; `inverse` is the inverse of the preconditioner."""
    Ap = matmul(A, p)
    rz = jnp.sum(r * matmul(inverse, r))
    gamma = rz / jnp.sum(p * Ap)
    r = r - gamma * Ap
    z = matmul(inverse, r)
    return alpha + gamma * p, r, z + (jnp.sum(r * z) / rz) * p


def preconditioner(name: str, A: jax.Array, config: Config, task: Task) -> jax.Array:
    if name == "Jacobi":
        return jnp.diag(1 / jnp.diag(A))
    if name == "Nystrom":
        sketch = needs(name, config, task)["preconditioner"]
        features = sketch.features(task.x)
        return (jnp.eye(len(A)) - matmul(features, matmul(sketch.core, features.T))) / config.ridge
    return jnp.eye(len(A))


CLAIM = Claim(
    statement="One block of linear attention computes one step of (preconditioned) conjugate "
    "gradient on A = K + ridge I exactly: the new coefficients alpha, residual r and search "
    "direction p.",
    truth="The blocks compute the steps exactly, but a step takes 5 blocks in textbook form, 3 in "
    "fused form, 2 in pipelined form and 6 with a Nystrom preconditioner. The reason is that "
    "gamma = r.r / p.Ap is a quotient by a sum over pairs of tokens. One layer of attention and "
    "one layer of gated units (products and quotients) cannot compute this quotient from alpha, r "
    "and p and multiply it by p. With four layers of units after the attention, and X^T X in p^2 "
    "more channels, one layer of attention is enough. One step of the Chebyshev iteration, which "
    "divides nothing, takes 1 block. So t steps take depth O(t), as prop.md of the author says.",
    untested=("a form that takes one block because it stores more vectors and sums",),
    source="Cawley 2025, paper/sections/theory.md, lemma 3",
    quote="A Linear Attention Transformer (LAT) block can implement one step of PCG: alpha_{t+1} "
    "= alpha_t + gamma_t p_t, r_{t+1} = r_t - gamma_t A p_t, p_{t+1} = r_{t+1} + beta_t p_t where "
    "A = K + lambda I. The scalar coefficients gamma_t, beta_t are computed via the aggregator "
    "token, and the matrix-vector product A p_t is computed via the attention mechanism.",
    expected=CORRECTED,
    required_inputs=THIS_TASK,
    run=run,
    config=Config(draws=50, num_supports=32, num_features=4, ridge=0.1, steps=6),
    axes=Config(solvers=tuple(SOLVERS)),
    quick=Config(draws=5, solvers=("textbook", "one attention layer", "Chebyshev")),
    plot=Plot(x="blocks", y="gap", by=("solver",)),
)
