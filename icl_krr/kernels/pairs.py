"""Pairs of a kernel and a ridge: the models that a Bayesian average is over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from .. import checks
from .kernel import Kernel, check_kernel


def check_pairs(
    kernel: Kernel | Sequence[Kernel], ridges: Any, name: str = "kernel"
) -> tuple[Kernel, ...]:
    """Check the kernels and ridges of G models, and return the G kernels.

    Errors call the argument with the kernels `name`.

    >>> import numpy as np
    >>> from icl_krr import Linear
    >>> len(check_pairs(Linear(), np.array([0.1, 1.0])))
    2
    """
    checks.floating("ridges", ridges)
    if jnp.ndim(ridges) != 1 or len(ridges) == 0:
        raise ValueError(
            f"ridges must be a vector [G] with the ridge of every model, got shape "
            f"{list(jnp.shape(ridges))}"
        )
    checks.positive("ridges", ridges)
    if isinstance(kernel, Kernel):
        return (kernel,) * len(ridges)
    if not isinstance(kernel, (tuple, list)):
        check_kernel(kernel)  # pyright: ignore[reportArgumentType]
    for one in kernel:
        check_kernel(one)
    if len(kernel) != len(ridges):
        raise ValueError(
            f"{name} must be one kernel or as many as ridges, {len(ridges)}, got {len(kernel)}"
        )
    return tuple(kernel)
