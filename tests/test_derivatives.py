"""Every derivative that has a rule of its own in the code, against differences in float64."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import cg, draw, relative

import icl_krr as ik
from icl_krr._core import linalg
from icl_krr._core.numerics import reciprocal
from icl_krr._core.rescaling import power_of_two_scale, rescaled
from icl_krr.transformer import _blockwise_softmax
from icl_krr.transformer._full_softmax import full_softmax, quotient
from icl_krr.transformer._masks import Order, key_positions
from icl_krr.transformer._ring_attention import wide_ring

STEP, TOLERANCE = 1e-6, 1e-5


class Case(NamedTuple):
    """A function that uses a rule, and its arguments; its results are of order 1.

    `modes` are those in which it can be differentiated, twice unless `order` is 1. With `axis`, its
    arguments are those of all devices along it, and the function is that of one.
    """

    rule: str
    name: str
    function: Callable
    arguments: tuple
    modes: tuple[Callable, ...] = (jax.jacfwd, jax.jacrev)
    order: int = 2
    axis: str | None = None


def symmetric(M):
    return M @ M.T + jnp.eye(len(M))


def decomposition(M):
    sigma, vectors = linalg.eigh(symmetric(M))
    return sigma, vectors**2  # an eigenvector has no sign of its own


def guarded(x):
    return reciprocal(x) * jnp.abs(VALUES)


def results(y, w):
    """Of the degrees 1, 2 and 0 in y."""
    return jnp.sin(w) * y, y * y * w, w * w * y / jnp.sum(jnp.abs(y), axis=0, keepdims=True)


def of_any_size(size, y, w):
    y = size * y
    scale = power_of_two_scale(y, axis=0 if size.ndim else None)
    parts = rescaled(scale, results, (1, 2, 0), y, w)
    return [
        part / jnp.broadcast_to(size**degree, part.shape)
        for part, degree in zip(parts, (1, 2, 0), strict=True)
    ]


def of_large_y(model, task):
    names, large = ("alpha", "rr"), task.replace(y=1e9 * task.y, y_query=None)
    prediction, slots = ik.run_with_cache(model, large, names=names)
    return prediction / 1e9, slots["alpha"] / 1e9, slots["rr"] / 1e18


def of_arrays(y):
    def layers(x, y, x_query):
        return np.stack([0 * x_query[:, 0], x_query @ (x.T @ y)])

    return ik.probes.array_layer_predictions(layers, 1)(ik.Task(x=X, y=y, x_query=Z))


def whole(order, q, k, v):
    return full_softmax(q, k, MASK, order)(v, MASK)


def in_tiles(order, q, k, v):
    return _blockwise_softmax.blockwise_softmax(q, k, v, MASK, order)


def on_devices(order, *parts):
    places = MASK, *key_positions(MASK, order)
    own = [part.reshape(3, 3)[jax.lax.axis_index("context")] for part in map(jnp.asarray, places)]
    return wide_ring(*parts, *own, order, ("context",))


VALUES = np.array([-2.0, 0.5, 1e-200, -1e200, 1e-300])
X, Z = np.random.default_rng(0).normal(size=(2, 6, 3))
M, U, MASK = np.random.default_rng(4).normal(size=(6, 6)), X[:2], np.arange(9) != 4
SIZES = np.array([[1e-9, 1.0, 1e9]])
ORDERS = {
    Order(): "every key",
    Order("own"): "own",
    Order("inclusive"): "inclusive",
    Order("exclusive"): "exclusive",
    Order("inclusive", 3): "window",
}


def heads(channels, size):
    """Queries, keys and values. Logits that differ by about 1 lie around the size."""
    q, k, v = np.random.default_rng(1).normal(size=(3, 9, channels)) / 3
    q[:, 0] = k[:, 0] = size**0.5
    return q, k * MASK[:, None], v * MASK[:, None]


def attention():
    """Of each order, and with few and many channels: logits of 900 need a shift.

    The slopes of slopes are those of the same rules, so one order is enough for them.
    """
    channels, sizes = (3, 3, 8, 3, 8), (900, 1, 1, 900, 900)
    for (order, name), d, size in zip(ORDERS.items(), channels, sizes, strict=True):
        at, twice = heads(d, size), name == "exclusive"
        options = {"modes": (jax.jacrev,), "order": 1 + twice}
        yield Case("quotient", name, partial(whole, order), at, **({} if twice else options))
        if name != "own":
            yield Case("wide_softmax", name, partial(in_tiles, order), at, **options)
            parts, ring = tuple(part.reshape(3, 3, -1) for part in at), partial(on_devices, order)
            yield Case("wide_ring", name, ring, parts, **options, axis="context")


CASES = [
    Case("solution", "", lambda M, b: linalg.solve(symmetric(M), b), (M, Z)),
    Case("log_determinant", "", lambda M: linalg.log_determinant(symmetric(M)), (M,)),
    Case("eigh", "", decomposition, (M,)),
    Case("eigenvalues", "", lambda M: linalg.eigenvalues(symmetric(M)), (M,)),
    Case("reciprocal", "", guarded, (VALUES,)),
    Case("run", "in y", partial(of_any_size, SIZES, w=Z), (X,)),
    Case("run", "in w", lambda w: of_any_size(SIZES, X, w), (Z,)),
    Case("run", "one scale", partial(of_any_size, np.array(1e9)), (X, Z)),
    Case("evaluate_rescaled", "", of_large_y, (cg(draw(0), 0.5, 2), draw(0)), (jax.jacrev,), 1),
    Case("predict", "", of_arrays, (X[:, 0],), order=1),
    Case("quotient", "", lambda a, b: quotient(a, b, 1 / b), (X, Z)),
    Case("squared_distances", "", lambda x, z: ik.Gaussian().log(100 + x, 100 + z), (X, Z)),
    *(
        Case(
            "logarithm",
            name,
            lambda *at, name=name: getattr(ik, name)(*at[2:]).log(*at[:2]),
            (X, Z, 1.5, U),
        )
        for name in ("Matern12", "Matern32", "Matern52")
    ),
    *attention(),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule} {case.name}".strip())
def test_a_rule_gives_the_slopes_of_its_function(x64, monkeypatch, case):
    """Along a random direction, those of three sums of all results, and their own slopes."""
    monkeypatch.setitem(_blockwise_softmax.TILE_SIDES, "cpu", 2)
    rng = np.random.default_rng(2)
    arguments = jax.tree.map(lambda part: np.asarray(part, float), case.arguments)
    directions = jax.tree.map(lambda part: part * rng.normal(size=part.shape), arguments)
    run = jax.jit(lambda t: derivatives(case, t, arguments, directions))
    for mode, *at in zip(case.modes, *map(run, (-STEP, 0.0, STEP)), strict=True):
        less, here, more = map(np.stack, at)
        for order, slope in enumerate((more - less)[:-1] / (2 * STEP), 1):
            assert relative(here[order], slope) < TOLERANCE, (mode.__name__, order)


def derivatives(case, t, arguments, directions):
    """The sums at `t` along the directions, and their derivatives, by each mode."""

    def of_one(arguments, directions):
        def sums(t):
            moved = jax.tree.map(lambda part, change: part + t * change, arguments, directions)
            parts = jnp.concatenate([*map(jnp.ravel, jax.tree.leaves(case.function(*moved)))])
            return np.random.default_rng(3).normal(size=(3, parts.size)) @ parts

        def nested(mode):
            derivative = sums
            for _ in range(case.order + 1):
                yield derivative(t)
                derivative = mode(derivative)

        return [[*nested(mode)] for mode in case.modes]

    if case.axis is None:
        return of_one(arguments, directions)
    together = jax.vmap(of_one, axis_name=case.axis)(arguments, directions)
    return jax.tree.map(lambda part: jnp.sum(part, axis=0), together)


def test_every_rule_has_a_case():
    sources = [path.read_text() for path in Path(ik.__file__).parent.rglob("*.py")]
    rules = re.findall(r"(\w+)\.def(?:jvps?|vjp)\b", "".join(sources))
    assert {*rules} == {case.rule for case in CASES}
    assert len(rules) == len({*rules}) > 10
