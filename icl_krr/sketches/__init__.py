"""Low-rank sketches: matrices that keep m directions, and feature maps with m features.

Args:
    key: random key of `jax.random`.
    num_features: number p of features of a point x, >= 1.
    x: points, usually the supports [n, p], float32 or float64.

Raises:
    TypeError: an argument has the wrong type, such as a sketch that is neither an array of floating
        point nor callable.
    ValueError: a width or a rank is out of its range, an array has another shape, or a kernel takes
        no sketch or has no random features.
"""

# a name imported as `name as name` is used by other packages here and is not public
from .landmarks import Nystrom, NystromFeatures, featured as featured, nystrom, nystrom_features
from .matrices import best, coordinates, gaussian, landmarks, orthonormal, sketched
from .random_features import RandomFeatures, positive_features, trigonometric_features

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
