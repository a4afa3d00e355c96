from . import constructions, kernels, residual, solvers, tasks, theory, transformer
from .kernels import Exponential, Gaussian, Kernel, Linear
from .residual import Layout, Read, Slot
from .tasks import Task
from .theory import spectral_bounds
from .transformer import (
    Architecture,
    Spec,
    Transformer,
    dense,
    init,
    predict,
    predict_batch,
    run_with_cache,
    run_with_hooks,
)

__all__ = [
    "Architecture",
    "Exponential",
    "Gaussian",
    "Kernel",
    "Layout",
    "Linear",
    "Read",
    "Slot",
    "Spec",
    "Task",
    "Transformer",
    "constructions",
    "dense",
    "init",
    "kernels",
    "predict",
    "predict_batch",
    "residual",
    "run_with_cache",
    "run_with_hooks",
    "solvers",
    "spectral_bounds",
    "tasks",
    "theory",
    "transformer",
]
