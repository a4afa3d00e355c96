"""What a slot holds that is no field of a solver's result, in NumPy: a method for each name.

A value is [steps + 1, tokens, width] or, if no step changes it, [tokens, width], for supports and
queries, or for those that the slot has.
"""

import re
from functools import cached_property, partial

import numpy as np
from helpers import kernel_matrix, numpy

import icl_krr as ik

NORMALISED = ("richardson", "preconditioned_chebyshev", "normalised_conjugate_gradient")

POSTERIORS = {
    "h": ("h", 0.5), "r": ("r", -0.5), "d": ("d", -0.5), "fits": ("along", 0),
    "variances_of_fits": ("variance", 0),
}  # fmt: skip
"""Slots of an average: the field of `prefix_posterior`, and the power of the ridge in its unit."""


class Slots:
    """The slots of a case on a task, from the iterates of its oracle."""

    def __init__(self, case, task, ridge, path, steps):
        self.case, self.task, self.ridge, self.path = case, task, ridge, path
        self.options, self.kernel = case.options(task, ridge, steps), case.sketched_kernel(task)
        self.points, self.n = np.concatenate([task.x, task.x_query]), task.num_supports
        self.t, self.i = np.arange(steps + 1)[:, None, None], np.arange(self.n)[:, None]
        self.before = np.minimum(np.arange(len(self.points)), self.n)[:, None]  # supports
        names = ("step_size", "momentum", "decay", "ridges")
        self.eta, self.theta, self.decay, self.ridges = (
            np.asarray(self.options.get(name, 1.0)) for name in names
        )
        self.attention = self.options.get("attention", ik.Softmax())

    def __getitem__(self, name):
        """A field of the oracle, or a method; the slot of one of several patterns has a number."""
        for value in (getattr(self.path, name, None), getattr(self.path, "others", {}).get(name)):
            if value is not None:
                return value.reshape(*value.shape[:2], -1)
        if name in POSTERIORS:
            return self.posteriors(*POSTERIORS[name])
        method, number = re.fullmatch(r"(\w+?)(?:_(\d))?", name).groups()
        value = getattr(self, method)(*([] if number is None else [int(number)]))
        return value[None] if value.ndim == 2 else value

    # softmax attention with a sink of weight c: sums Z of a pattern over the supports

    def half_square(self, k=0):
        centre = self.task.x.mean(axis=0) * self.kernel.stationary
        return np.sum((self.points - centre) ** 2, axis=1, keepdims=True) / 2

    def normaliser(self, k=0):
        K = np.exp((-1) ** k * (self.attention.epsilon or 0) * self.points @ self.task.x.T)
        if self.attention.epsilon is None:
            kernel = getattr(self.kernel, "kernels", (self.kernel,))[k]
            K = kernel_matrix(kernel, self.points, self.task.x)
        if self.case.row.causal:
            K = K * (self.before > self.i.T)
        c = np.full((len(K), 1), np.exp(float(self.attention.log_sink)))
        if self.case.solver in NORMALISED:
            c[: self.n] = self.ridge
        return K.sum(axis=1, keepdims=True) / c + 1

    def normaliser_support(self, k=0):
        return self.normaliser(k)[: self.n]

    def normaliser_query(self, k=0):
        return self.normaliser(k)[self.n :]

    def sink(self):
        return 1 / self.normaliser()

    # preconditioners and features

    def k(self):
        return numpy(self.kernel.diagonal(self.task.x))[:, None]

    def inverse_diagonal(self):
        return 1 / (self.k() + self.ridge)

    def nystrom(self):
        return numpy(self.options["preconditioner"].features(self.task.x))

    def features(self):
        phi = numpy(self.kernel.feature_map(self.points))
        if self.case.solver != "bayesian_average":
            return phi
        return np.concatenate([phi / root for root in self.ridges**0.5], axis=1)

    def weighted(self):
        return self.features()[: self.n]

    # delta rules, where support i is reached in step i

    def step_mask(self):
        return np.minimum(1, self.t - self.i + 3)

    def current_rate(self):
        rate = self.eta
        if self.case.solver in ("momentum_delta_rule", "kalman_delta_rule"):
            rate = 1.0  # their step size is not in alpha
        elif self.case.solver == "implicit_delta_rule":
            rate = self.rate()
        return rate * (self.i <= self.t + 1)

    def next_alpha(self):
        return self.path.alpha[-1].reshape(self.n, -1) * (self.i <= self.t)

    def diagonal(self):
        if self.case.solver == "implicit_delta_rule":
            return self.k() / np.exp(float(self.attention.log_sink))
        key = self.written() if self.case.solver == "preconditioned_delta_rule" else self.gain()
        return np.sum(self.weighted() * key, axis=-1, keepdims=True)

    def rate(self):
        return self.eta / (1 + self.eta * self.k())

    def log_momentum(self):
        return np.log(self.theta) * np.minimum(self.before + 1, self.n)

    def log_decay(self):
        return np.log(self.decay) * self.before

    def size(self):
        return np.full((self.n, 1), self.eta / self.decay)

    def stepped(self):
        return self.eta * self.weighted()

    def M(self):
        powers = np.tril(self.theta ** np.maximum(self.i - self.i.T, 0.0))
        alpha = self.path.alpha.reshape(len(self.t), self.n, -1)
        M = np.einsum("ij,tjr,jm->tirm", powers, alpha, self.weighted())
        return M.reshape(*M.shape[:2], -1)

    def curvature(self):
        total = 1 + np.cumsum(self.squares(), axis=0)
        return np.append(total, np.ones((len(self.points) - self.n, total.shape[1])), axis=0)

    def written(self):
        return self.weighted() / self.curvature()[: self.n]

    def squares(self):
        return self.weighted() ** 2

    def squared_gate(self):
        return np.ones(self.weighted().shape)

    def precision(self, after):
        """1 / p of the Kalman filter after so many supports."""
        squares = np.cumsum(np.insert(self.squares(), 0, 0, axis=0), axis=0)
        return 1 + squares[after] / self.ridge

    def change(self):
        return self.squares() / self.ridge * (self.i <= self.t)

    def gain(self):
        above = self.weighted() / self.precision(np.minimum(self.i, self.t)[..., 0])
        return above / (self.ridge + np.sum(self.weighted() * above, axis=-1, keepdims=True))

    # regressions of prefixes; an average divides the features of a model by the root of its ridge

    @cached_property
    def paths(self):
        solve = partial(ik.solvers.prefix_posterior, self.kernel, self.task)
        return [numpy(solve(ridge=ridge, steps=len(self.t) - 1)) for ridge in self.ridges]

    def posteriors(self, field, power):
        """A field of the solver for each ridge, times a power of the ridge."""
        fields = [
            ridge**power * getattr(path, field).reshape(len(self.t), len(self.points), -1)
            for path, ridge in zip(self.paths, self.ridges, strict=True)
        ]
        return np.concatenate(fields, axis=2)

    def rr(self):
        r = np.where(np.abs(self["r"]) < 1e-150, 0, self["r"])  # so that no square underflows
        return np.sum(r.reshape(*r.shape[:2], -1, self.task.num_features) ** 2, axis=3)

    def variance_gap(self):
        return self.rr() * (self.t > 0)

    def variance_gaps(self):
        gaps = self.rr() * self.ridges
        return np.concatenate([0 * gaps[:1], gaps[:-1]])
