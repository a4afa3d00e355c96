from .adapt import Adapted, Moved, adapt
from .checkpoint import Mismatch, load_weights, save_weights
from .loop import Diverged, train
from .objectives import held_out, marginal_likelihood, negative_log_likelihood
from .reference import Reference, reference
from .settings import Training
from .step import State, advance, check, start

__all__ = [
    "Adapted",
    "Diverged",
    "Mismatch",
    "Moved",
    "Reference",
    "State",
    "Training",
    "adapt",
    "advance",
    "check",
    "held_out",
    "load_weights",
    "marginal_likelihood",
    "negative_log_likelihood",
    "reference",
    "save_weights",
    "start",
    "train",
]
