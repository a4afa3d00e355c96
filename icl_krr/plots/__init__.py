"""Figures of the results, in one style; labels come from the results."""

from .ablation import ablation_figure
from .claims import claim_figure, sweep_figure
from .depth import depth_figure, scaling_figure
from .explorer import MovingArtist, explorer_figure
from .finetune import finetune_depth_figure, finetune_path_figure
from .models import (
    confusion_figure,
    filter_figure,
    fitting_figure,
    identification_figure,
    training_figure,
)
from .panels import curves_figure, heatmaps_figure
from .snapshot import pattern_figure, stream_figure
from .style import images, svg

__all__ = [
    "MovingArtist",
    "ablation_figure",
    "claim_figure",
    "confusion_figure",
    "curves_figure",
    "depth_figure",
    "explorer_figure",
    "filter_figure",
    "finetune_depth_figure",
    "finetune_path_figure",
    "fitting_figure",
    "heatmaps_figure",
    "identification_figure",
    "images",
    "pattern_figure",
    "scaling_figure",
    "stream_figure",
    "svg",
    "sweep_figure",
    "training_figure",
]
