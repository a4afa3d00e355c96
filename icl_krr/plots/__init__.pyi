from ._claims import claim_figure, sweep_figure
from ._models import (
    ablation_figure,
    depth_figure,
    filter_figure,
    fitting_figure,
    identification_figure,
    training_figure,
)
from ._panels import curves_figure, heatmaps_figure
from ._style import (
    BLUE,
    COLORS,
    GREEN,
    ORANGE,
    PURPLE,
    RED,
    images,
    label_ticks,
    legend,
    sheet,
    svg,
)

__all__ = [
    "BLUE",
    "COLORS",
    "GREEN",
    "ORANGE",
    "PURPLE",
    "RED",
    "ablation_figure",
    "claim_figure",
    "curves_figure",
    "depth_figure",
    "filter_figure",
    "fitting_figure",
    "heatmaps_figure",
    "identification_figure",
    "images",
    "label_ticks",
    "legend",
    "sheet",
    "svg",
    "sweep_figure",
    "training_figure",
]
