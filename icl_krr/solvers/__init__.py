r"""Solvers of kernel ridge regression on arrays, without a transformer.

Iterative ones without a causal mask are functions with the mark `solver`, as `icl_krr.compile`
takes them. Every solver takes one task and is jitted; use `jax.vmap` for a batch. Tests compare it
with textbook formulas in NumPy and SciPy, which share no code with this library, and each model
with it. Results have the dtype of the task. An iterative solver returns a `Trajectory`, a causal
one a `CausalTrajectory`, with one entry for each iterate from 0 to `steps`. In formulas
$A = K + \lambda I$, $\alpha = A^{-1} y$, and $(a, b)$ is `spectrum`. Arguments that most share:

Args:
    kernel: kernel $k$ of the regression, or covariance function of a Gaussian process. Solvers of
        features need one with a feature map (`Linear`, `Polynomial`, `Features`); smoothers and the
        normaliser need a positive one (such as `Exponential` or `Gaussian`).
    ridge: ridge $\lambda$ > 0, in units of $k(x, x)$; the variance of the noise of a Gaussian
        process.
    steps: number of steps, >= 1. A delta rule learns one support a step; its default None is all n,
        and for weights 256, with which a task must not have more supports.
    step_size: step size $\eta$ > 0.
    spectrum: bounds (low, high) on the eigenvalues of $A$, as `icl_krr.spectral_bounds` returns
        them.
    options: keywords of the causal mask: prefix, log_gate, strength and window of
        `icl_krr.constructions.CausalOptions`; the momentum, preconditioned and Kalman delta rules
        take no window.
"""

import lazy_loader

_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name):
    if name in __all__:
        return _load(name)
    from ..catalogue import absent  # whose packages may import this room

    raise absent(__name__, name)
