"""Bayesian model averaging over kernels and ridges, in one forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Unpack

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .. import checks
from ..kernels import Kernel
from ..transformer.weights import Transformer
from .assembly.mixture import Mixture
from .assembly.options import Options
from .assembly.prefix import feature_machine
from .prefix_conjugate_gradient import FORMS


def bayesian_average(
    kernel: Kernel | Sequence[Kernel],
    *,
    num_features: int,
    ridges: Float[Array, " G"],
    steps: int,
    form: str = "textbook",
    diagonal: Any = None,
    sharpness: Any = 1.0,
    edges: Any = None,
    tokens: str = "pairs",
    max_supports: int | None = None,
    **options: Unpack[Options],
) -> Transformer:
    kernels = (kernel,) * len(ridges) if isinstance(kernel, Kernel) else tuple(kernel)
    kind = partial(Mixture, kernels=kernels, ridges=ridges)
    causal: Any = {"tokens": tokens, "max_supports": max_supports}
    m = feature_machine(kind, kernels[0], num_features, ridge=None, **causal, **options)
    m.problem = None
    m.diagonal, m.sharpness, m.edges = diagonal, sharpness, edges
    m.declare_average()
    return FORMS[form](m, jnp.ones((), m.dtype), steps)
