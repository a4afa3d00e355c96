"""Catalogue rows for the axes of sweeps."""

from .rows import Axis

HALF, MESA = ("float16", "bfloat16"), ("mesa", "chebyshev")
RIDGES = tuple(10.0**k for k in range(-3, 4))
TEMPERATURES = (0.2, 0.3, 0.5, 0.7, 1.0, 2.0, 5.0, 10.0)
AXES = {
    row.name: row
    for row in (
        Axis("depth", (), (), "step", solvers=True),
        Axis(
            "width",
            ("best", "orthonormal", "random, best metric", "gaussian", "coordinates", "landmarks"),
            (1, 2, 4, 6, 8, 12, 16, 20, 24, 28, 32),
            "feature",
            kernel="linear",
            kernels=("exponential",),
            num_features=32,
            unused=("temperature",),
        ),
        Axis("ridge", (), RIDGES, "positive", solvers=True, smooths=True, unused=("ridge",)),
        Axis("temperature", (), TEMPERATURES, "temperature", solvers=True, smooths=True),
        Axis("context", (), (4, 8, 16, 32, 48, 64), "support", solvers=True, smooths=True),
        Axis(
            "features",
            ("positive", "positive, orthogonal", "trigonometric", "landmarks"),
            (8, 16, 32, 64),
            "feature_count",
        ),
        Axis(
            "position",
            ("prefix_conjugate_gradient", "prefix_chebyshev", "delta_rule"),
            (1, 2, 4, 8, 16, 32, 64),
            "support",
            solvers=True,
            kernel="linear",
            num_features=8,
            unused=("temperature",),
        ),
        Axis(
            "rounding",
            (
                *(f"{s} {part} {d}" for s in MESA for part in ("C", "vectors") for d in HALF),
                *(f"mesa sums {d}" for d in HALF),
            ),
            (10.0, 100.0, 1000.0, 10000.0),
            "condition",
            kernel="linear",
            num_features=8,
            unused=("temperature", "ridge"),
        ),
        Axis("precision", (), ("bfloat16", "float32", "float64"), "floating", solvers=True),
        Axis(
            "arithmetic",
            ("chebyshev", "richardson"),
            (16, 32, 64, 128, 256),
            "relu_width",
            solvers=True,
            kernel="gaussian",
        ),
    )
}
