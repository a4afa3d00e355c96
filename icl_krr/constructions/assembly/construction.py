"""The models of a construction know how they were built."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, ParamSpec

from ...transformer.weights import Transformer

P = ParamSpec("P")


def construction(build: Callable[P, Transformer]) -> Callable[P, Transformer]:
    """Note in every model the function of (kernel, *, ...) and its arguments, for `rebuild`."""

    @wraps(build)
    def built(*args: P.args, **keywords: P.kwargs) -> Transformer:
        model = build(*args, **keywords)
        given: dict[str, Any] = {**dict(zip(("kernel",), args, strict=False)), **keywords}
        return dataclasses.replace(model, made=partial(built, **given))

    return built
