"""What the experiments of the claims share: tasks, a grid of runs, its rows, and measures."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial, wraps
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ... import Kernel, Read, Softmax, Task, Transformer, theory
from .._shared.draws import draw_tasks as draw_tasks, project as project
from .._shared.rows import Plot as Plot, Rows as Rows, tidy as tidy


def every(
    *axes: int, together: bool = False, static: str | tuple[str, ...] = "config"
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Run a function at every combination of values of its first arguments, in one program.

    `axes` says how many axes of values each has, by default one argument with one; the results have
    these axes first. The number 0 is one axis by vmap. The first two arguments may go `together`.
    A single key stands for those of `config.draws` draws, where the config is the last argument.
    The results are arrays of NumPy, by name if the function returns a dict.
    """

    def over(run: Callable[..., Any], axes: tuple[int, ...], first: Any, *others: Any) -> Any:
        if axes[0] > 1:
            fewer = axes[0] - 1, *axes[1:]
            return jax.lax.map(lambda part: over(run, fewer, part, *others), first)
        each = (lambda value: over(partial(run, value), axes[1:], *others)) if others else run
        return jax.lax.map(each, first) if axes[0] else jax.vmap(each)(first)

    def decorate(run: Callable[..., Any]) -> Callable[..., Any]:
        @partial(jax.jit, static_argnames=static)
        @wraps(run)
        def program(*arguments: Any) -> Any:
            if together:
                return jax.lax.map(lambda pair: run(*pair, *arguments[2:]), arguments[:2])
            each = axes or (1,)
            at = lambda *point: run(*point, *arguments[len(each) :])  # noqa: E731
            return over(at, each, *arguments[: len(each)])

        @wraps(run)
        def measure(first: Any, *others: Any) -> Any:
            if getattr(first, "ndim", 1) == 0:
                first = jax.random.split(first, others[-1].draws)
            value = program(first, *others)
            return fields(value) if isinstance(value, dict) else jax.tree.map(np.asarray, value)

        measure.clear_cache = program.clear_cache  # pyright: ignore[reportAttributeAccessIssue]
        return measure

    return decorate


def softmax(kernel: Kernel, task: Task) -> Softmax:
    """Softmax attention with a sink that recovers the products with K on this task."""
    return Softmax(log_sink=theory.log_sink(kernel, task))


def reading(model: Transformer, **blocks: jax.Array) -> Transformer:
    """The model whose stream is embedded with other weights of these fields of the tokens."""
    read = model.weights.embedding["stream"]
    embedding = {**model.weights.embedding, "stream": Read(read.blocks | blocks, read.width)}
    return model.replace(weights=replace(model.weights, embedding=embedding))


def sizes(config: Any) -> dict[str, Any]:
    """The sizes of tasks that the settings of a claim name, as options of a family of tasks."""
    names = ("num_features", "num_supports", "num_queries")
    return {name: getattr(config, name) for name in names if hasattr(config, name)}


def fields(results: Mapping[str, Any]) -> SimpleNamespace:
    """What was measured, by name, in arrays of NumPy."""
    return SimpleNamespace(**{name: np.asarray(values) for name, values in results.items()})


def stacked(parts: Iterable[SimpleNamespace], axis: int = 0) -> SimpleNamespace:
    """Measurements of several kinds, each array with one more axis for the kinds."""
    each = [vars(part) for part in parts]
    return SimpleNamespace(**{k: np.stack([values[k] for values in each], axis) for k in each[0]})


def gap(actual: jax.Array, expected: jax.Array) -> jax.Array:
    """|found - expected| / |expected| in the Euclidean norm of the last axis."""
    return jnp.linalg.norm(actual - expected, axis=-1) / jnp.linalg.norm(expected, axis=-1)


def largest_gap(actual: jax.Array, expected: jax.Array) -> jax.Array:
    """|found - expected| / |expected| in the largest entry."""
    return jnp.max(jnp.abs(actual - expected)) / jnp.max(jnp.abs(expected))


def slot_gaps(cache: Any, path: Any, *names: str) -> jax.Array:
    """The largest gaps of slots to the iterates of a solver, over the steps of the path."""
    pairs = [(cache[name], getattr(path, name)) for name in names]
    return jnp.stack([largest_gap(slot[: len(path)], path) for slot, path in pairs])


def exponent(sizes: Any, values: Any) -> float:
    """The exponent a of the fit values ~ sizes^a."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def first_below(errors: np.ndarray, limit: Any) -> np.ndarray:
    """The first step with an error [..., step] of at most the limit; steps + 1 if there is none."""
    below = errors <= limit
    return np.where(below.any(-1), np.argmax(below, axis=-1), errors.shape[-1])
