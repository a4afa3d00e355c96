"""Checks of the arguments of functions of predictive distributions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import checks
from .distribution import Predictive


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
    known = checks.concrete(predictive.variances)
    if known is not None:
        remedy = "; a model that has not converged can give such a variance"
        checks.each("variances", known, (known > 0) & np.isfinite(known), "> 0 and finite", remedy)
    if (known := checks.concrete(predictive.weights)) is not None:
        checks.each("weights", known, (known >= 0) & np.isfinite(known), ">= 0 and finite")
        total = known.sum(-1)
        near = np.abs(total - 1) < 1e3 * float(jnp.finfo(known.dtype).eps)
        checks.each("the sum of weights", total, near, "1")


def check_outputs(predictive: Any, y: Any) -> None:
    check_predictive(predictive)
    checks.floating("y", y)
    own, shape = np.shape(predictive.means)[:-1], np.shape(y)
    if shape[len(shape) - len(own) :] != own:
        raise ValueError(
            f"y must have the shape {list(own)} of the predictive distributions, or more axes "
            f"before these, got shape {list(shape)}"
        )
    checks.finite("y", y)


def check_probability(name: str, value: Any) -> None:
    checks.scalar(name, value)
    known = checks.concrete(value)
    if known is not None:
        checks.each(name, known, (known > 0) & (known < 1), "> 0 and < 1")


def arrays(predictive: Predictive) -> Predictive:
    return Predictive(*map(jnp.asarray, predictive))


def like(predictive: Predictive, values: Any) -> jax.Array:
    return jnp.asarray(values).astype(predictive.means.dtype)
