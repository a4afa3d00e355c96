"""Bad input gets one sentence: the name, the value, the rule, the mend."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer


def concrete(value: Any) -> np.ndarray | None:
    """The value as NumPy, or None while JAX traces it: only what is known can be refused."""
    if value is None or isinstance(value, Tracer):
        return None
    return np.asarray(value)


def positive(name: str, value: Any) -> None:
    known = concrete(value)
    if known is not None and not (np.issubdtype(known.dtype, np.number) and np.all(known > 0)):
        raise ValueError(f"{name} must be > 0, got {value}")
    if known is not None and not np.all(np.isfinite(known)):
        raise ValueError(f"{name} must be finite, got {value}")


def count(name: str, value: Any, minimum: int = 1) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if value < minimum:
        raise ValueError(f"{name} must be >= {minimum}, got {value}")


def finite(name: str, value: Any) -> None:
    known = concrete(value)
    if known is None or np.all(np.isfinite(known)):
        return
    first = tuple(int(i) for i in np.argwhere(~np.isfinite(known))[0])
    raise ValueError(
        f"{name} must be finite, got {known[first]} at index {list(first)}; "
        "drop the row, or leave it out with mask"
    )


def floating(name: str, value: Any) -> None:
    if not hasattr(value, "dtype") or not hasattr(value, "ndim"):
        raise TypeError(f"{name} must be an array, got {type(value).__name__}; use jnp.asarray")
    if not jnp.issubdtype(value.dtype, jnp.floating):
        raise TypeError(f"{name} must be floating point, got {value.dtype}; cast it with astype")


def choice(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")


def step_size(step_size: Any, spectrum: tuple | None) -> Any:
    """The step of gradient descent: given, or 2 / (low + high) for bounds on the spectrum.

    The latter contracts the error by (cond - 1) / (cond + 1) a step, and no fixed step does
    better when only the bounds are known.
    """
    if (step_size is None) == (spectrum is None):
        raise ValueError(
            "gradient descent must be given step_size or spectrum, "
            f"got {'neither' if step_size is None else 'both'}; "
            "spectrum=icl_krr.spectral_bounds(kernel, task, ridge=ridge) fits a task"
        )
    if spectrum is None:
        positive("step_size", step_size)
        return step_size
    low, high = spectrum
    positive("spectrum", low)
    positive("spectrum", high)
    return 2 / (low + high)
