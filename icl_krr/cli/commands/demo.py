"""`icl-krr demo`: the included diabetes table and a draw of a Gaussian process."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp

from ...catalogue import make_kernel, taken
from ...experiments.depth_config import BANDWIDTHS, DepthConfig
from ...tasks import GaussianProcess, diabetes, sample, split
from .. import output
from ..depth_tables import (
    Tasks,
    depth_config,
    files_of,
    json_of,
    meta_of,
    print_tables,
    solve,
)
from ..settings.demo import Demo


def run(settings: Demo) -> int:
    config = demo_config(settings)
    output.prepare(settings.out)
    results = solve(demo_tasks(config, settings.seed))
    meta = meta_of(settings, results)
    output.write(settings.out, files_of(settings, results, meta))
    if settings.json:
        print(output.to_json({"meta": meta, "results": json_of(results)}))
    else:
        print_tables(results, settings.seed)
    return 0


def demo_config(settings: Demo) -> DepthConfig:
    takes = taken(settings.solver)
    return depth_config(settings, "exponential" if "exponential" in takes else takes[0])


def demo_tasks(config: DepthConfig, seed: int) -> Tasks:
    """The table, and a Gaussian process that is solved with its own kernel and noise."""
    kernel = make_kernel(str(config.kernel), dict.fromkeys(BANDWIDTHS, 1.0))
    noise = 0.03 * float(kernel.diagonal(jnp.eye(1, 2))[0])  # inputs are on the unit circle
    own = {"ridge": noise}
    if kernel.bandwidth in BANDWIDTHS:
        own[str(kernel.bandwidth)] = 1.0
    own = {name: value for name, value in own.items() if getattr(config, name) is None}
    process = GaussianProcess(kernel, noise=noise, num_queries=64, inputs="sphere")
    return {
        "diabetes.csv": (split(diabetes(), 300, seed), replace(config, centred=True)),
        "Gaussian process": (
            jax.jit(sample)(jax.random.key(seed), process),
            replace(config, **own),
        ),
    }
