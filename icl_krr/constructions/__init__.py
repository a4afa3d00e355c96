r"""Solvers of kernel ridge regression as explicit weights of a transformer.

Each solver has one file. This file describes a step of the solver by operations of a `Machine`,
such as `kernel_times`, `add` and `dot`. The machine translates the operations to weights
(`icl_krr.constructions.assembly`). The type of attention determines the heads of an operation, and
the arithmetic determines its MLP units. Operations that do not depend on each other share a block.
A slot has values only at certain tokens, such as `SUPPORTS` or `SUPPORTS_AND_QUERIES`. If an
operation would write to other tokens, the machine masks it or raises an error. All constructions
take the keywords in `Options`.

**What you can choose.**

- *Kernel.* The kernel determines the `attention` (see `Options`). In softmax attention, the
  aggregator token is an attention sink. The weight of the sink gives the softmax normaliser, so the
  model can multiply by K without normalisation. A `Mixture` has one head per component.
- *Width.* `sketch=P` [p, m] stores P^T x in m channels instead of x. P is part of the weights, so
  you can differentiate with respect to P. If `sketch` is a feature map, the first MLP computes the
  features, and linear attention uses their kernel, in time linear in the context length.
- *Origin of x.* The Gaussian kernel depends on differences of points only, but a head computes it
  from inner products, which lose digits if all points are far from 0. So the embedding of these
  models subtracts the mean of the supports (`model.spec.centred`), and the slots `x` and
  `half_square` are relative to it. The mean is a part of the preparation of the task, not of the
  weights. Models with other kernels, feature maps or landmarks read x as it is.
- *Units of y.* With exact arithmetic, y multiplied by c > 0 multiplies the prediction by c, and the
  Jacobian with respect to y stays the same, for c from 1e-30 to 1e30 in float32, because the model
  runs on y in other units (see `icl_krr.run_with_cache`). All outputs of a model and all supports
  have one unit, so in conjugate gradient an output, or a prefix of the supports, that is 1e9 times
  smaller than the largest y loses digits. The weights of an average and the bounds of ReLU tables
  are in units of y itself.
- *Causality.* `delta_rule`, `momentum_delta_rule`, `implicit_delta_rule`,
  `preconditioned_delta_rule`, `kalman_delta_rule`, `prefix_conjugate_gradient`, `prefix_chebyshev`,
  `prefix_posterior` and `bayesian_average` are causal: each token predicts from the supports before
  it, at all positions (`icl_krr.predict_along`). All but the last also take the keywords in
  `CausalOptions`. The rules are linear attention layers of language models, which
  `icl_krr.export.from_linear_attention` compares token by token with a layer of your own.
- *Layers that are not here.* Muon orthogonalises the momentum M of `momentum_delta_rule`: each
  token stores M, so the products in $M M^T M$ are gated units, but $r m^2$ of them, in two more
  blocks for each iteration. A memory that is itself an MLP is not linear in what it learned, so no
  head can sum coefficients: every token would have to store its weights and repeat all steps before
  it. Log-linear attention needs a mask of the spec that cuts the prefix of a token into blocks of
  1, 2, 4, ... supports, with a factor for each.
- *Uncertainty.* `prefix_posterior` computes mean and variance of a Gaussian process at every token,
  and `bayesian_average` averages over several. `icl_krr.predictive` returns the distribution of a
  new output; `icl_krr.uncertainty` scores it.
- *Arithmetic.* With `ReLU(width, bound)` and softmax attention, a model has only standard
  components. The state `cache["overrun"]` shows where values exceed the bounds.

**Many values in one compilation.** JAX can trace ridge, temperature, lengthscale, projection and
step sizes. Build the model inside the function that you pass to `jax.vmap`. The 200 models of this
example then share one compiled program, and you can differentiate with respect to these values:

>>> import jax, jax.numpy as jnp
>>> import numpy as np
>>> import icl_krr as ik
>>> task = ik.tasks.sample(jax.random.key(0), ik.tasks.GaussianProcess(ik.Gaussian()))
>>> def error(ridge, temperature):
...     kernel = ik.Exponential(temperature)
...     sink = Softmax(log_sink=ik.theory.log_sink(kernel, task))
...     sizes = {"num_features": 2, "steps": 16}
...     model = conjugate_gradient(kernel, ridge=ridge, attention=sink, **sizes)
...     return jnp.mean((ik.predict(model, task) - task.y_query) ** 2)
>>> ridges, temperatures = np.logspace(-2, 1, 20), np.linspace(0.3, 3, 10)
>>> by_ridge = jax.vmap(error, in_axes=(0, None))
>>> jax.jit(jax.vmap(by_ridge, in_axes=(None, 0)))(ridges, temperatures).shape
(10, 20)

A batch sums in another order than one model does. Predictions of float32 that have not converged
can therefore differ between the two, as `icl_krr.training` explains.

**Depth and weights.** A `lax.scan` runs over the steps, so the compile time does not grow with the
depth. Weights that are equal in all steps are stored once. `model.replace(steps=...)`,
`model.rebuild(ridge=...)`, `icl_krr.untie` and `icl_krr.dense` make other models of one.

**Shared arguments.** The oracle of the same name in `icl_krr.solvers` has the mathematics. Most
constructions take these arguments, and all raise these errors:

Args:
    kernel: kernel $k$ of the regression; the attention must be able to apply $k$ (`Options`).
    num_features: number of features p of a point x, >= 1.
    ridge: ridge $\lambda$ > 0; may be a traced scalar.
    steps: number of steps, >= 1.
    spectrum: bounds (low, high) on the eigenvalues of $A = K + \lambda I$, as from
        `icl_krr.spectral_bounds`; may be traced; required (the default None raises an error).
    options: further keywords, explained in `Options`.

Raises:
    ValueError: the attention cannot apply the kernel or cannot run the algorithm, a kernel has no
        feature map where one is needed or is none that the algorithm takes, a number is out of
        range or missing, settings exclude each other, or a name is unknown.
    TypeError: a keyword is unknown or a number has the wrong type.
"""

