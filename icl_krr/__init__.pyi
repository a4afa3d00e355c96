from . import constructions, kernels, residual, sketches, solvers, tasks, theory, transformer
from .constructions import ReLU, Softmax
from .kernels import Exponential, Features, Gaussian, Kernel, Linear, Mixture
from .posterior import Posterior, posterior
from .residual import Layout, Read, Slot
from .sketches import Nystrom, nystrom, sketched
from .tasks import Task, map_tasks
from .theory import spectral_bounds
from .transformer import (
    Architecture,
    Spec,
    Transformer,
    dense,
    init,
    memory,
    operand_bounds,
    predict,
    predict_batch,
    run_with_cache,
    run_with_hooks,
    untie,
)

__all__ = [
    "Architecture",
    "Exponential",
    "Features",
    "Gaussian",
    "Kernel",
    "Layout",
    "Linear",
    "Mixture",
    "Nystrom",
    "Posterior",
    "ReLU",
    "Read",
    "Slot",
    "Softmax",
    "Spec",
    "Task",
    "Transformer",
    "constructions",
    "dense",
    "init",
    "kernels",
    "map_tasks",
    "memory",
    "nystrom",
    "operand_bounds",
    "posterior",
    "predict",
    "predict_batch",
    "residual",
    "run_with_cache",
    "run_with_hooks",
    "sketched",
    "sketches",
    "solvers",
    "spectral_bounds",
    "tasks",
    "theory",
    "transformer",
    "untie",
]
