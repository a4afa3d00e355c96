"""`icl-krr demo`: the included diabetes table and a draw of a Gaussian process."""

from __future__ import annotations

import jax

from ...catalogue import taken
from ...experiments.depth import DepthConfig
from ...kernels import Exponential
from ...tasks import GaussianProcess, Task, diabetes, sample, split
from .. import output
from ..depth_tables import compare, depth_config
from ..settings.demo import Demo


def run(settings: Demo) -> int:
    config = demo_config(settings)
    output.prepare(settings.out)
    compare(settings, config, demo_tasks(settings))
    return 0


def demo_config(settings: Demo) -> DepthConfig:
    takes = taken(settings.solver)
    return depth_config(settings, "exponential" if "exponential" in takes else None)


def demo_tasks(settings: Demo) -> dict[str, Task]:
    process = GaussianProcess(Exponential(0.5), num_queries=64, inputs="sphere")
    return {
        "diabetes.csv": split(diabetes(), 300, settings.seed),
        "Gaussian process": jax.jit(sample)(jax.random.key(settings.seed), process),
    }
