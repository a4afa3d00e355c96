from ._adapt import Adapted, Moved, adapt
from ._checkpoint import Mismatch, load_weights, save_half_precision, save_weights
from ._loop import Diverged, train
from ._objectives import held_out, marginal_likelihood, negative_log_likelihood
from ._reference import Reference, reference
from ._settings import Training
from ._step import State, advance, check, loss_and_gradient, mean_loss, start

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
    "loss_and_gradient",
    "marginal_likelihood",
    "mean_loss",
    "negative_log_likelihood",
    "reference",
    "save_half_precision",
    "save_weights",
    "start",
    "train",
]
