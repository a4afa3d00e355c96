from ._cache import Cache
from ._cost import Cost, Sent, step_cost, step_sent
from ._dense import dense
from ._forward import forward
from ._hook_points import Where
from ._init import Architecture, init
from ._predict import predict, predict_along, predict_batch, run_with_cache, run_with_hooks
from ._readouts import operand_bounds, predictive, readouts
from ._resume import resume, stack, tail
from ._run_plan import Memory, Placement, memory
from ._tying import untie
from ._weights import Block, Heads, Norm, Problem, Spec, Transformer, Unit, Weights, Write

__all__ = [
    "Architecture",
    "Block",
    "Cache",
    "Cost",
    "Heads",
    "Memory",
    "Norm",
    "Placement",
    "Problem",
    "Sent",
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
    "predictive",
    "readouts",
    "resume",
    "run_with_cache",
    "run_with_hooks",
    "stack",
    "step_cost",
    "step_sent",
    "tail",
    "untie",
]
