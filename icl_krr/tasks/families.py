"""Functions that no kernel generates: networks, trees, waves, and the rows of a table."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import checks
from ..numerics import matmul
from ..pytree import checked, static
from .samplers import INPUTS, check_noise, check_sizes, draw_inputs, observe, restrict
from .tables import Table
from .task import Task


@checked
class Functions:
    """Random functions at random inputs: `function` gives f [rows, r] at x [rows, p]."""

    noise: Any = 0.0
    num_features: int = static(default=8)
    num_supports: int = static(default=64)
    num_queries: int = static(default=1)
    num_outputs: int | None = static(default=None)
    inputs: str = static(default="normal")

    def __post_init__(self):
        check_sizes(self)
        check_noise(self.noise)
        checks.choice("inputs", self.inputs, INPUTS)

    def function(self, key: jax.Array, x: Float[Array, "rows p"], r: int) -> jax.Array:
        """The random function $f$ of this key, at `x` [rows, p]: [rows, r]."""
        raise NotImplementedError

    def sample(self, key: jax.Array, active: Any = None) -> Task:
        """The task of this key; `icl_krr.tasks.sample` calls it."""
        at, function, error = jax.random.split(key, 3)
        rows = self.num_supports + self.num_queries
        x = draw_inputs(at, (rows, self.num_features), self.inputs, active)
        return observe(error, x, self.function(function, x, self.num_outputs or 1), self)


@checked
class ReLUNetwork(Functions):
    r"""$f(x) = \sum_h a_h \max(w_h^T x, 0)$, $w_h \sim N(0, I / p)$, $a_h \sim N(0, 2 / H)$.

    $H$ is the number of `hidden` units, `noise` the variance of $y - f$, `inputs` are "normal",
    "uniform" in (-1, 1) or on the unit "sphere". With `num_outputs` unset y is [n], else
    [n, num_outputs].

    Raises ValueError for a negative noise, a count < 1 and unknown inputs.

    Source: Garg et al., What can transformers learn in-context?, 2022.

    >>> from icl_krr.tasks import sample
    >>> sample(jax.random.key(0), ReLUNetwork(num_features=3, num_supports=5)).y.shape
    (5,)
    """

    hidden: int = static(default=100)

    def __post_init__(self):
        super().__post_init__()
        checks.count("hidden", self.hidden)

    def function(self, key: jax.Array, x: Float[Array, "rows p"], r: int) -> jax.Array:
        first, second = jax.random.split(key)
        w = jax.random.normal(first, (x.shape[1], self.hidden)) / jnp.sqrt(x.shape[1])
        a = jax.random.normal(second, (self.hidden, r)) * jnp.sqrt(2 / self.hidden)
        return matmul(jax.nn.relu(matmul(x, w)), a)


@checked
class DecisionTree(Functions):
    """$f(x)$ is the leaf of a full binary tree of `depth`: each node asks for a coordinate's sign.

    Coordinates are uniform, the $2^{depth}$ leaves $N(0, 1)$. `noise` is the variance of $y - f$,
    `inputs` are "normal", "uniform" in (-1, 1) or on the unit "sphere". With `num_outputs` unset
    y is [n], else [n, num_outputs].

    Raises ValueError for a negative noise, a count < 1, a depth > 20 and unknown inputs.

    Source: Garg et al., What can transformers learn in-context?, 2022.

    >>> from icl_krr.tasks import sample
    >>> task = sample(jax.random.key(0), DecisionTree(depth=1, num_supports=99))
    >>> len(set(task.y.tolist()))
    2
    """

    depth: int = static(default=4)

    def __post_init__(self):
        super().__post_init__()
        checks.count("depth", self.depth)
        if self.depth > 20:
            raise ValueError(f"depth must be <= 20, for 2^depth leaves are drawn, got {self.depth}")

    def function(self, key: jax.Array, x: Float[Array, "rows p"], r: int) -> jax.Array:
        nodes, leaves = jax.random.split(key)
        asked = jax.random.randint(nodes, (2**self.depth,), 0, x.shape[1])
        node = jnp.ones(len(x), int)  # a heap: the children of i are 2 i and 2 i + 1
        for _ in range(self.depth):
            right = jnp.take_along_axis(x, asked[node][:, None], 1)[:, 0] > 0
            node = 2 * node + right.astype(node.dtype)
        return jax.random.normal(leaves, (2**self.depth, r))[node - 2**self.depth]


@checked
class Sinusoids(Functions):
    r"""$f(x) = a \sin(\omega w^T x + \varphi)$, $a$ in $(0.5, 1.5)$, $w \sim N(0, I / p)$.

    The phase $\varphi$ is in $(0, 2\pi)$; `frequency` $\omega > 0$ is traced, in radians per unit
    of x. `noise` is the variance of $y - f$, `inputs` are "normal", "uniform" in (-1, 1) or on the
    unit "sphere". With `num_outputs` unset y is [n], else [n, num_outputs].

    Raises ValueError for a negative noise, a frequency <= 0, a count < 1 and unknown inputs.

    Source: Finn et al., Model-agnostic meta-learning, 2017, section 5.1.

    >>> from icl_krr.tasks import sample
    >>> bool(jnp.all(jnp.abs(sample(jax.random.key(0), Sinusoids()).y) < 1.5))
    True
    """

    num_features: int = static(default=1)
    frequency: Any = 3.0

    def __post_init__(self):
        super().__post_init__()
        checks.positive_scalar("frequency", self.frequency)

    def function(self, key: jax.Array, x: Float[Array, "rows p"], r: int) -> jax.Array:
        of_size, of_wave, of_phase = jax.random.split(key, 3)
        size = jax.random.uniform(of_size, (r,), minval=0.5, maxval=1.5)
        wave = jax.random.normal(of_wave, (x.shape[1], r)) / jnp.sqrt(x.shape[1])
        phase = 2 * jnp.pi * jax.random.uniform(of_phase, (r,))
        frequency = jnp.asarray(self.frequency, x.dtype)
        return size[None] * jnp.sin(frequency * matmul(x, wave) + phase[None])


@checked
class Rows:
    """Random rows of a table, without replacement: supports and queries.

    `x` [rows, p] and `y` [rows] are arrays (`Rows.of` takes a `Table`). Both are centred and
    scaled to unit variance with the mean and standard deviation of the task's supports alone; a
    column that is constant there is only centred.

    Raises ValueError for a table of fewer rows than a task has supports and queries.

    >>> from icl_krr.tasks import diabetes, sample
    >>> task = sample(jax.random.key(0), Rows.of(diabetes(), num_supports=40))
    >>> task.x.shape, task.x_query.shape
    ((40, 10), (1, 10))
    """

    x: Any
    y: Any
    num_supports: int = static(default=64)
    num_queries: int = static(default=1)

    def __post_init__(self):
        for name in ("num_supports", "num_queries"):
            checks.count(name, getattr(self, name))
        needed = self.num_supports + self.num_queries
        if len(self.x) < needed:
            raise ValueError(
                f"num_supports + num_queries must be <= {len(self.x)} rows of the table, "
                f"got {needed}"
            )

    @classmethod
    def of(cls, table: Table, num_supports: int = 64, num_queries: int = 1) -> Rows:
        """The rows of a `Table`."""
        return cls(jnp.asarray(table.x), jnp.asarray(table.y), num_supports, num_queries)

    @property
    def num_features(self) -> int:
        """The number p of the table's features."""
        return self.x.shape[1]

    def sample(self, key: jax.Array, active: Any = None) -> Task:
        """The task of this key; `icl_krr.tasks.sample` calls it."""
        n = self.num_supports
        chosen = jax.random.choice(key, len(self.x), (n + self.num_queries,), replace=False)

        def standardise(rows: jax.Array) -> jax.Array:
            seen = rows[:n]
            mean, varies = jnp.mean(seen, axis=0, keepdims=True), jnp.ptp(seen, axis=0) > 0
            return (rows - mean) / jnp.where(varies, jnp.std(seen, axis=0), 1)[None]

        x, y = restrict(standardise(self.x[chosen]), active), standardise(self.y[chosen])
        return Task(x=x[:n], y=y[:n], x_query=x[n:], y_query=y[n:])
