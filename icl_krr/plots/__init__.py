"""Figures: one style, every label from what was run."""

from .ablation import ablation_figure
from .claims import claim_figure, sweep_figure
from .depth import depth_figure, scaling_figure
from .learning import depth_of_learning_figure, path_of_learning_figure
from .models import (
    confusion_figure,
    filter_figure,
    fitting_figure,
    identification_figure,
    training_figure,
)
from .style import png

__all__ = [
    "ablation_figure",
    "claim_figure",
    "confusion_figure",
    "depth_figure",
    "depth_of_learning_figure",
    "filter_figure",
    "fitting_figure",
    "identification_figure",
    "path_of_learning_figure",
    "png",
    "scaling_figure",
    "sweep_figure",
    "training_figure",
]
