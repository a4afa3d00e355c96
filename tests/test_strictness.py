"""What JAX and XLA refuse: to make shapes and dtypes fit by themselves, and unknown flags."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import draw, numpy

import icl_krr as ik


def test_ranks_and_dtypes_are_not_promoted(x64):
    with pytest.raises(ValueError, match="jax_numpy_rank_promotion='raise'"):
        jnp.ones(3) * jnp.ones((3, 3))
    with pytest.raises(ValueError, match="jax_numpy_dtype_promotion=strict"):
        jnp.ones(3, "f4") * jnp.ones(3, "f8")


@pytest.mark.parametrize("kernel", [ik.Linear, ik.Gaussian])
def test_hyperparameters_take_the_dtype_of_the_task(x64, kernel):
    """A user may mix them: that of the task decides."""
    task = draw(0)
    task = ik.Task(*(part.astype("f4") for part in (task.x, task.y, task.x_query)))
    kernel = kernel() if kernel is ik.Linear else kernel(np.asarray(0.7, "f8"))
    ridge, spectrum = np.asarray(0.3, "f8"), (np.asarray(0.3, "f8"), np.asarray(50.0, "f8"))
    solvers = ik.solvers
    for answer in (
        lambda: solvers.exact(kernel, task, ridge=ridge).prediction,
        lambda: solvers.derivative_in_queries(kernel, task, ridge=ridge),
        lambda: ik.theory.prediction_bound(kernel, task, task.y, ridge=ridge),
    ):
        assert jax.eval_shape(answer).dtype == "f4"
    for name, more in (("conjugate_gradient", {}), ("chebyshev", {"spectrum": spectrum})):
        path = getattr(ik.solvers, name)(kernel, task, ridge=ridge, steps=3, **more).prediction
        build = getattr(ik.constructions, name)
        model = build(kernel, num_features=4, ridge=ridge, steps=3, dtype="float32", **more)
        prediction = numpy(ik.predict(model, task))
        assert prediction.dtype == path.dtype == "f4"
        assert np.allclose(prediction, path[-1], rtol=1e-4, atol=1e-4)
