"""The parameters of the estimator: checked, and chosen where they are None."""

from typing import Any

import jax

from .. import Kernel
from .._core import checks
from ..catalogue import SOLVERS
from . import _model_selection, _relevance
from ._depth_config import DepthConfig, choose_kernel
from ._supports import Supports


def config_of(parameters: Any) -> DepthConfig:
    """The checked parameters of an estimator; the kernel is None if it is a `Kernel`."""
    checks.flag("normalize_y", parameters.normalize_y)
    if parameters.amplitude is not None:
        checks.positive_scalar("amplitude", parameters.amplitude)
    kernel = parameters.kernel if isinstance(parameters.kernel, Kernel) else None
    name: Any = None if kernel else parameters.kernel
    usual = {"temperature": None, "lengthscale": None, "bandwidths": "one"}
    for option, value in usual.items():
        if kernel is not None and getattr(parameters, option) != value:
            raise ValueError(
                f"{option} must be {value!r} if kernel is an object, which has its own bandwidth, "
                f"got {checks.short_repr(getattr(parameters, option))}"
            )
    options = {key: getattr(parameters, key) for key in (*usual, "solver", "ridge", "steps")}
    config = DepthConfig(**options, kernel=name, centred=parameters.normalize_y)
    if kernel and SOLVERS[config.solver].kernels == "featured" and not kernel.featured:
        raise ValueError(
            f"kernel must have a feature map, such as Linear(), for solver {config.solver!r}, "
            f"got {kernel!r}"
        )
    return config


def choose(supports: Supports, config: DepthConfig, parameters: Any) -> tuple[Any, float | None]:
    """The kernel and the ridge; the ridge is None for a solver without a regression."""
    with jax.enable_x64(True):
        task = supports.task(supports.x)
        if isinstance(parameters, Kernel):
            kernel: Any = supports.kernel(parameters)
        else:
            kernel, _ = choose_kernel(task, config, transform=supports.family)
        if not SOLVERS[config.solver].iterates:
            return kernel, None
        ridge = config.ridge or _model_selection.choose_ridge(kernel, task, config.centred)
        if config.bandwidths == "each":
            fixed_ridge = config.ridge is not None
            kernel, ridge, _ = _relevance.maximise_marginal_likelihood(
                kernel, task, ridge, fixed_ridge=fixed_ridge
            )
    return kernel, float(ridge)  # JAX compiles another program for an integer
