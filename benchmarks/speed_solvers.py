"""Forward passes and gradients of constructions, against the same solver as plain code."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.linalg import cho_factor, cho_solve

import icl_krr as ik
from benchmarks import speed_plain
from benchmarks.contests import Contest, Programs, scratch
from benchmarks.speed_plain import factored, formed, over_tasks
from icl_krr.catalogue import SOLVERS
from icl_krr.tasks import GaussianProcess, LinearRegression, map_tasks, sample

TEMPERATURE, LENGTHSCALE = 0.5, 0.7
RIDGE = 0.1 * float(np.exp(2.0))
"""Ridge of the default task of softmax attention: inputs on the unit circle."""

STREAMED = 2048
"""Supports from which softmax attention never holds a whole pattern, unless `streaming=False`."""

LIMITS: dict[str, Any] = {"target": 2.0, "tolerance": 0.05}
"""Of programs that differ from plain code by more than their order of sums."""

Route = tuple[ik.Kernel, Any, float]
"""Kernel, configuration of the tasks, and ridge."""


def draw(config: Any, batch: int, seed: int) -> ik.Task:
    keys = jax.random.split(jax.random.key(seed), batch)
    return jax.jit(lambda keys: jax.lax.map(lambda key: sample(key, config), keys))(keys)


def first(config: Any, seed: int) -> ik.Task:
    return jax.tree.map(lambda leaf: leaf[0], draw(config, 1, seed))


def linear(n: int = 64, p: int = 8) -> Route:
    return ik.Linear(), LinearRegression(num_features=p, num_supports=n, num_queries=1), 0.1


def exponential(n: int = 64, p: int = 2) -> Route:
    return circle(ik.Exponential(TEMPERATURE), n, p, RIDGE)


def gaussian(n: int = 64, p: int = 2) -> Route:
    return circle(ik.Gaussian(LENGTHSCALE), n, p, 1.0)


def circle(kernel: ik.Kernel, n: int, p: int, ridge: float) -> Route:
    sizes: dict[str, Any] = {"num_features": p, "num_supports": n, "num_queries": 1}
    return kernel, GaussianProcess(kernel, inputs="sphere", **sizes), ridge


Case = tuple[str, Callable[..., Route], str, dict[str, Any], float]
"""Name, kernel and tasks, row of the catalogue, options, goal."""


def cases() -> Iterator[Case]:
    """Every solver of a batch of tasks by each attention, but for variants without plain code."""
    for name, row in SOLVERS.items():
        variant = row.variant_of and name not in speed_plain.SOLVERS
        if variant or row.causal or row.one_task or not row.iterates:
            continue
        for attention in row.blocks:
            route, spectrum = linear, (0.1, 250.0)
            if attention == "softmax":
                route, spectrum = exponential if row.kernels == "any" else gaussian, (0.7, 300.0)
            kwargs = {"spectrum": spectrum, "num_supports": route()[1].num_supports}
            options = {part: kwargs[part] for part in row.keywords if part in kwargs}
            if (attention, name) == ("linear", "jacobi_conjugate_gradient"):
                options["ridge"] = 6.4  # with a smaller one, it converges too slowly to compare
            target = 1.5 if name == "chebyshev" else 2.0
            yield f"{attention}, {name}", route, name, options, target


def forwards(quick: bool, seed: int) -> Iterator[Contest]:
    """16 steps of the solvers in `cases`, n = 64, against plain code in chunks and by vmap."""
    for name, route, solver, options, target in islice(cases(), 1 if quick else None):
        for batch in (4,) if quick else (1, 256, 4096):
            title = f"{name}, {batch} tasks"
            yield against_plain("forward", title, route(), solver, options, batch, 16, seed, target)


def scaling(quick: bool, seed: int) -> Iterator[Contest]:
    """Conjugate gradient by linear and by softmax attention, as n, tasks, depth or p grows.

    The ridge is n / 10, so that conjugate gradient converges. Before convergence, float32 rounding
    changes its iterates by as much as their gap to the solution, and programs disagree.
    """
    start = {"n": 64, "tasks": 64, "depth": 16, "p": 4}
    grids = {
        "n": (16, 32, 64, 128, 256, 512, 1024),
        "tasks": (1, 4, 16, 64, 256, 1024),
        "depth": (4, 8, 16, 32, 64, 128),
        "p": (2, 4, 8, 16, 32, 64),
    }
    for label, route in (("linear", linear), ("softmax", exponential)):
        for axis, values in [*grids.items()][: 1 if quick else None]:
            for value in values[:1] if quick else values:
                at = {**start, axis: value}
                name, options = f"{label}, {axis} = {value}", {"ridge": at["n"] / 10}
                sized = route(n=at["n"], p=at["p"]), "conjugate_gradient", options
                yield against_plain("scaling", name, *sized, at["tasks"], at["depth"], seed)


def against_plain(
    suite: str,
    name: str,
    route: Route,
    solver: str,
    options: dict[str, Any],
    batch: int,
    steps: int,
    seed: int,
    target: float = 2.0,
) -> Contest:
    kernel, config, ridge = route
    options = {"ridge": ridge, "steps": steps, **options}
    row, p = SOLVERS[solver], config.num_features
    outputs = config.num_outputs or 1
    build = partial(ik.constructions.lookup(row), kernel, num_features=p, num_outputs=outputs)
    model = build(**row.options, **options)
    tasks = draw(config, batch, seed)
    forward = jax.jit(ik.predict_batch)
    ours, buffers = partial(forward, model, tasks), partial(scratch, forward, model, tasks)
    plain = speed_plain.plain_predictions(kernel, tasks, solver, options)
    # rounding changes inner products, and these change all later steps
    tolerance = 0.05 if row.sums else 1e-3
    size = {"n": config.num_supports, "tasks": batch, "depth": steps, "p": p}
    return Contest(suite, name, ours, plain, target, tolerance, scratch=buffers, size=size)


def constructed(route: Route, ridge: Any, steps: int) -> ik.Transformer:
    kernel, config, _ = route
    build = ik.constructions.conjugate_gradient
    return build(kernel, num_features=config.num_features, ridge=ridge, steps=steps)


def one_task(quick: bool, seed: int) -> Iterator[Contest]:
    """Conjugate gradient on one task, as in a notebook, n = 64 and 4096.

    Linear attention takes 6 steps, fewer than there are features, because plain code has no
    gradient after convergence. Softmax attention takes 16 steps. With softmax attention and
    n = 4096, plain code holds the kernel matrix, as the model does with `streaming=False`.
    """
    for label, route, steps in (("linear", linear, 6), ("softmax", exponential, 16)):
        for n in (16,) if quick else (64, 4096):
            kernel, config, _ = route(n=n)
            ridge = n / 10  # with a smaller ridge, programs disagree before convergence
            model, task = constructed(route(n=n), ridge, steps), first(config, seed)
            plain = partial(plain_prediction, kernel, ridge, steps)
            ways = {"": model}
            if label == "softmax" and n >= STREAMED:
                ways[", streaming=False"] = model.replace(spec=replace(model.spec, streaming=False))
            for way, variant in ways.items():
                yield from called(f"one task, {label}, CG, n = {n}{way}", variant, task, plain)


def plain_prediction(kernel: ik.Kernel, ridge: float, steps: int, task: ik.Task) -> jax.Array:
    system = factored if kernel.featured else formed
    return speed_plain.conjugate_gradient(system(kernel, task), ridge, steps)


def called(
    name: str, model: ik.Transformer, task: ik.Task, plain: Callable[[ik.Task], jax.Array]
) -> Iterator[Contest]:
    def slopes(task: ik.Task, run: Callable[[ik.Task], jax.Array]) -> jax.Array:
        return jax.grad(lambda y: jnp.sum(run(task.replace(y=y, y_query=None))))(task.y)

    jitted, competitor = jax.jit(ik.predict), jax.jit(plain)
    constant = jax.jit(partial(ik.predict, model))
    gradient, of_competitor = (jax.jit(partial(slopes, run=run)) for run in (constant, plain))
    size = {"n": task.num_supports, "tasks": 1, "depth": model.steps}
    for what, run, other, compiled in (
        ("predict", partial(ik.predict, model), competitor, (jitted, model)),
        ("jit, model as argument", partial(jitted, model), competitor, (jitted, model)),
        ("jit, weights as constants", constant, competitor, (jitted, model)),
        ("gradient in y", gradient, of_competitor, (gradient,)),
    ):
        ours, rival = partial(run, task), {"plain": partial(other, task)}
        buffers = partial(scratch, *compiled, task)
        yield Contest("task", f"{name}: {what}", ours, rival, **LIMITS, scratch=buffers, size=size)


def gradients(quick: bool, seed: int) -> Iterator[Contest]:
    """The gradient of the loss in temperature and ridge; our program constructs the weights."""
    steps, batch = (2, 4) if quick else (32, 256)
    _, config, _ = exponential()
    tasks = draw(config, batch, seed)

    def ours(at: jax.Array) -> jax.Array:
        model = constructed((ik.Exponential(at[0]), config, RIDGE), at[1], steps)
        return jnp.mean((ik.predict_batch(model, tasks) - tasks.y_query) ** 2)

    def plain(at: jax.Array, task: ik.Task) -> jax.Array:
        solution = speed_plain.conjugate_gradient(formed(ik.Exponential(at[0]), task), at[1], steps)
        return jnp.mean((solution - task.y_query) ** 2)

    def mean(run: Callable[[ik.Task], Any], tasks: ik.Task) -> jax.Array:
        return jnp.mean(run(tasks), axis=0)

    at, slope = jnp.array([TEMPERATURE, RIDGE]), jax.jit(jax.grad(ours))
    ways = over_tasks(lambda task: jax.grad(plain)(at, task), tasks)
    title = f"softmax, CG, d loss / d (temperature, ridge), {steps} steps, {batch} tasks"
    rivals = {f"plain, {way}": partial(jax.jit(partial(mean, f)), tasks) for way, f in ways.items()}
    run, buffers = partial(slope, at), partial(scratch, slope, at)
    size = {"n": config.num_supports, "tasks": batch, "depth": steps}
    yield Contest("gradient", title, run, rivals, **LIMITS, scratch=buffers, size=size)


def linear_context(quick: bool, seed: int) -> Iterator[Contest]:
    """8 conjugate gradient steps by linear attention, against solvers with K v = X (X^T v)."""
    for n in (1000,) if quick else (10_000, 100_000, 1_000_000):
        kernel, config, _ = linear(n=n)
        ridge = n / 100  # with a smaller ridge, float32 rounding of the sums dominates
        model, task = constructed(linear(n=n), ridge, 8), first(config, seed)

        def scipy(task: ik.Task, ridge: float = ridge) -> jax.Array:
            system = factored(ik.Linear(), task)
            A = lambda v: system.K(v) + ridge * v  # noqa: E731
            return system.k(jax.scipy.sparse.linalg.cg(A, task.y, tol=0, maxiter=8)[0])

        programs = {"jax.scipy cg": scipy, "plain": partial(plain_prediction, kernel, ridge, 8)}
        rivals = {f"{k}, K v = X (X^T v)": partial(jax.jit(f), task) for k, f in programs.items()}
        forward, title = jax.jit(ik.predict), f"linear attention, n = {n}"
        ours, buffers = partial(forward, model, task), partial(scratch, forward, model, task)
        size = {"n": n, "depth": 8, "p": config.num_features}
        yield Contest("context", title, ours, rivals, **LIMITS, scratch=buffers, size=size)


def exact(quick: bool, seed: int) -> Iterator[Contest]:
    """Exact KRR with one query, against SciPy in a loop and PyTorch."""
    sizes = ((8, 16),) if quick else ((256, 64), (4096, 64), (4096, 128))
    for double in (False, True):
        for batch, n in sizes[1:2] if double else sizes:
            with jax.enable_x64(double):
                contest = regression(batch, n, seed)
            yield contest
    if not quick:
        yield slope(4096, 64, seed)


def slope(batch: int, n: int, seed: int) -> Contest:
    """The gradient of exact KRR in x and y, against its forward pass."""
    kernel, config, ridge = exponential(n=n)
    tasks = draw(config, batch, seed)

    def predict(x: jax.Array, y: jax.Array, task: ik.Task) -> jax.Array:
        return jnp.sum(ik.solvers.exact(kernel, task.replace(x=x, y=y), ridge=ridge).prediction)

    gradient = jax.grad(predict, argnums=(0, 1))
    forward, backward = (
        jax.jit(lambda tasks, f=f: map_tasks(lambda t: f(t.x, t.y, t), tasks))
        for f in (predict, gradient)
    )
    name = f"gradient of exact KRR over its forward, {batch} tasks, n = {n}"
    competitors: Programs = {"icl_krr, forward": lambda: forward(tasks)}
    options: dict[str, Any] = {"target": 1.8, "tolerance": None, "size": {"tasks": batch, "n": n}}
    return Contest("exact", name, lambda: backward(tasks), competitors, **options)


def regression(batch: int, n: int, seed: int) -> Contest:
    kernel, config, ridge = exponential(n=n)
    tasks = draw(config, batch, seed)
    solve = lambda task: ik.solvers.exact(kernel, task, ridge=ridge).prediction  # noqa: E731
    run, dtype = jax.jit(lambda tasks: map_tasks(solve, tasks)), tasks.x.dtype

    def ours() -> jax.Array:
        with jax.enable_x64(dtype == jnp.float64):
            return run(tasks)

    name, size = f"exact KRR, {batch} tasks, n = {n}, {dtype}", {"tasks": batch, "n": n}
    rivals = exact_rivals(np.array(tasks.x), np.array(tasks.y), np.array(tasks.x_query), ridge)
    return Contest("exact", name, ours, rivals, target=0.3, dtype=str(dtype), size=size)


def exact_rivals(x: np.ndarray, y: np.ndarray, at: np.ndarray, ridge: float) -> Programs:
    def loop() -> np.ndarray:
        predictions, scale = [], x.dtype.type(TEMPERATURE)
        for x_, y_, at_ in zip(x, y, at, strict=True):
            A = np.exp(x_ @ x_.T / scale)
            A[np.diag_indices(len(A))] += ridge
            factor = cho_factor(A, lower=True, overwrite_a=True, check_finite=False)
            alpha = cho_solve(factor, y_, check_finite=False)
            predictions.append(np.exp(at_ @ x_.T / scale) @ alpha)
        return np.stack(predictions)

    try:
        import torch
    except ImportError:
        return {"SciPy, loop": loop}
    X, Y, Q = map(torch.from_numpy, (x, y, at))

    def batched(solve: Callable[[Any, Any], Any]) -> np.ndarray:
        A = torch.exp(X @ X.mT / TEMPERATURE) + ridge * torch.eye(x.shape[1], dtype=X.dtype)
        return (torch.exp(Q @ X.mT / TEMPERATURE) @ solve(A, Y[..., None]))[..., 0].numpy()

    def by_cholesky(A: Any, b: Any) -> Any:
        return torch.cholesky_solve(b, torch.linalg.cholesky(A))

    solvers = {"torch, Cholesky": by_cholesky, "torch, solve": torch.linalg.solve}
    return {"SciPy, loop": loop} | {name: partial(batched, f) for name, f in solvers.items()}
