"""Predictive distributions: mixtures of Gaussians, and the checks of those that are given."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._core import checks
from .._core.readable import readable

F = TypeVar("F", bound=Callable)


@readable
class Predictive(NamedTuple):
    r"""The predictive distribution of an observed output, a mixture of G Gaussians.

    $$p(y) = \sum_g w_g \, N(y; m_g, v_g)$$

    The distribution is that of the output with its noise, not that of the function. One Gaussian is
    a mixture with G = 1. Leading axes are those of the outputs, such as [q] or [q, r].

    Attributes:
        weights: probabilities $w_g$ of the Gaussians, [..., G].
        means: means $m_g$.
        variances: variances $v_g$.

    >>> import numpy as np
    >>> both = Predictive(np.array([0.5, 0.5]), np.array([-1.0, 1.0]), np.array([2.0, 2.0]))
    >>> float(both.mean), float(both.variance)
    (0.0, 3.0)
    """

    weights: Float[Array, "... G"]
    means: Float[Array, "... G"]
    variances: Float[Array, "... G"]

    @property
    @jax.jit
    def mean(self) -> Float[Array, "..."]:
        """The mean of the mixture."""
        return jnp.sum(self.weights * self.means, axis=-1)

    @property
    @jax.jit
    def variance(self) -> Float[Array, "..."]:
        """The variance of the mixture: mean of the variances, plus variance of the means."""
        gaps = self.means - self.mean[..., None]
        return jnp.sum(self.weights * (self.variances + gaps**2), axis=-1)


def one_program(check: Callable[..., None]) -> Callable[[F], F]:
    """Compile a function, and check its arguments, by their names, before it runs."""

    def decorate(function: F) -> F:
        program, parameters = jax.jit(function), signature(function)

        @wraps(function)
        def call(*args: Any, **keywords: Any) -> Any:
            bound = parameters.bind(*args, **keywords)
            bound.apply_defaults()
            check(**bound.arguments)
            return program(*bound.args)

        return call  # pyright: ignore[reportReturnType]

    return decorate


def check_predictive(predictive: Any) -> None:
    checks.instance("predictive", predictive, Predictive, "an icl_krr Predictive")
    shape = np.shape(predictive.means)
    for name, value in zip(predictive._fields, predictive, strict=True):
        checks.floating(name, value)
        if np.shape(value) != shape or not shape or not shape[-1]:
            raise ValueError(
                f"{name} must have the shape [..., G] of the means with G >= 1, got shape "
                f"{list(np.shape(value))} and means of shape {list(shape)}"
            )
        if value.dtype != predictive.means.dtype:
            raise TypeError(
                f"{name} must have the dtype of the means, {predictive.means.dtype}, "
                f"got {value.dtype}"
            )
    checks.finite("means", predictive.means)
    values = checks.concrete(predictive.variances)
    if values is not None:
        hint = "; a model that has not converged can give such a variance"
        checks.each("variances", values, (values > 0) & np.isfinite(values), "> 0 and finite", hint)
    if (values := checks.concrete(predictive.weights)) is not None:
        checks.each("weights", values, (values >= 0) & np.isfinite(values), ">= 0 and finite")
        total = values.sum(-1)
        sums_to_one = np.abs(total - 1) < 1e3 * float(jnp.finfo(values.dtype).eps)
        checks.each("the sum of weights", total, sums_to_one, "1")


def check_outputs(predictive: Any, y: Any) -> None:
    check_predictive(predictive)
    checks.floating("y", y)
    expected, shape = np.shape(predictive.means)[:-1], np.shape(y)
    if shape[len(shape) - len(expected) :] != expected:
        raise ValueError(
            f"y must have the shape {list(expected)} of the predictive distributions, or more axes "
            f"before these, got shape {list(shape)}"
        )
    checks.finite("y", y)


def like(predictive: Predictive, values: Any) -> jax.Array:
    return jnp.asarray(values).astype(predictive.means.dtype)
