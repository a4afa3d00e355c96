"""The parameters of the estimator: checked, and chosen where they are None."""

from __future__ import annotations

from typing import Any

import jax

from .. import Kernel
from .._core import checks
from ..catalogue import SOLVERS
from . import _model_selection, _relevance
from ._depth_config import DepthConfig, choose_kernel
from ._supports import Supports


def config_of(given: Any) -> DepthConfig:
    """The checked parameters of an estimator; the kernel is None if it is a `Kernel`."""
    checks.flag("normalize_y", given.normalize_y)
    if given.amplitude is not None:
        checks.positive_scalar("amplitude", given.amplitude)
    own = given.kernel if isinstance(given.kernel, Kernel) else None
    name: Any = None if own else given.kernel
    usual = {"temperature": None, "lengthscale": None, "bandwidths": "one"}
    for option, value in usual.items():
        if own is not None and getattr(given, option) != value:
            raise ValueError(
                f"{option} must be {value!r} if kernel is an object, which has its own bandwidth, "
                f"got {checks.short_repr(getattr(given, option))}"
            )
    config = DepthConfig(
        given.solver,
        name,
        given.ridge,
        **{name: getattr(given, name) for name in usual},
        steps=given.steps,
        centred=given.normalize_y,
    )
    if own and SOLVERS[config.solver].kernels == "featured" and not own.featured:
        raise ValueError(
            f"kernel must have a feature map, such as Linear(), for solver {config.solver!r}, "
            f"got {own!r}"
        )
    return config


def choose(supports: Supports, config: DepthConfig, given: Any) -> tuple[Any, float | None]:
    """The kernel of the supports, or the `given` one, and the ridge, None without a regression."""
    with jax.enable_x64(True):
        task = supports.task(supports.x)
        if isinstance(given, Kernel):
            kernel: Any = supports.kernel(given)
        else:
            kernel, _ = choose_kernel(task, config, made=supports.family)
        if not SOLVERS[config.solver].iterates:
            return kernel, None
        ridge = config.ridge or _model_selection.choose_ridge(kernel, task, config.centred)
        if config.bandwidths == "each":
            known = config.ridge is not None
            kernel, ridge, _ = _relevance.likeliest(kernel, task, ridge, given=known)
    return kernel, float(ridge)  # JAX compiles another program for an integer
