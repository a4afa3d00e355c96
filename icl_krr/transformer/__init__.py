"""Transformers: weights as one pytree, the forward pass, caches, hooks and memory estimates.

Axis names: T tokens, H heads, L steps. A task with n supports and q queries has T = 1 + n + q
tokens, or 1 + 2n + q in the format "interleaved". One `jax.lax.scan` runs over the steps.
"""

from .cache import Cache
from .dense import dense
from .forward import forward
from .hook_points import HookPlace, Where
from .init import Architecture, init
from .memory import Memory, memory
from .operands import operand_bounds
from .resume import resume, tail
from .run import predict, predict_along, predict_batch, run_with_cache, run_with_hooks
from .tying import untie
from .weights import Block, Heads, Norm, Problem, Spec, Transformer, Unit, Weights, Write

__all__ = [
    "Architecture",
    "Block",
    "Cache",
    "Heads",
    "HookPlace",
    "Memory",
    "Norm",
    "Problem",
    "Spec",
    "Transformer",
    "Unit",
    "Weights",
    "Where",
    "Write",
    "dense",
    "forward",
    "init",
    "memory",
    "operand_bounds",
    "predict",
    "predict_along",
    "predict_batch",
    "resume",
    "run_with_cache",
    "run_with_hooks",
    "tail",
    "untie",
]
