"""Low-rank sketches: matrices that keep m directions, and feature maps with m features."""

# a name imported as `name as name` is used by other packages here and is not public
from ._landmarks import Nystrom, NystromFeatures, featured as featured, nystrom, nystrom_features
from ._matrices import best, coordinates, gaussian, landmarks, orthonormal, sketched
from ._random_features import RandomFeatures, positive_features, trigonometric_features

__all__ = [
    "Nystrom",
    "NystromFeatures",
    "RandomFeatures",
    "best",
    "coordinates",
    "gaussian",
    "landmarks",
    "nystrom",
    "nystrom_features",
    "orthonormal",
    "positive_features",
    "sketched",
    "trigonometric_features",
]
