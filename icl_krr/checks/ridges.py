"""Checks of ridges: one number, or one for each feature."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from .numbers import positive, positive_scalar


def ridges(value: Any, num_features: int) -> None:
    """Raise an error unless the ridge is a number > 0, or one for each of m features."""
    if value is None:
        raise TypeError("ridge must be a number > 0, got None")
    positive("ridge", value)
    if jnp.ndim(value) and jnp.shape(value) != (num_features,):
        raise ValueError(
            f"ridge must be a number or a vector [m] with m = {num_features}, the number of "
            f"features, got shape {list(jnp.shape(value))}"
        )


def one_ridge(value: Any) -> None:
    """Refuse a vector where the ridge is the variance of the noise."""
    if jnp.ndim(value) == 1:
        raise ValueError(
            f"ridge must be a scalar, the variance of the noise, got shape {list(value.shape)}; "
            "for one ridge a feature, use the projection ridge ** -0.5 * U and the ridge 1"
        )
    positive_scalar("ridge", value)
