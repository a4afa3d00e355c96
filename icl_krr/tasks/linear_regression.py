"""Tasks whose function is linear."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from .. import capacity, checks
from ..kernels import Kernel, Linear
from ..linalg import one_by_one
from ..numerics import matmul
from ..pytree import checked, static
from .samplers import (
    InOneProgram,
    check_noise,
    check_points,
    check_sizes,
    draw_inputs,
    observe,
    restrict,
)
from .task import Task


@checked
class LinearRegression(InOneProgram):
    r"""Tasks of linear regression with random weights $w \sim N(0, I / p)$.

    The outputs at the supports are $y = w^T x + e$ with noise $e$. The outputs y_query at the
    queries are $w^T x$ without noise. Normal inputs are $x \sim N(0, Q S Q^T)$ with a random
    rotation $Q$ for each task and the diagonal matrix $S$ of the `spectrum`. Uniform inputs are
    $x = S^{1/2} u$ with $u$ uniform in $(-1, 1)^p$, without a rotation.

    Args:
        num_supports, num_queries, num_outputs: as in `icl_krr.tasks`,
            which also says what is raised.
        noise: variance >= 0 of $e$, a scalar; may be traced; default 0.1.
        condition: condition number >= 1 of the features' covariance, a scalar; may be traced;
            default 1. If `spectrum` is given, `condition` has no effect.
        spectrum: diagonal of $S$, p values > 0; may be traced; by default, the values decrease
            geometrically from 1 to 1 / `condition`.
        num_features: number p of features; default 8.
        inputs: distribution of x, "normal" (default) or "uniform".
        sparsity: number s of nonzero weights, from 0 to p. These weights are $N(0, 1 / s)$, and
            their positions are random and the same for all outputs. Default None, all weights are
            nonzero.

    >>> import jax
    >>> config = LinearRegression(num_features=4, condition=100.0, num_outputs=2)
    >>> config.sample(jax.random.key(1)).y.shape
    (64, 2)
    """

    noise: Any = 0.1
    condition: Any = 1.0
    spectrum: Any = None
    num_features: int = static(default=8)
    num_supports: int = static(default=64)
    num_queries: int = static(default=1)
    num_outputs: int | None = static(default=None)
    inputs: str = static(default="normal")
    sparsity: int | None = static(default=None)

    def __post_init__(self):
        check_sizes(self)
        check_noise(self.noise)
        checks.at_least("condition", self.condition, 1)
        checks.choice("inputs", self.inputs, ("normal", "uniform"))
        if self.sparsity is not None:
            checks.count("sparsity", self.sparsity)
            if self.sparsity > self.num_features:
                raise ValueError(
                    f"sparsity must be <= num_features = {self.num_features}, got {self.sparsity}"
                )
        if self.spectrum is not None:
            checks.positive("spectrum", self.spectrum)
            if jnp.shape(self.spectrum) != (self.num_features,):
                raise ValueError(
                    f"spectrum must hold num_features = {self.num_features} values, "
                    f"got shape {list(jnp.shape(self.spectrum))}"
                )

    def check_memory(self, key: jax.Array) -> None:
        check_points(key, self)
        if self.inputs == "normal":
            rotation = 2 * self.num_features**2
            capacity.check("rotation of the features", rotation, key, "use fewer features")

    def draw(self, key: jax.Array, active: Any) -> Task:
        at, rotation, weights, error = jax.random.split(key, 4)
        p, r = self.num_features, self.num_outputs or 1
        white = draw_inputs(at, self, None)
        spectrum = self.spectrum
        if spectrum is None:
            spectrum = jnp.asarray(self.condition, float) ** -jnp.linspace(0, 1, p)
        x = white * jnp.sqrt(jnp.asarray(spectrum)).astype(white.dtype)[None]
        if self.inputs == "normal":
            x = matmul(x, one_by_one(partial(jax.random.orthogonal, n=p))(rotation).T)
        x, w = restrict(x, active), jax.random.normal(weights, (p, r))
        if self.sparsity is not None:
            places = jax.random.permutation(jax.random.fold_in(weights, 0), p) < self.sparsity
            w = jnp.where(places[:, None], w, 0)
        f = matmul(x, w) / jnp.sqrt(self.sparsity or p)
        return observe(error, x, f, self)

    def optimal(self) -> tuple[Kernel, Any] | None:
        """Return the kernel and the ridge of the posterior mean, the predictor with the least MSE.

        Returns None if `noise` is 0, or if $w$ is sparse and therefore not Gaussian.
        """
        dense = self.sparsity is None and self.noise > 0
        return (Linear(), self.noise * self.num_features) if dense else None
