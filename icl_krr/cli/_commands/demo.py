"""`icl-krr demo`: the included diabetes table and a draw of a Gaussian process."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...catalogue import taken
from ...catalogue._choices import KernelName
from .._options import Construction
from .._output import Outcome, working

if TYPE_CHECKING:
    from .._depth_tables import DepthConfig, Tasks


@dataclass(frozen=True)
class Demo(Construction):
    """Compare a constructed transformer with exact KRR on two tasks: a small real table included
    in the package (diabetes progression, Efron et al. 2004) and a draw of a Gaussian process.
    The command prints the relative distance to exact KRR at every depth, and writes results.csv,
    meta.json, depth.png and depth.svg."""

    kernel: KernelName | None = None
    """Kernel of the regression; the solver must support the kernel.
    If None, exponential, or linear if the solver supports no other kernel."""
    ridge: float | None = None
    """Ridge > 0 added to the diagonal of the kernel matrix. If None, the ridge with the least
    leave-one-out error for the table, and the noise variance for the Gaussian process."""
    temperature: float | None = None
    """Temperature > 0 of the exponential kernel. If None, the temperature with the least
    leave-one-out error for the table, and 1 for the Gaussian process."""
    lengthscale: float | None = None
    """Lengthscale > 0 of a kernel that has one. If None, the lengthscale with the least
    leave-one-out error for the table, and 1 for the Gaussian process."""
    steps: int | None = 24
    """Number of solver steps that the transformer runs, >= 1.
    If None, as many as the predictions need to converge, at most 256 in
    float32 and 1024 in float64."""
    out: Path = Path("icl-krr-demo")
    """Folder for results.csv, meta.json, depth.png and depth.svg."""


def run(settings: Demo) -> Outcome:
    from .._depth_tables import outcome, solve

    config = demo_config(settings)
    with working(settings) as show:
        results = solve(demo_tasks(config, settings.seed), show)
    return outcome(results, settings.seed)


def demo_config(settings: Demo) -> DepthConfig:
    from .._depth_tables import depth_config

    takes = taken(settings.solver)
    return depth_config(settings, "exponential" if "exponential" in takes else takes[0])


def demo_tasks(config: DepthConfig, seed: int) -> Tasks:
    """The table, and a Gaussian process that is solved with its own kernel and noise."""
    import jax
    import numpy as np

    from ...kernels import make_kernel
    from ...tabular._depth_config import BANDWIDTHS
    from ...tasks import GaussianProcess, diabetes, sample, split

    kernel = make_kernel(str(config.kernel), dict.fromkeys(BANDWIDTHS, 1.0))
    noise = 0.03 * kernel.diagonal(np.eye(1, 2)).item()  # inputs are on the unit circle
    defaults = {"ridge": noise}
    if kernel.bandwidth in BANDWIDTHS:
        defaults[str(kernel.bandwidth)] = 1.0
    defaults = {name: value for name, value in defaults.items() if getattr(config, name) is None}
    process = GaussianProcess(kernel, noise=noise, num_queries=64, inputs="sphere")
    return {
        "diabetes.csv": (split(diabetes(), 300, seed), replace(config, centred=True)),
        "Gaussian process": (sample(jax.random.key(seed), process), replace(config, **defaults)),
    }
