"""A construction as an estimator of scikit-learn, for pipelines and grid searches."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from typing import Any

import jax
import numpy as np

try:
    from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError:
    raise ImportError(
        "icl_krr.InContextRegressor needs scikit-learn 1.6 or later; install it with "
        "python -m pip install --upgrade scikit-learn"
    ) from None

from .._core import checks
from .._core.status import TOLERANCE, Status
from ..catalogue import SOLVERS
from ..kernels import Kernel, kernel_class
from ..probes import check
from ..tasks import Task
from ..transformer import Transformer, predict
from . import _parameters, _relevance
from ._build import build_model
from ._depth_config import DepthConfig
from ._process import Process, exactly
from ._supports import Supports, checked_weights, padded

STEPS = 64, 256
"""Steps of the solver, and those with which it tries again, if their number is not given."""

SMALL = 0.1
"""An error, over a standard deviation, that does not change an interval much."""


class InContextRegressor(MultiOutputMixin, RegressorMixin, BaseEstimator):
    r"""A construction as a regressor of scikit-learn, like `KernelRidge` and with its predictions.

    `fit` stores the rows of X and y as supports and builds the transformer. It trains nothing.
    `predict` passes supports and queries through the transformer, whose steps converge to

    $$f^\ast(x) = k(x)^T (K + \lambda I)^{-1} y.$$

    So `InContextRegressor(kernel="gaussian", lengthscale=l, ridge=a)` predicts what
    `KernelRidge(kernel="rbf", gamma=1 / (2 * l**2), alpha=a)` does, as far as the steps have
    converged. If the error at the supports is above 1 % of the larger of |f*| and |y| or above a
    tenth of the noise, because float32 has too few digits or because 64 steps are too few, `fit`
    and `predict` compute in float64 instead. If the error is then still above 1 %, `fit` emits a
    `ConvergenceWarning`, and `status_` says what helps.

    f* is also the mean of a Gaussian process with the covariance $s k$ and the noise variance
    $s \lambda$, for every amplitude $s$. If the amplitude is not given, it is the
    one with the largest likelihood for each target, $s = y^T A^{-1} y / n$ with
    $A = K + \lambda I$. Exact regression in float64 computes amplitude and deviations;
    `icl_krr.posterior` computes the variance with the model.

    With `bandwidths="each"`, each feature has a bandwidth of its own, so that the kernel can ignore
    a feature (automatic relevance determination). A gradient method then chooses bandwidths and
    ridge. They maximise the marginal likelihood of the supports at the best amplitude.

    Like `KernelRidge`, the regression has no intercept. Put a `StandardScaler` before it, and set
    `normalize_y` if y is not centred. The units of y do not matter, and for kernels of differences
    such as the Gaussian one the origin of X does not either: means and sizes are taken out in
    float64. The arrays that `predict` returns are float64. JAX compiles one program for each number
    of rows in `fit`, and for 32, 64, 128, ... rows in `predict`. Other values of the parameters,
    except `kernel`, `solver` and `steps`, take no new compilation.

    Args:
        kernel: name of a kernel in the catalogue, a `Kernel`, or None for the kernel with the least
            leave-one-out error on the supports; default "gaussian".
        solver: name of a solver in the catalogue; default "conjugate_gradient".
        ridge: ridge $\lambda$ > 0, the variance of the noise over the amplitude. By default
            leave-one-out on the supports chooses it. Not used by `nadaraya_watson`.
        temperature: temperature > 0 of the exponential kernel. By default leave-one-out on the
            supports chooses it. None for other kernels and for a `Kernel`, which has its own.
        lengthscale: lengthscale > 0 of a kernel that has one, with the same default.
        steps: number of solver steps, >= 1. By default 64, or 256 in float64 if these are not
            enough at the supports. Not used by `nadaraya_watson`.
        bandwidths: "one" for the same bandwidth for all features, or "each" for one per feature;
            default "one". "each" needs a kernel with a bandwidth, and a `temperature` and a
            `lengthscale` of None.
        normalize_y: whether to subtract the mean of y and divide by its standard deviation before
            the regression, and to undo this in predictions.
        amplitude: amplitude $s$ > 0 of all targets, in units of y squared, or None for the
            most likely one for each target; default None. Predictions do not depend on it.

    Attributes:
        task_: the supports as a `Task`, whose queries are the supports too, with y in units of its
            size. With sample weights, they are those of `icl_krr.kernels.Weighted`.
        kernel_: the kernel with its bandwidth; with `bandwidths="each"`, with the bandwidth 1 and
            the projection $U = \mathrm{diag}(w)$.
        bandwidths_: bandwidth of each feature [p], in units of the feature; None for a kernel
            without a bandwidth and for a `Kernel`. For "each", it is $1 / w_j$, or $1 / w_j^2$ if
            it is a temperature.
        feature_importances_: share of each feature in the squares of the slopes of the regression
            at the supports [p], for features of unit variance; computed when it is read.
        ridge_: the ridge; None for `nadaraya_watson`.
        amplitude_: the amplitude [] or [r] in units of y squared; None for a solver that solves no
            regression. The noise of a new y has the variance `amplitude_ * ridge_`.
        status_: `Status` of the predictions at the supports, from `icl_krr.check`; None for a
            solver that solves no regression.

    Source: L. Buitinck et al., API Design for Machine Learning Software: Experiences from the
    Scikit-learn Project, ECML PKDD Workshop (2013), for `fit` and `predict`; R. M. Neal, Bayesian
    Learning for Neural Networks (1996), for automatic relevance determination.

    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> import icl_krr as ik
    >>> table = ik.tasks.diabetes()
    >>> regressor = ik.InContextRegressor(ridge=0.5, lengthscale=4.0, normalize_y=True)
    >>> pipeline = make_pipeline(StandardScaler(), regressor).fit(table.x[:50], table.y[:50])
    >>> mean, std = pipeline.predict(table.x[50:60], return_std=True)
    >>> mean.shape, std.shape, bool(regressor.status_.ok)
    ((10,), (10,), True)
    """

    n_features_in_: int
    model_: Transformer
    task_: Task
    kernel_: Kernel
    bandwidths_: np.ndarray | None
    ridge_: float | None
    amplitude_: np.ndarray | None
    steps_: int
    status_: Status | None

    @checks.suggest_keywords
    def __init__(
        self,
        *,
        kernel: str | Kernel | None = "gaussian",
        solver: str = "conjugate_gradient",
        ridge: float | None = None,
        temperature: float | None = None,
        lengthscale: float | None = None,
        steps: int | None = None,
        bandwidths: str = "one",
        normalize_y: bool = False,
        amplitude: float | None = None,
    ):
        self.kernel = kernel
        self.solver = solver
        self.ridge = ridge
        self.temperature = temperature
        self.lengthscale = lengthscale
        self.steps = steps
        self.bandwidths = bandwidths
        self.normalize_y = normalize_y
        self.amplitude = amplitude

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> InContextRegressor:
        r"""Store the supports, choose the hyperparameters that are None, and build the transformer.

        Args:
            X: features of the supports, [n, p].
            y: outputs of the supports, [n] or [n, r].
            sample_weight: weights $w_i \geq 0$ of the supports, [n]. Support i has the ridge
                $\lambda / w_i$, as for `KernelRidge`. A support of weight 0 is dropped.
        """
        config = _parameters.config_of(self)
        X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True)
        kernels = [kernel_class(name).of_bandwidth(1.0) for name in config.kernels]
        kernels = [self.kernel] if isinstance(self.kernel, Kernel) else kernels
        self._supports = Supports.of(
            X,
            y.astype(np.float64),
            checked_weights(sample_weight, len(X)),
            stationary=all(kernel.stationary for kernel in kernels),
            centred=self.normalize_y,
            smooths=not SOLVERS[config.solver].iterates,
        )
        kernel, self.ridge_ = _parameters.choose(self._supports, config, self.kernel)
        self.kernel_, self.bandwidths_ = _relevance.plain(kernel), None
        if self.kernel_.bandwidth is not None and self.kernel_ is not self.kernel:
            self.bandwidths_ = _relevance.bandwidths_of(self.kernel_, self.n_features_in_)
        few, many = STEPS if config.steps is None else (config.steps, config.steps)
        self._double = False
        self._build(config, kernel, few)
        if not self._precise(fixed=few == many):
            self._double = True
            self._build(config, kernel, many)
        if self.status_ is not None and not self.status_.ok:
            warn(f"predictions: {self.status_._replace(model=False).advice()}")
        return self

    @property
    def feature_importances_(self) -> np.ndarray:
        """The share [p] of each feature in the squares of the slopes of the regression."""
        check_is_fitted(self)
        if self.model_.problem is None:
            raise AttributeError(
                f"feature_importances_ is not known for solver {self.solver!r}, which solves no "
                "regression; use solver='conjugate_gradient'"
            )
        kernel, supports = self.model_.problem.kernel, self._supports
        with jax.enable_x64(True):
            return _relevance.importance(kernel, supports.task(supports.x), float(self.ridge_ or 0))

    def _build(self, config: DepthConfig, kernel: Kernel, steps: int) -> None:
        """Build and check the transformer."""
        supports = self._supports
        with self._precision():
            self.task_ = task = supports.task(supports.x)
            single = task.replace(y=np.zeros(task.num_supports))  # one model for all outputs
            try:
                self.model_ = build_model(config.solver, kernel, single, self.ridge_, steps)
            except ValueError as error:
                if not supports.weighted:
                    raise
                raise ValueError(
                    f"sample_weight must be None for solver {config.solver!r}, which does not run "
                    f"with weights: {error}"
                ) from None
            if self._double:  # JAX would load a copy of its own arrays as float32
                wide = jax.tree.map(np.asarray, self.model_.weights)
                self.model_ = self.model_.replace(weights=wide)
            self.steps_, self.status_, self.amplitude_ = self.model_.steps, None, None
            if self.model_.problem is not None:
                self.status_ = check(self.model_, task)
                unit = supports.scaling.undo_width(np.ones(()))
                relative = None if self.amplitude is None else self.amplitude / unit / unit
                self._amplitude = self._process(supports.x[:1], relative).amplitude
                self.amplitude_ = self._amplitude * unit * unit

    def _precision(self) -> Any:
        """The scope of the transformer: float64 if float32 is not enough."""
        return jax.enable_x64(True) if self._double else nullcontext()

    def _precise(self, fixed: bool) -> bool:
        """Whether errors are small beside y and the noise, or due to the given number of steps."""
        status = self.status_
        if status is None or (fixed and status.falling and status.condition_times_eps <= TOLERANCE):
            return True
        error = float(status.error) * np.max(np.abs(self._supports.y), axis=0)
        small = error <= SMALL * np.sqrt(self._amplitude * (self.ridge_ or 0))
        return bool(status.ok and np.all(small))

    def _process(self, x_query: np.ndarray, amplitude: np.ndarray | None) -> Process:
        """The Gaussian process at points, for y as the transformer reads it."""
        assert self.model_.problem is not None
        kernel, parts = self.model_.problem.kernel, (*self._supports[:2], x_query)
        return exactly(kernel, parts, float(self.ridge_ or 0), amplitude)

    def predict(self, X: Any, return_std: bool = False, noise: bool = True) -> Any:
        r"""Predict with the transformer.

        Args:
            X: features of the queries, [q, p].
            return_std: whether to return a standard deviation for every prediction, too. The solver
                must solve a regression.
            noise: whether it is the standard deviation of a new y, $\sqrt{s (v(x) + \lambda)}$, or
                that of the function $f$ without noise, $\sqrt{s v(x)}$, where
                $v(x) = k(x, x) - k(x)^T (K + \lambda I)^{-1} k(x)$. About 95 % of new y are within
                1.96 standard deviations of the prediction, if the kernel suits the data.

        Returns:
            The prediction [q] or [q, r], or the prediction and the standard deviation, in the units
            of y. They are tensors of PyTorch, in the dtype of X, if X is one.
        """
        check_is_fitted(self)
        checks.flag("return_std", return_std)
        checks.flag("noise", noise)
        if return_std and self.model_.problem is None:
            raise ValueError(
                f"return_std must be False for solver {self.solver!r}, which solves no regression, "
                "got True; use solver='conjugate_gradient'"
            )
        table, X = X, validate_data(self, X, dtype=np.float64, reset=False)
        supports, rows = self._supports, len(X)
        points = padded(supports.points(np.asarray(X)))
        with self._precision():
            scaled = np.asarray(predict(self.model_, supports.task(points)))
        mean = supports.scaling.undo(scaled)[:rows]
        if not return_std:
            return like(table, mean)
        process = self._process(points, self._amplitude)
        if not process.ok:
            warn(f"standard deviations: {process.source}; use a larger ridge")
        elif np.any(np.abs(scaled - process.mean) > SMALL * process.std):
            hint = f"use more steps ({4 * self.steps_})"
            if self.kernel_.approximated:
                hint += " or a larger ridge: the model sums Gaussian kernels, which is not exact"
            warn(
                "standard deviations: predictions differ from exact regression by more than "
                f"{SMALL} standard deviations; {hint}"
            )
        std = process.std
        if not noise:
            std = np.sqrt(np.multiply.outer(process.variance, process.amplitude))
        return like(table, mean), like(table, supports.scaling.undo_width(std)[:rows])


def like(table: Any, values: np.ndarray) -> Any:
    """The values, as a tensor of PyTorch if X was one, and in its dtype."""
    if not hasattr(table, "new_tensor"):
        return values
    return table.new_tensor(values, dtype=table.dtype if table.is_floating_point() else None)


def warn(what: str) -> None:
    warnings.warn(what, ConvergenceWarning, stacklevel=3)
