from .checkpoint import Mismatch, load_weights, save_weights
from .fit import Diverged, train
from .reference import Reference, reference
from .settings import Training
from .step import State, advance, check, start

__all__ = [
    "Diverged",
    "Mismatch",
    "Reference",
    "State",
    "Training",
    "advance",
    "check",
    "load_weights",
    "reference",
    "save_weights",
    "start",
    "train",
]
