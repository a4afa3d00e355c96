"""The models of a construction know how they were built."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, ParamSpec

import jax
import numpy as np

from ...constants import known
from ...transformer.weights import Transformer

P = ParamSpec("P")


def construction(build: Callable[P, Transformer]) -> Callable[P, Transformer]:
    """Compute with the known arguments in NumPy, and note them in the model for `rebuild`."""

    @wraps(build)
    def built(*args: P.args, **keywords: P.kwargs) -> Transformer:
        given: dict[str, Any] = {**dict(zip(("kernel",), args, strict=False)), **keywords}
        args, keywords = jax.tree.map(known, (args, keywords))
        with np.errstate(all="ignore"):  # an overflow is infinite, as in a trace
            model = build(*args, **keywords)
        return dataclasses.replace(model, made=partial(built, **given))

    return built
