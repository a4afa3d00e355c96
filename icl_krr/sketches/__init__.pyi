from ._landmarks import Nystrom, NystromFeatures, nystrom, nystrom_features
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
