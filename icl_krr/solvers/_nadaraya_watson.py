"""The Nadaraya-Watson estimator."""

from __future__ import annotations

from functools import partial

import jax

from .. import Kernel, Task
from ._algebra import check_system
from ._results import Smoothing
from ._run import Solver, run
from ._smoother import average


class _Smoother(Solver):
    """The solver with its result: it has no steps, and its weights are known."""

    def __call__(self, kernel: Kernel, task: Task) -> Smoothing:  # pyright: ignore[reportIncompatibleMethodOverride]
        check_system(kernel, task, ridge=1.0, matrices=0)
        return smoothing(kernel, task)


@jax.jit
def smoothing(kernel: Kernel, task: Task) -> Smoothing:
    prediction = run(nadaraya_watson, kernel, task).prediction[-1]
    return Smoothing(prediction, average(kernel, task, task.x_query))


@partial(_Smoother, iterates=False)
def nadaraya_watson(K, y):
    r"""Predict the average of the outputs of the supports, weighted by the kernel.

    $$f(x) = \sum_j k(x_j, x) y_j / \sum_j k(x_j, x)$$

    For a `Mixture` $\sum_h w_h k_h$ it is $\sum_h w_h f_h / \sum_h w_h$ with the prediction $f_h$
    of the kernel $k_h$, as parallel softmax heads compute it. The weights are normalised in the
    logarithm, so they neither overflow nor underflow at any temperature.

    Source: Nadaraya, On estimating regression, 1964; Watson, Smooth regression analysis, 1964.

    >>> from icl_krr import Exponential, Task
    >>> task = Task(x=[[1.0], [1.0]], y=[1.0, 3.0], x_query=[[1.0]])
    >>> nadaraya_watson(Exponential(), task).prediction.tolist()
    [2.0]
    """
    return {"prediction": K.average @ y}
