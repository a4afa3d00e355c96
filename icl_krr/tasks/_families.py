"""Samplers of functions that are not Gaussian processes: networks, trees, sinusoids and tables."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._core import checks
from .._core.numerics import matmul
from .._core.pytree import pytree_dataclass, static
from . import _samplers
from ._columns import Scaling
from ._tables import Table
from ._task import Task


@pytree_dataclass
class Functions(_samplers.InOneProgram):
    """Base class of samplers that evaluate a random function at random inputs."""

    noise: Any = 0.0
    num_features: int = static(default=8)
    num_supports: int = static(default=64)
    num_queries: int = static(default=1)
    num_outputs: int | None = static(default=None)
    inputs: str = static(default="normal")

    def __post_init__(self):
        _samplers.check_sizes(self)
        _samplers.check_noise(self.noise)
        checks.choice("inputs", self.inputs, _samplers.INPUTS)

    def function(self, key: jax.Array, x: Float[Array, "rows p"], r: int) -> jax.Array:
        """Draw a random function $f$ with r outputs and evaluate it at `x`.

        Args:
            r: number of outputs.
        """
        raise NotImplementedError

    def draw(self, key: jax.Array, active: Any) -> Task:
        at, function, error = jax.random.split(key, 3)
        x = _samplers.draw_inputs(at, self, active)
        return _samplers.observe(error, x, self.function(function, x, self.num_outputs or 1), self)


@pytree_dataclass
class ReLUNetwork(Functions):
    r"""Tasks of a random network with one hidden layer of ReLU units.

    $$f(x) = \sum_{h=1}^{H} a_h \max(w_h^T x, 0), \quad w_h \sim N(0, I / p), \quad
    a_h \sim N(0, 2 / H)$$

    Args:
        hidden: number $H$ of hidden units; default 100.

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


@pytree_dataclass
class DecisionTree(Functions):
    r"""Tasks of a random decision tree whose nodes test the sign of one coordinate of x.

    The tree is a full binary tree. Each node tests a coordinate drawn uniformly at random. The
    value $f(x)$ is the value of the leaf that x reaches, and leaves have values $N(0, 1)$.

    Args:
        depth: depth of the tree, 1 to 20, which gives $2^{depth}$ leaves; default 4.

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
            raise ValueError(
                f"depth must be <= 20 because a tree has 2^depth leaves, got {self.depth}"
            )

    def function(self, key: jax.Array, x: Float[Array, "rows p"], r: int) -> jax.Array:
        nodes, leaves = jax.random.split(key)
        features = jax.random.randint(nodes, (2**self.depth,), 0, x.shape[1])
        node = jnp.ones(len(x), int)  # heap order: the children of node i are 2 i and 2 i + 1
        for _ in range(self.depth):
            goes_right = jnp.take_along_axis(x, features[node][:, None], 1)[:, 0] > 0
            node = 2 * node + goes_right.astype(node.dtype)
        return jax.random.normal(leaves, (2**self.depth, r))[node - 2**self.depth]


@pytree_dataclass
class Sinusoids(Functions):
    r"""Tasks of a random sine wave along a random direction.

    $$f(x) = a \sin(\omega w^T x + \varphi), \quad w \sim N(0, I / p)$$

    The amplitude $a$ is uniform in (0.5, 1.5) and the phase $\varphi$ is uniform in $(0, 2\pi)$.

    Args:
        frequency: angular frequency $\omega$ > 0 in radians per unit of x; may be traced; default
            3.

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
        size_key, wave_key, phase_key = jax.random.split(key, 3)
        size = jax.random.uniform(size_key, (r,), minval=0.5, maxval=1.5)
        wave = jax.random.normal(wave_key, (x.shape[1], r)) / jnp.sqrt(x.shape[1])
        phase = 2 * jnp.pi * jax.random.uniform(phase_key, (r,))
        frequency = jnp.asarray(self.frequency, x.dtype)
        return size[None] * jnp.sin(frequency * matmul(x, wave) + phase[None])


@pytree_dataclass
class Rows(_samplers.InOneProgram):
    """Tasks of random rows of a table, drawn without replacement.

    The sampler centres x and y of each task and scales them to unit variance, with the mean and
    standard deviation of the supports only. A column that is constant in the supports is only
    centred. `Rows.of` makes this sampler from a `Table`.

    Raises:
        ValueError: the table has fewer than n + q rows.

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
        checks.shapes(x=(self.x, "rows p"), y=(self.y, "rows"))
        for name in ("num_supports", "num_queries"):
            checks.count(name, getattr(self, name))
        needed = self.num_supports + self.num_queries
        if len(self.x) < needed:
            raise ValueError(
                f"num_supports + num_queries must be <= {len(self.x)}, the number of rows of the "
                f"table, got {needed}"
            )

    @classmethod
    def of(cls, table: Table, num_supports: int = 64, num_queries: int = 1) -> Rows:
        """Make the sampler from a `Table`, whose columns are first standardised over all rows."""
        checks.instance("table", table, Table, "an icl_krr.tasks.Table")
        x, y = (jnp.asarray(Scaling.of(part).apply(part)) for part in (table.x, table.y))
        return cls(x, y, num_supports, num_queries)

    @property
    def num_features(self) -> int:
        """The number p of the table's features."""
        return self.x.shape[1]

    def draw(self, key: jax.Array, active: Any) -> Task:
        n = self.num_supports
        indices = jax.random.choice(key, len(self.x), (n + self.num_queries,), replace=False)

        def standardise(values: jax.Array) -> jax.Array:
            supports = values[:n]
            mean, varies = jnp.mean(supports, axis=0, keepdims=True), jnp.ptp(supports, axis=0) > 0
            return (values - mean) / jnp.where(varies, jnp.std(supports, axis=0), 1)[None]

        x = _samplers.restrict(standardise(self.x[indices]), active)
        y = standardise(self.y[indices])
        return Task(x=x[:n], y=y[:n], x_query=x[n:], y_query=y[n:])
