"""The solvers of `icl_krr.solvers`, on chunks of tasks, against those of other libraries."""

# pyright: reportMissingImports=false
# the other libraries may be missing

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp

from .. import solvers
from ..tasks import Task, map_tasks
from .contest import Contest
from .draws import RIDGE, TEMPERATURE, draw, exponential
from .peers import conjugate_gradients, exact_regression, installed


def exact(quick: bool, seed: int) -> Iterator[Contest]:
    """Exact KRR with one query; then its gradient in x and y against its forward pass."""
    sizes = ((8, 16),) if quick else ((256, 64), (4096, 64), (4096, 128))
    for double in (False, True):
        for batch, n in sizes[1:2] if double else sizes:
            with jax.enable_x64(double):
                contest = regression(batch, n, seed)
            yield contest
    if not quick:
        yield slope(4096, 64, seed)


def regression(batch: int, n: int, seed: int) -> Contest:
    kernel, config, ridge = exponential(n=n)
    tasks = draw(config, batch, seed)
    solve = lambda task: solvers.exact(kernel, task, ridge=ridge).prediction  # noqa: E731
    run = jax.jit(lambda tasks: map_tasks(solve, tasks))
    rivals = exact_regression(tasks.x, tasks.y, tasks.x_query, TEMPERATURE, ridge)
    dtype = tasks.x.dtype

    def ours() -> jax.Array:
        with jax.enable_x64(dtype == jnp.float64):
            return run(tasks)

    return Contest(
        "exact",
        f"exact KRR, {batch} tasks, n = {n}, {dtype}",
        ours,
        rivals or {"icl_krr, again": ours},
        target=0.3,
        dtype=str(dtype),
        size={"tasks": batch, "n": n},
    )


def slope(batch: int, n: int, seed: int) -> Contest:
    kernel, config, ridge = exponential(n=n)
    tasks = draw(config, batch, seed)

    def predict(x: jax.Array, y: jax.Array, task: Task) -> jax.Array:
        return solvers.exact(kernel, task.replace(x=x, y=y), ridge=ridge).prediction

    gradient = jax.grad(lambda x, y, task: jnp.sum(predict(x, y, task)), argnums=(0, 1))
    forward = jax.jit(lambda tasks: map_tasks(lambda t: predict(t.x, t.y, t), tasks))
    backward = jax.jit(lambda tasks: map_tasks(lambda t: gradient(t.x, t.y, t), tasks))
    return Contest(
        "exact",
        f"gradient of exact KRR over its forward, {batch} tasks, n = {n}",
        lambda: backward(tasks),
        {"icl_krr, forward": lambda: forward(tasks)},
        target=1.8,
        tolerance=None,
        size={"tasks": batch, "n": n},
    )


def iterative(quick: bool, seed: int) -> Iterator[Contest]:
    """16 iterations of conjugate gradient, including the Gram matrix, n = 64."""
    batch = 8 if quick else 4096
    kernel, config, ridge = exponential()
    tasks = draw(config, batch, seed)

    def solve(task: Task) -> jax.Array:
        return solvers.conjugate_gradient(kernel, task, ridge=ridge, steps=16).prediction[-1]

    def jax_cg(task: Task) -> jax.Array:
        A = kernel(task.x, task.x) + ridge * jnp.eye(task.num_supports)
        alpha, _ = jax.scipy.sparse.linalg.cg(lambda v: A @ v, task.y, tol=0, maxiter=16)
        return kernel(task.x_query, task.x) @ alpha

    programs = {"ours": solve, "jax.scipy cg": jax_cg}
    if installed("lineax"):
        import lineax as lx

        def lineax_cg(task: Task) -> jax.Array:
            A = kernel(task.x, task.x) + ridge * jnp.eye(task.num_supports)
            operator = lx.MatrixLinearOperator(A, lx.positive_semidefinite_tag)
            solver = lx.CG(rtol=0.0, atol=0.0, max_steps=16)
            solution = lx.linear_solve(operator, task.y, solver, throw=False)
            return kernel(task.x_query, task.x) @ solution.value

        programs["lineax"] = lineax_cg
    jitted = {name: jax.jit(lambda tasks, f=f: map_tasks(f, tasks)) for name, f in programs.items()}
    peers = {name: lambda f=f: f(tasks) for name, f in jitted.items() if name != "ours"}
    peers |= conjugate_gradients(tasks.x, tasks.y, tasks.x_query, TEMPERATURE, RIDGE)
    yield Contest(
        "iterative",
        f"conjugate gradient, {batch} tasks, n = 64",
        lambda: jitted["ours"](tasks),
        peers,
        target=1.0,
        tolerance=0.05,
        size={"tasks": batch, "n": 64, "depth": 16},
    )