from typing import TYPE_CHECKING

from .assembly.choice import machine
from .assembly.machine import Machine
from .assembly.options import Options, Softmax
from .assembly.prefix import CausalOptions, prefix_sums
from .assembly.relu import ReLU
from .assembly.slots import SUPPORTS, SUPPORTS_AND_QUERIES
from .bayesian_average import bayesian_average
from .conjugate_gradient import conjugate_gradient
from .delta_rule import delta_rule
from .gradient_descent import (
    gradient_descent,
    gradient_descent_in_alpha,
    gradient_descent_plus_plus,
)
from .implicit_delta_rule import implicit_delta_rule
from .kalman_delta_rule import kalman_delta_rule
from .momentum import chebyshev, heavy_ball, prefix_chebyshev
from .momentum_delta_rule import momentum_delta_rule
from .nadaraya_watson import nadaraya_watson
from .newton_schulz import newton_schulz
from .preconditioned_conjugate_gradient import preconditioned_conjugate_gradient
from .preconditioned_delta_rule import preconditioned_delta_rule
from .prefix_conjugate_gradient import prefix_conjugate_gradient, prefix_posterior
from .richardson import preconditioned_chebyshev, richardson

__all__ = [
    "SUPPORTS",
    "SUPPORTS_AND_QUERIES",
    "CausalOptions",
    "Machine",
    "Options",
    "ReLU",
    "Softmax",
    "bayesian_average",
    "chebyshev",
    "conjugate_gradient",
    "delta_rule",
    "gradient_descent",
    "gradient_descent_in_alpha",
    "gradient_descent_plus_plus",
    "heavy_ball",
    "implicit_delta_rule",
    "kalman_delta_rule",
    "machine",
    "momentum_delta_rule",
    "nadaraya_watson",
    "newton_schulz",
    "preconditioned_chebyshev",
    "preconditioned_conjugate_gradient",
    "preconditioned_delta_rule",
    "prefix_chebyshev",
    "prefix_conjugate_gradient",
    "prefix_posterior",
    "prefix_sums",
    "richardson",
]

if not TYPE_CHECKING:  # a type checker knows which names there are

    def __getattr__(name):
        from ..catalogue import absent  # which imports packages that import this one

        raise absent(__name__, name)
