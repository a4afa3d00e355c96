r"""Losses $\ell(e)$ of an error $e$: a delta rule learns their derivative in place of $e$.

Source: Behrouz et al., It's all connected: a journey through test-time memorization, attentional
bias, retention, and online optimization (Miras), 2025.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import jax
import jax.numpy as jnp

from ._core import checks
from ._core.constants import xp
from ._core.pytree import pytree_dataclass

__all__ = ["Huber", "Loss", "Power"]


class Loss(ABC):
    """A loss of the error of a prediction, for `icl_krr.constructions.delta_rule` and its oracle.

    A loss of your own has two methods: `derivative` for the oracle, and `record` for the weights.
    """

    @abstractmethod
    def derivative(self, error: jax.Array) -> jax.Array:
        r"""Return $\ell'(e)$, entry by entry.

        Args:
            error: errors $e = y - f$ of any shape, in units of y.
        """

    @abstractmethod
    def record(self, m: Any, error: Any) -> Any:
        r"""Record units that compute $\ell'(e)$ at the supports, and return the read of the result.

        Args:
            m: machine that records the units (`icl_krr.constructions.Machine`).
            error: read of the errors, of the outputs' number of channels.
        """


def check(loss: Any) -> None:
    if loss is not None:
        checks.instance("loss", loss, Loss, "an icl_krr.losses.Huber or Power")


@pytree_dataclass
class Huber(Loss):
    r"""The Huber loss: $\ell'(e) = e$ for $|e| \leq \delta$, else $\pm \delta$.

    Two ReLU units and a reciprocal for each output cut the error without cancellation, as
    $e \delta / (\delta + \max(e - \delta, 0) + \max(-e - \delta, 0))$.

    Args:
        threshold: $\delta$ > 0, in units of y; may be traced.

    Source: Huber, Robust estimation of a location parameter, 1964.

    >>> Huber(1.0).derivative(jnp.array([-3.0, 0.5, 2.0])).tolist()
    [-1.0, 0.5, 1.0]
    """

    threshold: Any

    def __post_init__(self):
        checks.positive_scalar("threshold", self.threshold)

    def derivative(self, error: jax.Array) -> jax.Array:
        threshold = jnp.asarray(self.threshold, error.dtype)
        return jnp.clip(error, -threshold, threshold)

    def record(self, m: Any, error: Any) -> Any:
        weight = m.per_output(m.support)
        edge = xp.asarray(self.threshold, m.dtype) * weight
        size = m.scratch("size_of_error", ("support",), "the larger of |e| and the threshold")
        with m.together():
            m.add(edge, to=size)
            m.activate("relu", error - edge, weight, to=size)
            m.activate("relu", -error - edge, weight, to=size)
        above = m.multiply(error, edge, to="error_times_threshold")
        return m.divide(above, size, to="cut_error")


@pytree_dataclass
class Power(Loss):
    r"""The loss $|e|^p / p$, smooth at 0: $\ell'(e) = e (e^2 + \epsilon)^{p / 2 - 1}$.

    It is $\mathrm{sign}(e) |e|^{p - 1}$ for $|e|^2$ much larger than $\epsilon$, as long as $e^2$
    does not overflow (in float32, $|e| < 10^{19}$). Units compute the square, the logarithm and the
    power in three MLPs. Miras has the further factor p.

    Args:
        exponent: $p \geq 1$; may be traced. With 2, the loss is the squared error.
        smoothing: $\epsilon$ > 0, in squared units of y; may be traced.

    >>> Power(3.0).derivative(jnp.array([-2.0, 0.0])).round(3).tolist()
    [-4.0, 0.0]
    """

    exponent: Any
    smoothing: Any = 1e-6

    def __post_init__(self):
        checks.scalar("exponent", self.exponent)
        checks.satisfies("exponent", self.exponent, ">= 1")
        checks.positive_scalar("smoothing", self.smoothing)

    def derivative(self, error: jax.Array) -> jax.Array:
        exponent, smoothing = (jnp.asarray(v, error.dtype) for v in (self.exponent, self.smoothing))
        return error * jnp.exp((exponent / 2 - 1) * jnp.log(error * error + smoothing))

    def record(self, m: Any, error: Any) -> Any:
        exponent, smoothing = (xp.asarray(v, m.dtype) for v in (self.exponent, self.smoothing))
        square = m.multiply(error, error, to="square_error")
        log = m.scratch("log_square_error", ("support",), "logarithm of the squared error")
        argument = square + smoothing * m.per_output(m.one)
        m.activate("log", argument, m.per_output(m.support), to=log)
        power = m.scratch("error_power", m.at(error), "derivative of the loss")
        m.activate("exp", (exponent / 2 - 1) * log, error, to=power)
        return power
